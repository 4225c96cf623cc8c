"""The display of running builds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self

from build_pytorch.base.console import Clock, Screen, clock, visible
from build_pytorch.build.build_process import Attempt
from build_pytorch.build.usual_times import UsualTime

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_EVERY: Final = 0.25  #: seconds between two updates of the live table
_QUIET: Final = 300.0  #: seconds without news after which a plain line is repeated


class BuildDisplay:
    """Shows builds on a stream while its context lasts. `usual`: times by name of the step."""

    def __init__(
        self, screen: Screen, usual: Mapping[str, UsualTime], now: Clock = time.monotonic
    ) -> None:
        self.screen = screen
        self.usual = usual
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
                self._live.console.print(
                    visible(text), markup=False, highlight=False, soft_wrap=True
                )
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
            message = "".join([*attempt.progress.tail][-1:]).strip()[:500].expandtabs()
            cells = [attempt.step.id, *self._cells(attempt), message]
            table.add_row(*(Text(visible(cell)) for cell in cells))
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
        """Return the phase with ninja's counter, the time it took, and what it usually takes."""
        progress, usual = attempt.progress, self.usual.get(attempt.step.name)
        phase = progress.phase or "waiting"
        if progress.total:
            phase += f" step {progress.done:,} of {progress.total:,}"
        return phase, clock(attempt.seconds), usual.text if usual else ""
