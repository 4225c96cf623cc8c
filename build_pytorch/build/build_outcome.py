"""What became of one build: the decision, the record in the ledger, the message."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import LinkError, WriteError
from build_pytorch.build.build_backend import Step
from build_pytorch.build.build_process import Attempt
from build_pytorch.build.log_rules import OUT_OF_MEMORY, RULES, LogRule
from build_pytorch.nix import store
from build_pytorch.results.ledger import Ended, Ledger, Started, now

_LONGEST: Final = 500  #: characters of a line of the log that are shown and recorded
_STATISTICS: Final = 8 << 20  #: bytes at the end of a log that hold the counts of the cache
_CACHE: Final = re.compile(rb"build-pytorch: compiler cache: (\d{1,9}) hits, (\d{1,9}) misses")
_MISSES: Final = {"gpu": 0.02, "cpu-only": 0.15}
"""Largest part of the objects that a shared build is expected to compile itself."""
_KILLED: Final = (137, -9)  #: exit codes of a program that the kernel killed: of shells, of Python


class BuildState(StrEnum):
    """What became of a step of the plan, as people and the ledger read it."""

    BUILT = "built"
    FAILED = "failed"
    STOPPED = "stopped"  #: by a log rule
    INTERRUPTED = "interrupted"  #: by the user, or for the sake of another build
    NOT_STARTED = "not started"


_RECORDED: Final[dict[BuildState, Literal["built", "failed", "stopped", "interrupted"]]] = {
    BuildState.BUILT: "built",
    BuildState.FAILED: "failed",
    BuildState.STOPPED: "stopped",
    BuildState.INTERRUPTED: "interrupted",
}
"""What the ledger says of builds that were started."""


class BuildOutcome(Struct, frozen=True, kw_only=True):
    """What became of one step of the plan."""

    step: Step
    state: BuildState
    seconds: float = 0.0
    rule: LogRule | None = None
    message: str = ""
    log: str = ""
    outputs: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    where: str = ""

    @property
    def cause(self) -> str:
        """The id of the log rule that names the failure, or an empty text."""
        return self.rule.id if self.rule else ""


def decide(
    attempt: Attempt, code: int, outputs: tuple[str, ...], *, was_ended: bool
) -> BuildOutcome:
    """Decide what became of an attempt whose program ended with an exit code.

    `was_ended`: the run ended the program, for a signal or for the sake of another build.
    """
    progress = attempt.progress
    no_result = f"no error, and no new result-{attempt.step.name}; remove that link and run again"
    ending = f"exit code {code}" if code else no_result
    if attempt.stopped:  # a result that was built nevertheless is wrong
        return _ended(attempt, BuildState.STOPPED, attempt.stopped.text, attempt.stopped.rule)
    if outputs:
        return _ended(attempt, BuildState.BUILT, outputs=outputs)
    if was_ended:
        return _ended(attempt, BuildState.INTERRUPTED, ending)
    if cause := progress.cause():
        return _ended(attempt, BuildState.FAILED, cause.text, cause.rule)
    is_killed = code in _KILLED
    rule = next(rule for rule in RULES if rule.id == OUT_OF_MEMORY) if is_killed else None
    return _ended(attempt, BuildState.FAILED, ending, rule)


def _ended(
    attempt: Attempt,
    state: BuildState,
    message: str = "",
    rule: LogRule | None = None,
    outputs: tuple[str, ...] = (),
) -> BuildOutcome:
    """Return the outcome of an attempt, with the last lines of its log if no rule names it."""
    tail = () if rule else attempt.progress.tail
    return BuildOutcome(
        step=attempt.step,
        state=state,
        seconds=attempt.seconds,
        rule=rule,
        message=shortened(message, _LONGEST),
        log=str(attempt.log),
        outputs=outputs,
        tail=tuple(shortened(line, _LONGEST) for line in tail),
        where=attempt.progress.where,
    )


def failed_by(error: str, attempt: Attempt) -> BuildOutcome:
    """Return the outcome of an attempt that an error of ours or of a tool ended."""
    return _ended(attempt, BuildState.FAILED, error)


def sentence(outcome: BuildOutcome) -> str:
    """Return the message about a step: one line for success, else with the way to go on."""
    name, rule = outcome.step.id, outcome.rule
    took = clock(outcome.seconds)
    if outcome.state is BuildState.BUILT:
        at = f" on {outcome.where}" if outcome.where else ""
        local = outcome.step.local_packages
        mark = f"; not for publishing: CUDA packages of {local}" if local else ""
        return f"{name}: built in {took}{at}: {', '.join(outcome.outputs)}{mark}"
    if outcome.state in {BuildState.NOT_STARTED, BuildState.INTERRUPTED}:
        return f"{name}: {outcome.state}: {outcome.message}"
    if rule is None:
        tail = "".join(f"    {line}\n" for line in outcome.tail)
        return (
            f"{name}: failed after {took} for a reason that no log rule names "
            f"({outcome.message}); the last lines:\n{tail}  whole log: {outcome.log}"
        )
    return (
        f"{name}: {outcome.state} after {took}: {rule.meaning} ({rule.id})\n"
        f"  line of the log: {outcome.message}\n"
        f"  what to do: {rule.fix.replace('LOG', outcome.log)}\n"
        f"  whole log: {outcome.log}"
    )


def clock(seconds: float) -> str:
    """Return a duration as `0:07`, `12:34` or `2:34:56`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class BuildRecord:
    """Writes what happens to builds into the ledger.

    A ledger that cannot be written ends no build: the store has the result.
    """

    def __init__(self, root: Path, backend: str, say: Callable[[str], None]) -> None:
        self.ledger = Ledger(root)
        self.backend = backend
        self.say = say

    def started(self, attempt: Attempt, cores: int) -> None:
        """Record that an attempt begins."""
        step = attempt.step
        release, name = step.subject
        event = Started(
            at=now(),
            release=release,
            variant=name,
            digest=step.digest,
            attempt=attempt.id,
            backend=self.backend,
            derivation=step.derivation.drv_path if step.derivation else "",
            log=str(attempt.log),
            cores=cores,
            shared=step.reads_seeds,
        )
        self._append(event)

    def ended(self, attempt: Attempt, outcome: BuildOutcome, peak_memory: int) -> None:
        """Record what became of an attempt, and report a cache that had too little."""
        step = attempt.step
        if attempt.lost_log:
            self.say(f"{step.id}: its log is incomplete: {attempt.lost_log}")
        release, name = step.subject
        hits, misses = self._cache_counts(attempt)
        expected = _MISSES["gpu" if step.variant.gpu else "cpu-only"]
        if step.reads_seeds and misses > 5 + expected * (hits + misses):
            self.say(
                f"{step.id}: {misses} of {hits + misses} objects were not in its seeds; "
                f"something differs that should not. {outcome.log} names the files; compare "
                f"flags and hooks: {_compared(step)}"
            )
        event = Ended(
            at=now(),
            release=release,
            variant=name,
            digest=step.digest,
            attempt=attempt.id,
            outcome=_RECORDED[outcome.state],
            seconds=round(outcome.seconds, 3),
            outputs=outcome.outputs,
            cause=outcome.cause,
            message=outcome.message,
            steps=attempt.progress.total,
            peak_memory=peak_memory,
            where=outcome.where,
            shared=step.reads_seeds,
            cache_hits=hits,
            cache_misses=misses,
            local_packages=step.local_packages,
        )
        self._append(event)

    def _cache_counts(self, attempt: Attempt) -> tuple[int, int]:
        """Return the hits and misses that nix/compiler_cache.sh printed last."""
        try:
            descriptor = files.open_below(self.ledger.root, attempt.log)
            with os.fdopen(descriptor, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _STATISTICS))
                found = _CACHE.findall(log.read())
        except (OSError, LinkError):
            return 0, 0
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)

    def _append(self, event: Started | Ended) -> None:
        try:
            self.ledger.append(event)
        except WriteError as error:
            self.say(f"{event.variant}: not recorded: {error}")


def _compared(step: Step) -> str:
    """Return the command that shows the derivations of a build and of its seeds."""
    found = [step.derivation, *step.derivation.seeds.values()] if step.derivation else []
    return store.show_derivations_command([derivation.drv_path for derivation in found])
