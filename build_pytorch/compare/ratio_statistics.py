"""Ratios of seconds, their intervals and verdicts: pure functions over numbers.

A ratio is the time of A divided by the time of B: below 1, A is faster.
"""

from __future__ import annotations

import functools
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
_LEVEL: Final = 0.95
_CHANCE: Final = 0.01
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
    times = [[(math.log(a[name]), math.log(b[name])) for a, b in rounds] for name in names]
    ratios = [[a - b for a, b in pairs] for pairs in times]
    draw, count = random.Random(_SEED), len(rounds)  # noqa: S311 - the same result each time
    drawn: list[list[float]] = [[] for _ in names]
    means = []
    for _ in range(_RESAMPLES):
        chosen = draw.choices(range(count), k=count)
        for ratio, medians in zip(ratios, drawn, strict=True):
            medians.append(statistics.median([ratio[index] for index in chosen]))
        means.append(statistics.fmean(medians[-1] for medians in drawn))
    centres = [statistics.median(ratio) for ratio in ratios]
    found = {
        name: _estimate(centre, medians, pairs, len(names))
        for name, centre, medians, pairs in zip(names, centres, drawn, times, strict=True)
    }
    whole = [
        (statistics.fmean(a for a, _ in pairs), statistics.fmean(b for _, b in pairs))
        for pairs in zip(*times, strict=True)
    ]
    return found, _estimate(statistics.fmean(centres), means, whole, 1)


def _estimate(
    centre: float, drawn: Sequence[float], times: Sequence[tuple[float, float]], questions: int
) -> Estimate:
    """Return the estimate of a logarithm from its values in resamples.

    `times`: logarithms of the seconds of A and B in each round. `questions`: how many verdicts are
    given together. `faster` and `slower` need two things, because few rounds on a busy machine
    mislead each alone: an interval outside 3 % that is widened for all questions (Bonferroni), and
    ranks of A's and B's processes that chance explains in less than 1 of 100 comparisons.
    """
    ordered, tail = sorted(drawn), (1 - _LEVEL) / 2
    low, high = (ordered[round(p * (len(ordered) - 1))] for p in (tail, 1 - tail))
    normal = statistics.NormalDist()
    wider = normal.inv_cdf(1 - tail / questions) / normal.inv_cdf(1 - tail)
    limit, verdict = math.log1p(EQUAL), Verdict.NOISY
    if -limit < low and high < limit:
        verdict = Verdict.EQUAL
    elif chance_of_ranks(times) < _CHANCE / questions:
        if centre + (low - centre) * wider > limit:
            verdict = Verdict.SLOWER
        elif centre + (high - centre) * wider < -limit:
            verdict = Verdict.FASTER
    return Estimate(ratio=math.exp(centre), low=math.exp(low), high=math.exp(high), verdict=verdict)


def chance_of_ranks(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the probability that equal builds differ so much: the exact rank-sum test, two-sided.

    Mann and Whitney, 1947. With 8 rounds it is 2 / 12,870 at least.
    """
    count = len(pairs)
    wins = sum(a > b for a, _ in pairs for _, b in pairs)
    ways = _ways_of_ranks(count)
    return min(1.0, 2 * sum(ways[: min(wins, count * count - wins) + 1]) / sum(ways))


@functools.cache
def _ways_of_ranks(count: int) -> list[int]:
    """Return in how many orders of `count` values of each kind 0, 1, 2, ... pairs are inverted.

    They are the coefficients of the Gaussian binomial (2 n over n).
    """
    ways = [1] + [0] * count**2
    for number in range(1, count + 1):
        for wins in range(count**2, count + number - 1, -1):
            ways[wins] -= ways[wins - count - number]
        for wins in range(number, count**2 + 1):
            ways[wins] += ways[wins - number]
    return ways
