"""Pushing results to a binary cache, signed: file://, s3://, ssh://, whatever Nix can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.build.build_options import BuildOptions
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import store


def check(options: BuildOptions) -> None:
    """Raise BuildPytorchError for a cache or a key that cannot work, before hours are spent."""
    if not options.copy_to:
        return
    if not process.which(store.NIX):
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


class Pushes:
    """Results on their way to a cache, while other builds go on. Without a cache none is begun."""

    def __init__(self, url: str, key: Path | None, say: Callable[[str], None]) -> None:
        self.url = url
        self.key = key
        self.say = say
        self.failed: dict[str, str] = {}
        """What could not be pushed, by package name, with the reason."""
        self.running: list[tuple[Variant, process.Running]] = []

    def begin(self, variant: Variant, outputs: Sequence[str]) -> None:
        """Sign store paths with all they need, and begin to copy them."""
        if not self.url:
            return
        if self.key:
            signed = process.start(store.sign_argv(outputs, self.key)).finish()
            if signed.code:
                self._fail(variant, f"signing: {signed.last_line}")
                return
        self.running.append((variant, process.start(store.copy_argv(outputs, self.url))))

    def finish(self) -> None:
        """Tell of those that are done."""
        for variant, copy in list(self.running):
            if copy.is_running(0):
                continue
            self.running.remove((variant, copy))
            answer = copy.finish()
            if answer.code:
                self._fail(variant, answer.last_line)
            else:
                self.say(f"{variant.id}: is in {self.url}")

    def end(self) -> None:
        """End those that are not done."""
        for variant, copy in self.running:
            copy.kill()
            copy.finish()
            self._fail(variant, "the run was ended")
        self.running = []

    def _fail(self, variant: Variant, why: str) -> None:
        self.failed[variant.package] = why
        self.say(f"{variant.id}: built, but not pushed: {why}")
