"""The progress of running builds, in lines that stay."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Final

from build_pytorch.base.console import Clock, Screen, clock
from build_pytorch.build.build_attempt import BuildAttempt
from build_pytorch.build.usual_times import UsualTime

_QUIET: Final = 300.0  #: seconds without news after which a line is repeated


class BuildDisplay:
    """Shows builds on a screen. `usual`: times by name of the step."""

    def __init__(
        self, screen: Screen, usual: Mapping[str, UsualTime], now: Clock = time.monotonic
    ) -> None:
        self.screen = screen
        self.usual = usual
        self.now = now
        self._shown: dict[str, tuple[str, int, float]] = {}
        """Phase, tenth of the steps and time of the last line, by attempt."""

    def say(self, text: str) -> None:
        """Print lines, with control characters escaped. Builds go on without a terminal."""
        with contextlib.suppress(OSError):
            self.screen.line(text.expandtabs())

    def show(self, attempts: Iterable[BuildAttempt]) -> None:
        """Print a line for a new phase, another tenth of the steps, or a long time without."""
        now = self.now()
        for attempt in attempts:
            reader, usual = attempt.reader, self.usual.get(attempt.step.name)
            phase = reader.phase or "waiting"
            if phase == "dependencies":
                phase += f": {reader.dependency}"
            tenth = 10 * reader.done // reader.total if reader.total else 0
            before, shown_tenth, when = self._shown.setdefault(attempt.id, ("waiting", 0, now))
            if (phase, tenth) == (before, shown_tenth) and now - when < _QUIET:
                continue
            self._shown[attempt.id] = (phase, tenth, now)
            steps = f" step {reader.done:,} of {reader.total:,}" if reader.total else ""
            parts = [f"{phase}{steps}", clock(attempt.seconds), usual.text if usual else ""]
            self.say(f"{attempt.step.package.id}: {', '.join(filter(None, parts))}")
