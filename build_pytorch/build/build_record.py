"""The records of runs: the ledger's lines about builds, and the lock of a checkout."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from build_pytorch.base import paths
from build_pytorch.base.errors import WriteError
from build_pytorch.build.build_outcome import BuildOutcome
from build_pytorch.build.build_process import Attempt
from build_pytorch.matrix.model import Variant
from build_pytorch.results.ledger import Ended, Ledger, Started, now


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
        event = Started(
            at=now(),
            release=step.variant.release_name,
            variant=step.variant.id,
            digest=step.digest,
            attempt=attempt.id,
            backend=self.backend,
            derivation=step.derivation.drv_path if step.derivation else "",
            log=str(attempt.log),
            cores=cores,
        )
        self._append(event)

    def ended(self, attempt: Attempt, outcome: BuildOutcome, peak_memory: int) -> None:
        """Record what became of an attempt."""
        if attempt.lost_log:
            self.say(f"{outcome.variant.id}: its log is incomplete: {attempt.lost_log}")
        event = Ended(
            at=now(),
            release=outcome.variant.release_name,
            variant=outcome.variant.id,
            digest=attempt.step.digest,
            attempt=attempt.id,
            outcome=outcome.state if outcome.state != "not started" else "failed",
            seconds=round(outcome.seconds, 3),
            outputs=outcome.outputs,
            cause=outcome.rule.id if outcome.rule else "",
            message=outcome.message[:500],
            steps=attempt.progress.total,
            peak_memory=peak_memory,
            where=outcome.where,
        )
        self._append(event)

    def _append(self, event: Started | Ended) -> None:
        try:
            self.ledger.append(event)
        except WriteError as error:
            self.say(f"{event.variant}: not recorded: {error}")


def earlier_seconds(root: Path, variants: Sequence[Variant]) -> dict[str, float]:
    """Return the seconds of the last build by package: of the variant, else of its group."""
    own: dict[str, float] = {}
    of_group: dict[str, float] = {}
    known = {(v.release_name, v.id): v for v in variants}
    for event in Ledger(root).events():
        variant = known.get(event.subject)
        if variant and isinstance(event, Ended) and event.outcome == "built" and event.steps:
            own[variant.package] = of_group[variant.group.title] = event.seconds
    return {
        v.package: own.get(v.package, of_group[v.group.title])
        for v in variants
        if v.group.title in of_group
    }


@contextlib.contextmanager
def only_run(root: Path) -> Iterator[None]:
    """Hold the lock of the one run that builds or publishes in a checkout. Raises WriteError.

    Two builds would use memory that each counts on, two publications publish a result twice.
    The kernel drops the lock when the process ends.
    """
    folder = root / paths.STATE
    try:
        paths.make_state(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(folder / "builds.lock", flags, 0o666)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read().strip() or "unknown"
            raise WriteError(
                f"{root}: another run builds or publishes here (process {owner}); "
                "wait for it, or work in another checkout"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
