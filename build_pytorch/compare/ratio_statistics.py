"""Ratios of seconds, their intervals and verdicts: pure functions over numbers.

A ratio is the time of A divided by the time of B: below 1, A is faster.
"""

from __future__ import annotations

import functools
import math
import operator
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
_CHANCE: Final = 0.005
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
    mislead each alone: an interval outside 3 %, and ranks of A's and B's processes that chance
    explains in less than 1 of 200 comparisons.
    """
    ordered, tail = sorted(drawn), (1 - _LEVEL) / 2
    low, high = (ordered[round(p * (len(ordered) - 1))] for p in (tail, 1 - tail))
    limit, verdict = math.log1p(EQUAL), Verdict.NOISY
    a, b = zip(*times, strict=True)
    if -limit < low and high < limit:
        verdict = Verdict.EQUAL
    elif low > limit and chance_of_ranks(a, b) < _CHANCE / questions:
        verdict = Verdict.SLOWER
    elif high < -limit and chance_of_ranks(b, a) < _CHANCE / questions:
        verdict = Verdict.FASTER
    return Estimate(ratio=math.exp(centre), low=math.exp(low), high=math.exp(high), verdict=verdict)


def chance_of_ranks(slower: Sequence[float], faster: Sequence[float]) -> float:
    """Return the probability that two equal builds differ so much, in either direction.

    An exact rank test of the faster half of all processes, since other work makes any process slow:
    of 2 n values the fastest has score n, the next n - 1, and the slower half 0. A build is slow if
    the sum of its scores is small. With 8 rounds the probability is 2 / 12,870 at least.
    """
    count = len(slower)
    ordered = sorted([(value, 0) for value in slower] + [(value, 1) for value in faster])
    score = sum(count - place for place, (_, side) in enumerate(ordered[:count]) if side == 0)
    ways = _ways_of_scores(count)
    return min(1.0, 2 * sum(ways[: score + 1]) / math.comb(2 * count, count))


@functools.cache
def _ways_of_scores(count: int) -> list[int]:
    """Return in how many ways `count` of twice as many processes have scores of sum 0, 1, 2, ..."""
    most = count * (count + 1) // 2
    ways = [[1] + [0] * most] + [[0] * (most + 1) for _ in range(count)]  # by number of scores
    for score in range(1, count + 1):
        for number in range(score, 0, -1):
            for total in range(score, most + 1):
                ways[number][total] += ways[number - 1][total - score]
    others = [math.comb(count, number) for number in range(count + 1)]  # any of the slower half
    return [sum(map(operator.mul, others, column)) for column in zip(*ways, strict=True)]
