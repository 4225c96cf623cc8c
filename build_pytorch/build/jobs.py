"""One program that builds: started, read as it streams, stopped, and told of in logs."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from build_pytorch.base import paths, process
from build_pytorch.base.errors import WriteError
from build_pytorch.build import resources
from build_pytorch.build.log_reader import BuildProgress, PlainReader
from build_pytorch.build.log_rules import Rule
from build_pytorch.build.step import Step
from build_pytorch.nix.log_format import LogLine, NixLogReader
from build_pytorch.results import ledger

_PATIENCE: Final = 10.0
"""Seconds between the signals that end a build: SIGINT, SIGTERM, SIGKILL."""

_LONGEST: Final = 1 << 20
"""Bytes without a line break that are taken for a line."""

_MEMORY_EVERY: Final = 5.0
"""Seconds between two looks at the memory of a build."""


class Attempt:
    """One variant in a job: its log and how far it is."""

    def __init__(self, root: Path, step: Step, number: int) -> None:
        self.step = step
        self.progress = BuildProgress(step.variant)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        self.id = f"{stamp}-{os.getpid()}-{number}"
        self.log = Path(paths.STATE, ledger.LOGS, step.variant.package, f"{self.id}.log")
        self.rule: Rule | None = None
        """The rule by which it was stopped, or has to be."""
        self.lost_log = ""
        """Why the log is not whole: a full disk ends no build."""
        self.began = time.time()
        """On the clock of files."""
        self._file = _opened(root / self.log)

    def write(self, text: str) -> None:
        """Add a line to the log, as long as there is one."""
        if not self.lost_log:
            self._try(lambda: self._file.write(f"{text}\n".encode()))

    def flush(self) -> None:
        """Let others read what the log has so far."""
        if not self.lost_log:
            self._try(self._file.flush)

    def close(self) -> None:
        """Finish the log."""
        self._try(self._file.close)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self.lost_log = self.lost_log or error.strerror or "cannot be written"


class Job:
    """A program that builds one variant or several."""

    def __init__(
        self,
        root: Path,
        attempts: Sequence[Attempt],
        argv: Sequence[str],
        env: Mapping[str, str | None],
        *,
        is_nix: bool,
    ) -> None:
        self.attempts = list(attempts)
        self._all = tuple(attempts)
        self.argv = argv
        self.started = time.monotonic()
        self.peak_memory = 0
        self.interrupted = False
        self.at_end = False
        """Whether it has closed its output."""
        self.has_news = False
        """Whether a build of several has begun, so that another may have ended."""
        self._by_derivation = {a.step.derivation.drv_path: a for a in attempts if a.step.derivation}
        package = attempts[0].step.variant.package
        self._reader = NixLogReader() if is_nix else PlainReader(package)
        self._is_nix = is_nix
        self._is_shared = len(attempts) > 1
        self._rest = b""
        self._signals: Iterator[int] | None = None
        self._next_signal = 0.0
        self._next_memory = 0.0
        for attempt in attempts:
            attempt.write(f"$ {shlex.join(argv)}")
        self.process = process.stream(argv, cwd=root, env=env)

    def fileno(self) -> int:
        """For selectors."""
        return self.process.fileno()

    @property
    def elapsed(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started

    def seconds(self, attempt: Attempt) -> float:
        """Seconds that one build of it took so far: of its own, where several wait for a place."""
        began = attempt.progress.began if self._is_shared else 0.0
        return time.monotonic() - (began or self.started)

    def pump(self) -> list[Attempt]:
        """Take in what it printed. Returns the attempts that have to be stopped for it."""
        data = self.process.read()
        if data is None:
            self.at_end, data = True, b""
        tripped: list[Attempt] = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines.append(self._rest)
            self._rest = b""
        for raw in lines:
            for line in self._reader.read(raw):
                tripped += self._take(line)
        for attempt in self._all:
            attempt.flush()
        return tripped

    def _take(self, line: LogLine) -> Iterator[Attempt]:
        """Put a line where it belongs: with its variant, or with all that wait for it."""
        owner = self._by_derivation.get(line.derivation) if self._is_nix else None
        mine = not self._is_nix and line.derivation == self.attempts[0].step.variant.package
        if mine:
            owner = self.attempts[0]
        if owner is None and line.derivation and self._is_nix:
            name = line.derivation.rpartition("/")[2][33:].removesuffix(".drv")
            text = f"{name}> {line.text}" if line.text else f"building {name}" * line.began
            line = LogLine("", text)
        now = time.monotonic()
        for attempt in [owner] if owner else self.attempts:
            if line.text:
                attempt.write(line.text)
            self.has_news |= line.began and owner is not None
            rule = attempt.progress.see(line, now, own=owner is not None)
            if rule and attempt.rule is None:
                attempt.rule = rule
                yield attempt

    def poll(self) -> int | None:
        """Its exit code once it has ended and all it printed is read, else None.

        Looks at its memory, and goes on with stopping it where that was asked for.
        """
        now = time.monotonic()
        if now >= self._next_memory:
            self._next_memory = now + _MEMORY_EVERY
            self.peak_memory = max(self.peak_memory, resources.process_memory(self.process.pid))
        if self._signals and now >= self._next_signal:
            self._escalate()
        return self.process.poll()

    def drain(self) -> None:
        """Take in all that is left in the pipe of an ended program."""
        while not self.at_end and self.process.is_readable():
            self.pump()
        for line in self._reader.read(self._rest):
            for _ in self._take(line):
                pass  # too late to stop; the attempt remembers its rule
        self._rest = b""

    @property
    def is_stopped(self) -> bool:
        """Whether it was asked to end."""
        return self._signals is not None

    def stop(self) -> None:
        """Ask it to end; ask again less politely as `poll` is called."""
        if self._signals is None:
            self._signals = iter((signal.SIGINT, signal.SIGTERM))
            self._escalate()

    def _escalate(self) -> None:
        number = next(self._signals or iter(()), None)
        if number is None:
            self.process.kill()
        else:
            self.process.signal(number)
        self._next_signal = time.monotonic() + _PATIENCE

    def release(self, attempt: Attempt) -> None:
        """Let one go that is done, while the others go on. Late lines still reach its log."""
        self.attempts.remove(attempt)

    def close(self) -> None:
        """Give everything back."""
        self.process.finish()
        for attempt in self._all:
            attempt.close()


def _opened(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
