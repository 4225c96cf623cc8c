"""The display of running builds, and how long they still take."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from build_pytorch.base.console import Clock, Screen, clock, safe
from build_pytorch.build.build_process import Attempt
from build_pytorch.matrix.model import CompanionPackage, Package
from build_pytorch.results.ledger import AnyEvent, Ended

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_EVERY: Final = 0.25  #: seconds between two updates of the live table
_QUIET: Final = 300.0  #: seconds without news after which a plain line is repeated


class BuildDisplay:
    """Shows builds on a stream while its context lasts.

    `history` has the seconds of earlier builds by subject.
    """

    def __init__(
        self, screen: Screen, history: Mapping[tuple[str, str], float], now: Clock = time.monotonic
    ) -> None:
        self.screen = screen
        self.history = history
        self.now = now
        self._live: Live | None = None
        self._next = 0.0
        self._shown: dict[str, tuple[str, int, float]] = {}
        """Phase, tenth of the steps and time of the last plain line, by attempt."""

    def __enter__(self) -> Self:
        """Begin the live table where the stream is a terminal."""
        if self.screen.stream.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console  # slow to import
            from rich.live import Live

            console = Console(file=self.screen.stream, no_color=not self.screen.colour)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live table."""
        if self._live:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._live.stop()

    def say(self, text: str) -> None:
        """Print lines that stay, with control characters escaped."""
        text = text.expandtabs()
        try:
            if self._live:
                self._live.console.print(safe(text), markup=False, highlight=False, soft_wrap=True)
            else:
                self.screen.line(text)
        except OSError:  # the terminal may be gone; builds go on
            self._live = None

    def show(self, attempts: Iterable[Attempt]) -> None:
        """Show how far every build is, at most every quarter of a second."""
        now = self.now()
        if now < self._next:
            return
        self._next = now + _EVERY
        if self._live is None:
            for attempt in attempts:
                self._show_line(attempt, now)
            return
        try:
            self._live.update(self._table(attempts), refresh=True)
        except OSError:
            self._live = None

    def _table(self, attempts: Iterable[Attempt]) -> Table:
        from rich.table import Table  # slow to import
        from rich.text import Text

        table = Table.grid(padding=(0, 2), expand=True)
        for _ in range(4):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for attempt in attempts:
            message = attempt.progress.message[:500].expandtabs()
            cells = [attempt.step.id, *self._cells(attempt), message]
            table.add_row(*(Text(safe(cell)) for cell in cells))
        return table

    def _show_line(self, attempt: Attempt, now: float) -> None:
        """Print a line for a new phase, another tenth of the steps, or a long time without."""
        progress = attempt.progress
        tenth = 10 * progress.done // progress.total if progress.total else 0
        phase, shown_tenth, when = self._shown.setdefault(attempt.id, ("", 0, now))
        if (progress.phase, tenth) == (phase, shown_tenth) and now - when < _QUIET:
            return
        self._shown[attempt.id] = (progress.phase, tenth, now)
        self.say(f"{attempt.step.id}: {', '.join(filter(None, self._cells(attempt)))}")

    def _cells(self, attempt: Attempt) -> tuple[str, str, str]:
        """Return the phase with its steps, the time it took, and an estimate of the rest."""
        progress = attempt.progress
        steps = f" [{progress.done}/{progress.total}]" if progress.total else ""
        building = progress.seconds_at_pace(time.monotonic())
        before = self.history.get(attempt.step.subject)
        seconds = remaining(attempt.seconds, progress.done, progress.total, building, before)
        left = "" if seconds is None else f"about {clock(seconds)} left"
        return f"{progress.phase or 'waiting'}{steps}", clock(attempt.seconds), left


# --- time left ---

LONGEST_BUILD: Final = 1e8  #: seconds; a longer build in the ledger is a mistake
_ENOUGH: Final = 0.03  #: the part of ninja's steps after which their pace is used for an estimate


class TimedBuild(Struct, frozen=True):
    """A build whose duration is to be estimated."""

    subject: tuple[str, str]  #: release and name in events of the ledger
    reads_seeds: bool
    kind: tuple[str, str, str] | None = None  #: equal for builds that take about as long, if any


def kind_of(package: Package) -> tuple[str, str, str]:
    """Return release, group and companion: packages with the same ones take about as long."""
    name = package.name if isinstance(package, CompanionPackage) else ""
    return package.release_name, package.variant.group.title, name


def earlier_seconds(
    events: Iterable[AnyEvent], builds: Iterable[TimedBuild]
) -> dict[tuple[str, str], float]:
    """Return the seconds of the last finished build by subject: its own, else one of its kind.

    The events of a subject are oldest first. Builds with and without seeds are different.
    """
    wanted = {build.subject: build for build in builds}
    of_subject: dict[tuple[str, str], float] = {}
    of_kind: dict[object, float] = {}
    for event in events:
        build = wanted.get(event.subject)
        if not (build and isinstance(event, Ended) and event.outcome == "built" and event.steps):
            continue
        if event.shared == build.reads_seeds and 0 <= event.seconds < LONGEST_BUILD:
            of_subject[build.subject] = event.seconds
            if build.kind:
                of_kind[build.kind, build.reads_seeds] = event.seconds
    for subject, build in wanted.items():
        if seconds := of_kind.get((build.kind, build.reads_seeds)):
            of_subject.setdefault(subject, seconds)
    return of_subject


def remaining(
    elapsed: float, done: int, total: int, building: float, before: float | None
) -> float | None:
    """Estimate the seconds that a build still takes; None without data.

    From ninja's pace, `done` of `total` steps in `building` seconds, and from the seconds of an
    earlier build (`before`). The more steps are done, the more their pace counts.
    """
    part = done / total if total else 0.0
    by_pace = building / part - building if part >= _ENOUGH and building else None
    by_history = None if before is None else max(0.0, before - elapsed)
    if by_pace is None or by_history is None:
        return by_history if by_pace is None else by_pace
    return part * by_pace + (1 - part) * by_history
