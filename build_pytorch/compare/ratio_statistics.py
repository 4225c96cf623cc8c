"""Ratios of seconds, their intervals and verdicts: pure functions over numbers.

A ratio is the time of A divided by the time of B: below 1, A is faster.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.results.ledger import Verdict

EQUAL: Final = 0.03
"""Ratios from 1 / 1.03 to 1.03 are no difference."""
WIDTH: Final = 0.03
"""Width of an interval, as a share of the ratio, at which no more rounds are needed."""
_RESAMPLES: Final = 1000
_SEED: Final = 20261122

Seconds = Mapping[str, float]
"""Seconds of one call by workload, as one process measured them."""
Pair = tuple[Seconds, Seconds]
"""A round: what a process of A and a process of B measured."""


class Estimate(Struct, frozen=True, kw_only=True):
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float
    verdict: Verdict

    @property
    def is_narrow(self) -> bool:
        """Whether the interval is narrower than 3 %."""
        return self.high - self.low < WIDTH * self.ratio


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of all settings: the first of slower, too noisy, faster that one has."""
    return min(verdicts, key=list(Verdict).index, default=Verdict.NOISY)


def estimates(rounds: Sequence[Pair]) -> tuple[dict[str, Estimate], Estimate | None]:
    """Return the ratio of each workload and their geometric mean, from at least one round.

    Workloads count that every process measured; without one the mean is None. The ratio of a
    workload is the median over rounds: the two processes of a round ran one after the other, so
    that slow changes of the machine cancel. Rounds are drawn anew (bootstrap, percentiles) for all
    workloads at once, because a slow process is slow in many of them.
    """
    names = [name for name in rounds[0][0] if all(name in side for pair in rounds for side in pair)]
    if not names:
        return {}, None
    ratios = [[math.log(a[name] / b[name]) for a, b in rounds] for name in names]
    draw, count = random.Random(_SEED), len(rounds)  # noqa: S311 - the same result each time
    draws = [draw.choices(range(count), k=count) for _ in range(_RESAMPLES)]
    medians = [
        [statistics.median([ratio[index] for index in chosen]) for chosen in draws]
        for ratio in ratios
    ]
    centres = [statistics.median(ratio) for ratio in ratios]
    means = list(map(statistics.fmean, zip(*medians, strict=True)))
    found = dict(zip(names, map(_estimate, centres, medians), strict=True))
    return found, _estimate(statistics.fmean(centres), means)


def _estimate(centre: float, drawn: Sequence[float]) -> Estimate:
    """Return the estimate of a logarithm from its values in resamples.

    `equal`: the 95 % interval lies inside 3 %. `faster` and `slower`: that of 99.9 % lies outside,
    because narrower ones of eight rounds on a busy machine call equal builds different.
    """
    ordered = sorted(drawn)
    low, high = _interval(ordered, 0.95)
    lowest, highest = _interval(ordered, 0.999)
    limit, verdict = math.log1p(EQUAL), Verdict.NOISY
    if -limit < low and high < limit:
        verdict = Verdict.EQUAL
    elif lowest > limit:
        verdict = Verdict.SLOWER
    elif highest < -limit:
        verdict = Verdict.FASTER
    return Estimate(ratio=math.exp(centre), low=math.exp(low), high=math.exp(high), verdict=verdict)


def _interval(ordered: Sequence[float], level: float) -> tuple[float, float]:
    """Return the percentiles between which a share `level` of the values lies."""
    tail, last = (1 - level) / 2, len(ordered) - 1
    return ordered[round(tail * last)], ordered[round((1 - tail) * last)]
