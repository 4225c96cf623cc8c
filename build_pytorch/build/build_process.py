"""The programs of a run: each builds one step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from build_pytorch.base import files
from build_pytorch.base.console import visible
from build_pytorch.base.process_stream import StreamedProcess
from build_pytorch.build.build_backend import BuildBackend, BuildCommand, Step
from build_pytorch.build.build_progress import BuildProgress, RuleMatch
from build_pytorch.build.log_reader import named
from build_pytorch.results import ledger

_PATIENCE: Final = 60.0
"""Seconds between the signals that end a build: SIGINT, SIGTERM, SIGKILL.

Nix deletes the folder of the build first: the sources of PyTorch took 45 s on a busy machine. A Nix
that is killed leaves the folder.
"""

_KEPT: Final = "\t"  #: control characters of a build's output that its log keeps
KILLED: Final = (137, -9)  #: exit codes of a program that was killed: of shells, of Python


class Attempt:
    """One try to build a step: its log and its progress."""

    def __init__(self, root: Path, step: Step, number: int) -> None:
        self.step = step
        self.progress = BuildProgress(step.variant)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        self.id = f"{stamp}-{os.getpid()}-{number}"
        self.log = Path(ledger.LOGS, step.name, f"{self.id}.log")  #: below the root
        self.stopped: RuleMatch | None = None  #: the match for which the build is stopped
        self.lost_log = ""  #: why the log is incomplete: a full disk ends no build
        self.created = time.time()
        self._started = time.monotonic()
        with files.write_errors(root / self.log):
            self._file = files.create_below(root, self.log)

    @property
    def seconds(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self._started

    def write(self, lines: Sequence[str]) -> None:
        """Add lines to the log, unless a write has failed; escapes are shown."""
        if self.lost_log:
            return
        try:
            text = "".join(f"{visible(line, _KEPT)}\n" for line in lines)
            self._file.write(text.encode())
        except OSError as error:
            self.lost_log = error.strerror or "cannot be written"

    def close(self) -> None:
        """Close the log."""
        with contextlib.suppress(OSError):
            self._file.close()


class BuildProcess:
    """A program that builds one step. It is ended as soon as a line matches a rule that stops."""

    def __init__(
        self,
        backend: BuildBackend,
        attempt: Attempt,
        command: BuildCommand,
    ) -> None:
        self.attempt = attempt
        self.command = command
        self._root = backend.settings.root
        self._owner = backend.owner(attempt.step)
        self._read = backend.reader(attempt.step)
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()

    @property
    def was_ended(self) -> bool:
        """Whether the program was told to end, by a log rule or by the run."""
        return self._stop.is_set()

    async def run(self) -> int:
        """Run the program to its end and return the exit code. Raises ToolError."""
        argv = [*self.command.argv, *self.command.hidden]
        helper = None
        try:
            self.attempt.write([f"$ {shlex.join(argv)}"])
            program = await StreamedProcess.start(argv, cwd=self._root, env=self.command.env)
            helper = asyncio.create_task(self._terminate(program))
            return await program.run(self._take)
        finally:
            if helper:
                helper.cancel()
            self.attempt.close()

    def _take(self, lines: Sequence[bytes]) -> None:
        """Put lines into the log, those of dependencies with their name."""
        attempt = self.attempt
        texts: list[str] = []
        for line in (line for raw in lines for line in self._read(raw)):
            is_own = bool(line.derivation) and line.derivation == self._owner
            shown = named(line) if line.derivation and not is_own else line
            if shown.text:
                texts.append(shown.text)
            rule = attempt.progress.see(shown, own=is_own)
            if rule and attempt.stopped is None:
                attempt.stopped = attempt.progress.latest
                self.stop()
        attempt.write(texts)

    def stop(self) -> None:
        """End the program: SIGINT now, SIGTERM and SIGKILL if it goes on."""
        self._stop.set()

    def kill(self) -> None:
        """Kill the program as soon as it runs."""
        self._kill.set()
        self.stop()

    async def _terminate(self, program: StreamedProcess) -> None:
        await self._stop.wait()
        for number in (signal.SIGINT, signal.SIGTERM):
            if not self._kill.is_set():
                program.send(number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._kill.wait(), _PATIENCE)
        program.kill()
