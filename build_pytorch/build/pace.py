"""How long a build still takes: by the pace of its compilers and by earlier builds of its kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from build_pytorch.base.console import clock

_MARK_EVERY: Final = 10.0  #: seconds between two marks of how many steps are done
_RECENT: Final = 300.0  #: seconds of compiling that set the pace, or a quarter of all if longer
_PARTS: Final = 4  #: parts of the later half of the compiling, whose paces are the range
_HIT: Final = 5.0
"""So many times the usual pace is that of a compiler cache, which hands out hundreds of objects
in seconds: after a restart before anything is compiled."""

_SILENCE: Final = 300.0  #: seconds without a step after which the machine may do something else
_ENOUGH: Final = 20  #: compiled steps from which there is a pace
_MARGIN: Final = 1.5
"""By which a range is wider than the paces so far. In two builds of a whole PyTorch, on a machine
whose load was 2 to 18, six of ten ranges then held what the next 15 and 30 minutes brought."""

_CURVE_MARGIN: Final = 1.3
"""The same with the curve of an earlier build, by which the pace is even. With real times of 1,560
steps in other orders and loads: docs/explanation/real-build.md."""

_VAGUE: Final = 4.0  #: times the slowest pace, from which on the fastest says nothing
_IN_MINUTES: Final = 600.0  #: seconds from which a duration is shown in whole minutes

_POINTS: Final = 100
_LONGEST: Final = 1e7  #: seconds of a build; more is no time
_WHOLE: Final = 0.98  #: part of its steps that a whole build has done at least

Curve = tuple[float, ...]
"""`curve` of a build in the ledger: when each hundredth of its steps was done; empty: unknown.

Steps of PyTorch are not alike: files of registered operators take minutes, most others seconds.
"""

_Segment = tuple[float, float]
"""Seconds, and the steps that ended in them."""


class Duration(Struct, frozen=True):
    """Seconds that something takes: likely, and the range in which it is expected."""

    low: float
    likely: float
    high: float

    def changed(self, factor: float, seconds: float = 0.0) -> Duration:
        """Return it times a factor and with seconds added, never less than 0."""
        return Duration(*(max(0.0, x * factor + seconds) for x in msgspec.structs.astuple(self)))

    def plus(self, other: Duration) -> Duration:
        """Return the sum of two times, each range as a whole."""
        return Duration(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def mixed(self, other: Duration, part: float) -> Duration:
        """Return the mean with another one, which counts as that part of it."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Duration(*((1 - part) * own + part * new for own, new in pairs))

    @property
    def words(self) -> str:
        """Such as `about 1:20:00`, or `1:00:00 to 1:40:00` if the range is wide."""
        if self.high <= 1.25 * self.low:
            return f"about {_rounded(self.likely)}"
        return f"{_rounded(self.low)} to {_rounded(self.high)}"


