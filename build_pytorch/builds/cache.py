"""Pushing results to a binary cache, signed: file://, s3://, ssh://, whatever Nix can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build_pytorch import proc
from build_pytorch.builds.options import Options
from build_pytorch.console import Progress
from build_pytorch.errors import BuildPytorchError, ToolError

_NIX = ["nix", "--extra-experimental-features", "nix-command"]


def check(options: Options) -> None:
    """Raise BuildPytorchError for a cache or a key that cannot work, before hours are spent."""
    if not options.copy_to:
        return
    if "://" not in options.copy_to:
        raise BuildPytorchError(
            f"--copy-to {options.copy_to}: not the URL of a store; file:///srv/cache, s3://bucket "
            "and ssh://host are"
        )
    if options.secret_key:
        try:
            text = options.secret_key.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = ""
        if ":" not in text:
            raise BuildPytorchError(
                f"--secret-key {options.secret_key}: no signing key; make one with "
                "`nix-store --generate-binary-cache-key NAME SECRET PUBLIC`"
            )


def push(outputs: Sequence[str], url: str, key: Path | None) -> None:
    """Sign store paths with all they need, and copy them. Raises ToolError."""
    if key:
        _run([*_NIX, "store", "sign", "--recursive", "--key-file", str(key), *outputs], "signing")
    _run([*_NIX, "copy", "--to", url, *outputs], f"copying to {url}")


def has(outputs: Sequence[str], url: str) -> set[str]:
    """Those of the store paths that a cache has. Raises ToolError where it cannot be asked."""
    found = set()
    for output in outputs:
        answer = proc.capture([*_NIX, "path-info", "--store", url, output], check=False)
        if answer.code == 0:
            found.add(output)
        elif "is not valid" not in answer.stderr:
            raise ToolError(
                f"{url}: cannot be asked: {answer.tail.splitlines()[-1:] or answer.code}"
            )
    return found


def _run(argv: Sequence[str], what: str) -> None:
    progress = Progress(what, 0)
    running = proc.start(argv)
    while running.is_running(0.5):
        progress.at(0)
    progress.end()
    answer = running.finish()
    if answer.code:
        last = (answer.tail.splitlines() or ["Nix says nothing"])[-1]
        raise ToolError(f"{what}: {last}")
