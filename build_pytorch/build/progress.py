"""What people see of running builds: one live line each on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from build_pytorch.base.console import Screen, visible
from build_pytorch.build.jobs import Attempt, Job

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_EVERY: Final = 0.25
"""Seconds between two looks of the live lines."""

_QUIET: Final = 300.0
"""Seconds after which a build that says nothing new is told of again in a plain log."""

_TRUSTED: Final = 0.03
"""The part of ninja's steps that has to be done before its pace tells anything."""


class Display:
    """Live lines or plain ones, whichever the stream can show. A context."""

    def __init__(self, screen: Screen, history: Mapping[str, float]) -> None:
        self.screen = screen
        self.history = history
        """Seconds that earlier builds took, by package name."""
        self._live: Live | None = None
        self._last = 0.0
        self._told: dict[str, tuple[str, int, float]] = {}

    def __enter__(self) -> Self:
        """Take the terminal's last lines, where there is a terminal."""
        if self.screen.stream.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.screen.stream, no_color=not self.screen.colour)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        if self._live:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        try:
            if self._live:
                self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                self.screen.line(text)
        except OSError:  # the terminal may be gone; builds go on
            self._live = None

    def show(self, jobs: Sequence[Job]) -> None:
        """Show how far every build is, not more often than eyes can follow."""
        now = time.monotonic()
        if now - self._last < _EVERY:
            return
        self._last = now
        if self._live is None:
            for job in jobs:
                for attempt in job.attempts:
                    self._tell(job, attempt, now)
            return
        try:
            self._live.update(self._table(jobs), refresh=True)
        except OSError:
            self._live = None

    def _table(self, jobs: Sequence[Job]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2), expand=True)
        for _ in range(4):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for job in jobs:
            for attempt in job.attempts:
                progress = attempt.progress
                steps = f"[{progress.done}/{progress.total}]" if progress.total else ""
                cells = (
                    attempt.step.variant.id,
                    f"{progress.phase or 'waiting'} {steps}",
                    clock(job.seconds(attempt)),
                    self._left(job, attempt),
                    visible(progress.message),
                )
                table.add_row(*(Text(cell) for cell in cells))
        return table

    def _tell(self, job: Job, attempt: Attempt, now: float) -> None:
        """A plain line where a build entered a phase, did another tenth, or was quiet for long."""
        progress = attempt.progress
        tenth = 10 * progress.done // progress.total if progress.total else 0
        phase, told_tenth, when = self._told.get(attempt.id, ("", 0, now))
        if (progress.phase, tenth) == (phase, told_tenth) and now - when < _QUIET:
            self._told.setdefault(attempt.id, (phase, told_tenth, when))
            return
        self._told[attempt.id] = (progress.phase, tenth, now)
        steps = f" [{progress.done}/{progress.total}]" if progress.total else ""
        left = self._left(job, attempt)
        self.say(
            f"{attempt.step.variant.id}: {progress.phase or 'waiting'}{steps}, "
            f"{clock(job.seconds(attempt))}{f', {left}' if left else ''}"
        )

    def _left(self, job: Job, attempt: Attempt) -> str:
        seconds = remaining(
            job.seconds(attempt),
            attempt.progress.done,
            attempt.progress.total,
            time.monotonic() - attempt.progress.first_step,
            self.history.get(attempt.step.variant.package),
        )
        return "" if seconds is None else f"about {clock(seconds)} left"


def remaining(
    elapsed: float, done: int, total: int, building: float, before: float | None
) -> float | None:
    """Seconds that a build may still take, or None where nothing tells.

    From ninja's pace, `done` of `total` steps in `building` seconds, and from the seconds that an
    earlier build took. The more steps are done, the more their pace counts.
    """
    part = done / total if total else 0.0
    by_pace = building / part - building if part >= _TRUSTED else None
    by_history = None if before is None else max(0.0, before - elapsed)
    if by_pace is None or by_history is None:
        return by_history if by_pace is None else by_pace
    return part * by_pace + (1 - part) * by_history


def clock(seconds: float) -> str:
    """`0:07`, `12:34`, `2:34:56`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
