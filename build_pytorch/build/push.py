"""Pushing results to a binary cache, signed: file://, s3://, ssh:// and others that Nix has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import files, process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.process_stream import run_tail
from build_pytorch.build.backends.base_backend import Step
from build_pytorch.nix import store

_AT_ONCE: Final = 4  #: results that are signed and copied at the same time


def check_cache(url: str, key: Path | None) -> None:
    """Raise BuildPytorchError for a cache or a key that cannot work, before hours are spent."""
    if not url:
        return
    if not process.which(store.NIX):
        raise ToolError("--copy-to: nix not found, and only Nix can copy to a cache; install it")
    if "://" not in url:
        good = "file:///srv/cache, s3://bucket or ssh://host"
        raise BuildPytorchError(f"--copy-to {url}: not the URL of a store; use {good}")
    if key:
        try:
            text = files.read_named(key, files.LARGEST_TEXT).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            text = ""
        if ":" not in text:
            how = "`nix-store --generate-binary-cache-key NAME SECRET PUBLIC`"
            raise BuildPytorchError(f"--secret-key {key}: not a signing key; make one with {how}")


class Pushes:
    """Signs results and copies them to a cache, while builds go on. Without a URL it does nothing.

    `key` is the file of the signing key, None to copy without a signature.
    """

    def __init__(self, url: str, key: Path | None, say: Callable[[str], None]) -> None:
        self.url = url
        self.key = key
        self.say = say
        self.failed: dict[str, str] = {}  #: why a result was not pushed, by name of the step
        self.running: dict[asyncio.Task[None], Step] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    def begin(self, step: Step, outputs: Sequence[str]) -> None:
        """Begin to push store paths with everything that they need."""
        if self.url:
            task = asyncio.create_task(self._push(step, outputs))
            self.running[task] = step
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        step = self.running.pop(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error:
            self._fail(step, str(error or "the run was ended"))

    async def _push(self, step: Step, outputs: Sequence[str]) -> None:
        programs = [("", store.copy_argv(outputs, self.url))]
        if self.key:
            programs.insert(0, ("signing: ", store.sign_argv(outputs, self.key)))
        async with self._places:
            for what, argv in programs:
                code, tail = await run_tail(argv)
                if code:
                    self._fail(step, what + "".join(tail or ["Nix prints no reason"]))
                    return
        self.say(f"{step.id}: is in {self.url}")

    def cancel(self) -> None:
        """End what is not done; that counts as failed."""
        for task in self.running:
            task.cancel()

    async def end(self) -> None:
        """Cancel, and wait for the end."""
        self.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    def _fail(self, step: Step, why: str) -> None:
        self.failed[step.name] = why
        self.say(f"{step.id}: built, but not pushed: {why}")
