"""What became of one build: the decision, the record in the ledger, the message."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import clock, shortened
from build_pytorch.base.errors import LinkError, WriteError
from build_pytorch.build.build_backend import Step
from build_pytorch.build.build_process import KILLED, Attempt
from build_pytorch.build.first_error import fails_again
from build_pytorch.build.log_reader import ends_below
from build_pytorch.build.log_rules import OUT_OF_MEMORY, RULES_BY_ID, LogRule
from build_pytorch.nix import store
from build_pytorch.results import ledger
from build_pytorch.results.ledger import Event

_LONGEST: Final = 500  #: characters of a line of the log that are shown and recorded
_STATISTICS: Final = 8 << 20  #: bytes at the end of a log that hold the counts of the cache
_CACHE: Final = re.compile(rb"build-pytorch: compiler cache: (\d{1,9}) hits, (\d{1,9}) misses")


def cache_counts(log: bytes) -> tuple[int, int]:
    """Return the hits and misses that nix/compiler_cache.sh printed last; 0 and 0 if none."""
    hits, misses = (_CACHE.findall(log) or [(0, 0)])[-1]
    return int(hits), int(misses)


class BuildState(StrEnum):
    """What became of a step of the plan, as people and the ledger read it."""

    BUILT = "built"
    FAILED = "failed"
    STOPPED = "stopped"  #: by a log rule
    INTERRUPTED = "interrupted"  #: by the user, or with --fail-fast for another build
    NOT_STARTED = "not started"  #: never in the ledger


class BuildOutcome(Struct, frozen=True, kw_only=True):
    """What became of one step of the plan."""

    step: Step
    state: BuildState
    seconds: float = 0.0
    rule: LogRule | None = None
    message: str = ""
    log: str = ""
    outputs: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()  #: the last lines of the log, if no rule names the failure
    where: str = ""
    phase: str = ""  #: in which its log ended
    kept: str = ""  #: folder of a failed build that Nix kept

    @property
    def cause(self) -> str:
        """The id of the log rule that names the failure, or an empty text."""
        return self.rule.id if self.rule else ""


def decide(
    attempt: Attempt, code: int, outputs: tuple[str, ...], *, was_ended: bool
) -> BuildOutcome:
    """Decide what became of an attempt whose program ended with an exit code.

    `was_ended`: the run ended the program, for a signal or with --fail-fast.
    """
    no_result = f"no error, and no new result-{attempt.step.name}; remove that link and run again"
    ending = f"exit code {code}" if code else no_result
    if stopped := attempt.stopped:  # a result that was built nevertheless is wrong
        return outcome_of(attempt, BuildState.STOPPED, stopped.text, stopped.rule)
    if outputs:
        return outcome_of(attempt, BuildState.BUILT, outputs=outputs)
    if was_ended:
        return outcome_of(attempt, BuildState.INTERRUPTED, ending)
    if cause := attempt.progress.cause():
        return outcome_of(attempt, BuildState.FAILED, cause.text, cause.rule)
    if code in KILLED:
        return outcome_of(attempt, BuildState.FAILED, ending, RULES_BY_ID[OUT_OF_MEMORY])
    return outcome_of(attempt, BuildState.FAILED, attempt.progress.first_error.text or ending)


def outcome_of(
    attempt: Attempt,
    state: BuildState,
    message: str = "",
    rule: LogRule | None = None,
    outputs: tuple[str, ...] = (),
) -> BuildOutcome:
    """Return the outcome of an attempt that has ended."""
    return BuildOutcome(
        step=attempt.step,
        state=state,
        seconds=attempt.seconds,
        rule=rule,
        message=shortened(message, _LONGEST),
        log=str(attempt.log),
        outputs=outputs,
        tail=() if rule else tuple(shortened(line, _LONGEST) for line in attempt.progress.tail),
        where=attempt.progress.where,
        phase=attempt.progress.phase,
        kept=attempt.progress.kept,
    )


def sentence(outcome: BuildOutcome) -> str:
    """Return the message about a step: one line for success, else with the way to go on."""
    name, rule = outcome.step.id, outcome.rule
    took = clock(outcome.seconds)
    if outcome.state is BuildState.BUILT:
        at = f" on {outcome.where}" if outcome.where else ""
        return f"{name}: built in {took}{at}: {', '.join(outcome.outputs)}"
    if outcome.state in {BuildState.NOT_STARTED, BuildState.INTERRUPTED}:
        return f"{name}: {outcome.state}: {outcome.message}"
    kept = ""
    if outcome.kept and not outcome.where:
        commands = store.shell_commands(outcome.step.package.path, outcome.kept)
        kept = "".join(f"\n    {command}" for command in commands)
        kept = f"\n  its folder is kept; to go on in it by hand:{kept}"
    if rule is None:
        tail = "".join(f"    {line}\n" for line in outcome.tail)
        phase = f" in the phase {outcome.phase}" if outcome.phase else ""
        return (
            f"{name}: failed after {took}{phase} for a reason that no log rule names "
            f"({outcome.message}); the last lines:\n{tail}  whole log: {outcome.log}{kept}"
        )
    return (
        f"{name}: {outcome.state} after {took}: {rule.meaning} ({rule.id})\n"
        f"  line of the log: {outcome.message}\n"
        f"  what to do: {rule.advice(outcome.step.variant, outcome.log)}\n"
        f"  whole log: {outcome.log}{kept}"
    )


class BuildRecord:
    """Writes what happens to builds into the ledger.

    A ledger that cannot be written ends no build: the store has the result.
    """

    def __init__(self, root: Path, backend: str, say: Callable[[str], None]) -> None:
        self.root = root
        self.backend = backend
        self.say = say

    def started(self, attempt: Attempt, cores: int) -> None:
        """Record that an attempt begins."""
        step = attempt.step
        event = ledger.event_of(
            step.package,
            "started",
            digest=step.digest,
            attempt=attempt.id,
            backend=self.backend,
            derivation=step.derivation.drv_path if step.derivation else "",
            log=str(attempt.log),
            cores=cores,
        )
        self._append(event)

    def ended(self, attempt: Attempt, outcome: BuildOutcome) -> None:
        """Record what became of an attempt, and report an incomplete log."""
        step, progress = attempt.step, attempt.progress
        hits, misses = self._cache_counts(attempt)
        if attempt.lost_log:
            self.say(f"{step.id}: its log is incomplete: {attempt.lost_log}")
        is_failure = outcome.state in {BuildState.FAILED, BuildState.STOPPED}
        event = ledger.event_of(
            step.package,
            "ended",
            digest=step.digest,
            attempt=attempt.id,
            outcome=outcome.state.value,
            fails_again=is_failure and fails_again(outcome.cause, outcome.message),
            seconds=round(outcome.seconds, 3),
            outputs=outcome.outputs,
            cause=outcome.cause,
            message=outcome.message,
            steps=progress.total,
            where=outcome.where,
            cache_hits=hits,
            cache_misses=misses,
        )
        self._append(event)

    def _cache_counts(self, attempt: Attempt) -> tuple[int, int]:
        try:
            return cache_counts(ends_below(self.root, attempt.log, _STATISTICS)[1])
        except (OSError, LinkError):
            return 0, 0

    def _append(self, event: Event) -> None:
        try:
            ledger.append(self.root, event)
        except WriteError as error:
            self.say(f"{event.variant}: not recorded: {error}")
