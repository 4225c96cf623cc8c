"""Pushing results to a binary cache, signed: file://, s3://, ssh://, whatever Nix can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build_pytorch import proc
from build_pytorch.builds.options import Options
from build_pytorch.errors import BuildPytorchError, ToolError

_NIX = ["nix", "--extra-experimental-features", "nix-command"]


def check(options: Options) -> None:
    """Raise BuildPytorchError for a cache or a key that cannot work, before hours are spent."""
    if not options.copy_to:
        return
    if not proc.which("nix"):
        raise ToolError("--copy-to: nix not found, and only Nix can copy to a cache; install it")
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


def push(outputs: Sequence[str], url: str, key: Path | None) -> proc.Running:
    """Sign store paths with all they need, and begin to copy them. Raises ToolError."""
    if key:
        argv = [*_NIX, "store", "sign", "--recursive", "--key-file", str(key), *outputs]
        signed = proc.start(argv).finish()
        if signed.code:
            raise ToolError(f"signing: {complaint(signed)}")
    return proc.start([*_NIX, "copy", "--to", url, *outputs])


def complaint(answer: proc.Result) -> str:
    """The last line of what a failed program said."""
    return (answer.tail.splitlines() or ["Nix says nothing"])[-1]


def has(outputs: Sequence[str], url: str) -> set[str]:
    """Those of the store paths that a cache has. Raises ToolError where it cannot be asked."""
    found = set()
    for output in outputs:
        answer = proc.capture([*_NIX, "path-info", "--store", url, output], check=False)
        if answer.code == 0:
            found.add(output)
        elif "is not valid" not in answer.stderr:
            raise ToolError(f"{url}: cannot be asked: {complaint(answer)}")
    return found
