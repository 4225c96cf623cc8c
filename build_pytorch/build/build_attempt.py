"""One try to build a step: its program, its log, and what became of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files, process
from build_pytorch.base.console import shortened, visible
from build_pytorch.build.backends import BuildCommand, Step
from build_pytorch.build.log_reader import LogDiagnosis, LogReader, fails_again
from build_pytorch.build.log_rules import OUT_OF_MEMORY, RULES_BY_ID, LogRule
from build_pytorch.build.usual_times import clock
from build_pytorch.nix import store
from build_pytorch.results import ledger
from build_pytorch.results.ledger import Event, EventKind
from build_pytorch.results.package_state import Mark

_PATIENCE: Final = 60.0
"""Seconds between the signals that end a build: SIGINT, SIGTERM, SIGKILL.

Nix deletes the folder of the build first: the sources of PyTorch took 45 s on a busy machine. A Nix
that is killed leaves the folder.
"""
_NUMBERS: Final = itertools.count(1)  #: of the attempts of this process
_KEPT: Final = "\t"  #: control characters of a build's output that its log keeps
_KILLED: Final = (137, -9)  #: exit codes of a program that was killed: of shells, of Python
_LONGEST: Final = 500  #: characters of a message


class BuildOutcome(Struct, frozen=True, kw_only=True):
    """What became of one step of the plan."""

    step: Step
    state: Mark  #: built, failed, stopped, interrupted or not started
    message: str = ""
    seconds: float = 0.0
    cause: str = ""  #: id of the log rule that names the failure
    log: str = ""
    outputs: tuple[str, ...] = ()
    said: LogDiagnosis | None = None  #: what its log says

    @property
    def rule(self) -> LogRule | None:
        """The log rule that names the failure."""
        return RULES_BY_ID.get(self.cause)


class BuildAttempt:
    """Runs the program of one step. It is ended as soon as a line matches a rule that stops.

    `is_stopped` and `is_killed` tell it to end: the first politely, the second at once.
    """

    def __init__(self, root: Path, step: Step, command: BuildCommand, cores: int) -> None:
        self.step = step
        self.command = command
        self.cores = cores
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        self.id = f"{stamp}-{os.getpid()}-{next(_NUMBERS)}"
        self.log = Path(ledger.LOGS, step.name, f"{self.id}.log")  #: below the root
        self.reader = LogReader(step.package, str(self.log))
        self.lost_log = ""  #: why the log is incomplete: a full disk ends no build
        self.created = time.time()
        self.is_stopped = self.is_killed = False
        self._root = root
        self._started = time.monotonic()
        self._signals = iter((signal.SIGINT, signal.SIGTERM))
        self._next_signal = 0.0
        with files.write_errors(root / self.log):
            self._file = files.open_state(root, self.log, "xb")

    @property
    def seconds(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self._started

    def run(self) -> int:
        """Run the program to its end and return the exit code. Raises ToolError."""
        argv, env = self.command
        try:
            self._write([f"$ {shlex.join(argv)}"])
            return process.run(argv, cwd=self._root, env=env, take=self._take).code
        finally:
            self.close()

    def close(self) -> None:
        """Close the log."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _take(self, lines: Sequence[bytes]) -> int:
        """Read lines of the program, and return the signal that it gets now, or 0."""
        self._write([text for raw in lines for text in self.reader.read(raw)])
        self.is_stopped |= self.reader.stop is not None
        if self.is_killed:
            return signal.SIGKILL
        if not self.is_stopped or time.monotonic() < self._next_signal:
            return 0
        self._next_signal = time.monotonic() + _PATIENCE
        return next(self._signals, signal.SIGKILL)

    def _write(self, lines: Sequence[str]) -> None:
        """Add lines to the log, unless a write has failed; escapes are shown."""
        if self.lost_log:
            return
        try:
            self._file.write("".join(f"{visible(line, _KEPT)}\n" for line in lines).encode())
        except OSError as error:
            self.lost_log = error.strerror or "cannot be written"

    # --- what became of it ---

    def outcome(
        self, state: Mark, message: str = "", cause: str = "", outputs: tuple[str, ...] = ()
    ) -> BuildOutcome:
        """Return the outcome of the attempt, which has ended."""
        return BuildOutcome(
            step=self.step,
            state=state,
            message=shortened(message, _LONGEST),
            seconds=self.seconds,
            cause=cause,
            log=str(self.log),
            outputs=outputs,
            said=self.reader.diagnosis(),
        )

    def decide(self, code: int, outputs: tuple[str, ...]) -> BuildOutcome:
        """Return the outcome of an attempt whose program ended with an exit code."""
        said = self.reader.diagnosis()
        no_result = f"no error, and no new result-{self.step.name}; remove that link and run again"
        ending = f"exit code {code}" if code else no_result
        if said.stops:  # a result that was built nevertheless is wrong
            return self.outcome(Mark.STOPPED, said.matches[0].text, said.rule)
        if outputs:
            return self.outcome(Mark.BUILT, outputs=outputs)
        if self.is_stopped or self.is_killed:
            return self.outcome(Mark.INTERRUPTED, ending)
        if said.rule:
            return self.outcome(Mark.FAILED, said.matches[-1].text, said.rule)
        if code in _KILLED:
            return self.outcome(Mark.FAILED, ending, OUT_OF_MEMORY)
        return self.outcome(Mark.FAILED, said.headline.text if said.headline else ending)

    def event(self, kind: EventKind, **fields: object) -> Event:
        """Return a line of the ledger about the attempt."""
        step = self.step
        return ledger.event_of(step.package, kind, digest=step.digest, attempt=self.id, **fields)

    def ended_event(self, outcome: BuildOutcome) -> Event:
        """Return the line of the ledger about the end."""
        is_failure = outcome.state in {Mark.FAILED, Mark.STOPPED}
        return self.event(
            "ended",
            outcome=outcome.state.value,
            seconds=round(outcome.seconds, 3),
            outputs=outcome.outputs,
            cause=outcome.cause,
            message=outcome.message,
            fails_again=is_failure and fails_again(outcome.rule, outcome.message),
            where=self.reader.where,
        )


def sentence(outcome: BuildOutcome) -> str:
    """Return the message about a step: one line for success, else with the way to go on."""
    package, rule, said = outcome.step.package, outcome.rule, outcome.said
    took = clock(outcome.seconds)
    if outcome.state is Mark.BUILT:
        at = f" on {said.where}" if said and said.where else ""
        return f"{package.id}: built in {took}{at}: {', '.join(outcome.outputs)}"
    if outcome.state in {Mark.NOT_STARTED, Mark.INTERRUPTED} or not said:
        return f"{package.id}: {outcome.state}: {outcome.message}"
    if rule:
        lines = [
            f"{package.id}: {outcome.state} after {took}: {rule.meaning} ({rule.id})",
            f"  line of the log: {outcome.message}",
            f"  what to do: {rule.advice(package.variant, outcome.log)}",
        ]
    else:
        phase = f" in the phase {said.phase}" if said.phase else ""
        why = f"for a reason that no log rule names ({outcome.message}); the last lines:"
        lines = [f"{package.id}: failed after {took}{phase} {why}"]
        lines += [f"    {line}" for line in said.tail]
    lines.append(f"  whole log: {outcome.log}")
    if said.kept and not said.where:
        lines.append("  its folder is kept; to go on in it by hand:")
        lines += [f"    {text}" for text in store.shell_commands(package.path, said.kept)]
    return "\n".join(lines)