class Pace:
    """When how many steps of ninja were done, on the caller's clock."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []
        self._last = (0.0, 0)

    def see(self, now: float, done: int) -> None:
        """Take in that so many steps are done."""
        self._last = (now, done)
        if not self._marks or now - self._marks[-1][0] >= _MARK_EVERY:
            self._marks.append(self._last)

    @property
    def done(self) -> int:
        """The steps that are done."""
        return self._last[1]

    def silent(self, now: float) -> float:
        """Return the seconds since the last step; 0 if that is usual."""
        seconds = now - self._last[0]
        return seconds if self._marks and seconds > _SILENCE else 0.0

    def curve(self, total: int, hits: int) -> Curve:
        """Return the curve of a build that ended, if it compiled most of its steps itself.

        `hits`: the objects that came from a cache. The pace does not tell them from the first
        hundreds of PyTorch's steps, which are quick. Ninja leaves out steps whose input did not
        change: of 1,559, the last one was 1,555. Times in which nothing was done for long count as
        none: the machine slept.
        """
        done = self.done
        if done < max(1, _WHOLE * total) or hits > done / 10:
            return ()
        points: list[float] = []
        seconds = 0.0
        begin = (self._marks[0][0], 0)  # the time of the first steps is not known
        for before, after in pairwise([begin, *self._marks, self._last]):
            took = after[0] - before[0] if after[0] - before[0] <= _SILENCE else 0.0
            while len(points) < _POINTS and after[1] >= (len(points) + 1) * done / _POINTS:
                missing = (len(points) + 1) * done / _POINTS - before[1]
                points.append(round(seconds + took * missing / max(1, after[1] - before[1]), 1))
            seconds += took
        return tuple(points) if seconds >= _RECENT else ()

    def _segments(
        self, now: float, worth: Callable[[int], float] = float
    ) -> tuple[list[_Segment], list[_Segment]]:
        """Return the recent segments, and those of the whole build in which compilers ran."""
        ends = [*self._marks, (max(now, self._last[0]), self._last[1])]
        every = [
            (after[0] - before[0], worth(after[1]) - worth(before[1]))
            for before, after in pairwise(ends)
        ]
        moving = [segment for segment in every if segment[0] <= _SILENCE]
        recent = _latest(moving, max(_RECENT, _seconds(moving) / 4))
        usual = _usual(moving, _seconds(moving) / 2)  # also when others slow the machine down
        fastest = _HIT * max(usual, _per_second(recent))
        return recent, [s for s in moving if s[1] <= fastest * s[0]]

    def from_cache(self, now: float) -> int:
        """Return how many steps were not compiled, as far as the pace shows it."""
        return self.done - round(sum(steps for _, steps in self._segments(now)[1]))

    def left(self, now: float, total: int, curve: Curve = ()) -> Duration | None:
        """Return the seconds for the rest if it is compiled; None if the pace is unknown.

        `curve`: of an earlier build, by which steps count as much as they take.
        """
        recent, compiled = self._segments(now, lambda done: _worth(done, total, curve))
        if _seconds(compiled) < _RECENT or sum(n for _, n in compiled) < _ENOUGH:
            return None
        later = _latest(compiled, _seconds(compiled) / 2)
        paces = [_per_second(part) for part in _parts(later, _seconds(later) / _PARTS)]
        latest = _per_second([s for s in recent if s in compiled])
        usual = _per_second(compiled) if curve else latest
        paces = [pace for pace in (*paces, usual, latest) if pace]
        if self.silent(now) or not latest:
            return None
        if max(paces) > _VAGUE * min(paces):
            return None
        rest = max(0.0, total - _worth(self.done, total, curve))
        margin = _CURVE_MARGIN if curve else _MARGIN
        low, high = max(paces) * margin, min(paces) / margin
        return Duration(rest / low, rest / usual, rest / high)


class Earlier(Struct, frozen=True):
    """What earlier builds of a kind say: how long they took, and the curve of one."""

    seconds: Duration | None = None
    curve: Curve = ()


def time_left(
    pace: Pace, total: int, now: float, elapsed: float, earlier: Earlier
) -> Duration | None:
    """Estimate the seconds that a build of so many steps (0: unknown) still takes.

    From the pace of its steps and from earlier builds. The more is done, the more the pace counts.
    None without data.
    """
    part = _worth(pace.done, total, earlier.curve) / total if total else 0.0
    by_pace = pace.left(now, total, earlier.curve)
    if not (before := earlier.seconds):
        return by_pace
    is_all_from_cache = elapsed < part * before.low / _HIT  # then no step shows a compiler's pace
    is_from_cache = is_all_from_cache or pace.from_cache(now) > pace.done / 10
    history = before.changed(1 - part) if is_from_cache else before.changed(1, -elapsed)
    return history.mixed(by_pace, part) if by_pace else history


def is_curve(curve: Curve) -> bool:
    """Whether a curve of a ledger, which another machine may have written, is one."""
    points = (0.0, *curve)
    return (
        len(curve) == _POINTS
        and all(before <= after < math.inf for before, after in pairwise(points))
        and 1 <= curve[-1] <= _LONGEST
    )


def _worth(done: int, total: int, curve: Curve) -> float:
    """Return the part of the time that so many steps take, as a number of all steps."""
    if not curve:
        return float(done)
    points = (0.0, *curve)
    place = min(done / total, 1.0) * _POINTS
    index = min(int(place), _POINTS - 1)
    seconds = points[index] + (place - index) * (points[index + 1] - points[index])
    return total * seconds / points[-1]


def _seconds(segments: Sequence[_Segment]) -> float:
    return sum(seconds for seconds, _ in segments)


def _per_second(segments: Sequence[_Segment]) -> float:
    return sum(steps for _, steps in segments) / max(1e-9, _seconds(segments))


def _usual(segments: Sequence[_Segment], seconds: float) -> float:
    """Return the pace below which so many seconds were spent."""
    paces = sorted((steps / max(1e-9, took), took) for took, steps in segments)
    sums = itertools.accumulate(took for _, took in paces)
    return next((pace for (pace, _), s in zip(paces, sums, strict=True) if s >= seconds), 0.0)


def _latest(segments: Sequence[_Segment], seconds: float) -> list[_Segment]:
    """Return the last segments that together have so many seconds."""
    found: list[_Segment] = []
    for segment in reversed(segments):
        if _seconds(found) >= seconds:
            break
        found.append(segment)
    return found[::-1]


def _parts(segments: Sequence[_Segment], seconds: float) -> list[list[_Segment]]:
    """Return the segments in parts of at least so many seconds; a shorter rest is left out."""
    parts: list[list[_Segment]] = [[]]
    for segment in segments:
        parts[-1].append(segment)
        if _seconds(parts[-1]) >= seconds:
            parts.append([])
    return parts[:-1]


def _rounded(seconds: float) -> str:
    """Return a duration, a long one in whole minutes."""
    return clock(60 * round(seconds / 60) if seconds >= _IN_MINUTES else seconds)
