"""Measure two builds: processes in the order A B B A, until the intervals are narrow.

A ratio is the time of A divided by the time of B: below 1, A is faster.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from build_pytorch.base.console import counted, waiting
from build_pytorch.base.errors import BuildPytorchError

ROUNDS: Final = 8  #: least number of rounds
_EQUAL: Final = 0.03  #: ratios from 1 / 1.03 to 1.03 are no difference
_WIDTH: Final = 0.03  #: width of an interval, as a share of the ratio, that is narrow
_RESAMPLES: Final = 1000
_SEED: Final = 20261122

Seconds = dict[str, Annotated[float, Meta(gt=0, le=1e6)]]
"""Seconds of one call by workload, as one process measured them."""
Round = tuple[Seconds, Seconds]
"""What a process of A and a process of B measured."""


class Verdict(StrEnum):
    """What a comparison says, the decisive ones first. A difference of less than 3 % is none."""

    SLOWER = "slower"
    NOISY = "too noisy"
    FASTER = "faster"
    EQUAL = "no difference"


class ProcessReport(Struct, frozen=True, kw_only=True):
    """The document of workloads.py: seconds of one call, or errors, by workload."""

    gpu: str
    threads: int
    seconds: Seconds
    errors: dict[str, str]


class Estimate(Struct, frozen=True, kw_only=True):
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float
    verdict: Verdict

    def __str__(self) -> str:
        """Return such as `1.22 (1.20 to 1.25)`."""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"


class MeasuredSetting(Struct, frozen=True, kw_only=True):
    """The result of one setting."""

    title: str
    gpu: str
    verdict: Verdict  #: that of the mean, unless A and B did not run alike
    reasons: tuple[str, ...]  #: what the verdict rests on
    mean: Estimate  #: geometric mean of the ratios
    workloads: dict[str, Estimate]
    rounds: tuple[Round, ...]


def measure(
    runs: Sequence[Callable[[], ProcessReport]],
    title: str,
    threads: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> MeasuredSetting:
    """Run rounds until all intervals are narrow or the seconds are over, but at least ROUNDS.

    `runs` are a process of A and one of B, with so many threads (0: any). Raises BuildPytorchError
    where no workload ran in both builds.
    """
    rounds = list[Round]()
    errors: tuple[dict[str, str], ...] = ({}, {})
    is_narrow, end = False, clock() + seconds
    with waiting(title) as line:
        while len(rounds) < ROUNDS or not (is_narrow or clock() >= end):
            line.update(f"{title}, round {len(rounds) + 1}")
            order = (0, 1) if len(rounds) % 2 == 0 else (1, 0)
            reports = {side: runs[side]() for side in order}
            rounds.append((reports[0].seconds, reports[1].seconds))
            for side in order:
                errors[side].update(reports[side].errors)
            if len(rounds) >= ROUNDS:
                found, mean = estimates(rounds)
                is_narrow = all(it.high - it.low < _WIDTH * it.ratio for it in found.values())
    verdict, reasons = mean.verdict, [f"{mean.verdict}, {mean}"]
    for side, name in ((1, "B"), (0, "A")):
        worse, has = Verdict.NOISY if side else Verdict.SLOWER, reports[side].threads
        if threads not in {0, has}:
            reasons.append(f"{name} ran with {counted(has, 'thread')} where {threads} were asked")
            verdict = worse
        for workload in sorted(errors[side].keys() - errors[1 - side].keys()):
            reasons.append(f"{name} cannot run {workload}: {errors[side][workload]}")
            verdict = verdict if side else worse
    return MeasuredSetting(
        title=title,
        gpu=reports[0].gpu,
        verdict=verdict,
        reasons=tuple(reasons),
        mean=mean,
        workloads=found,
        rounds=tuple(rounds),
    )


def estimates(rounds: Sequence[Round]) -> tuple[dict[str, Estimate], Estimate]:
    """Return the ratio of each workload and their geometric mean, from at least one round.

    Workloads count that every process measured; raises BuildPytorchError without one. The ratio of
    a workload is the median over rounds: the two processes of a round ran one after the other, so
    that slow changes of the machine cancel. Rounds are drawn anew (bootstrap, percentiles) for all
    workloads at once, because a slow process is slow in many of them.
    """
    names = [name for name in rounds[0][0] if all(name in side for pair in rounds for side in pair)]
    if not names:
        raise BuildPytorchError("A and B have no workload that both can run")
    ratios = [[math.log(a[name] / b[name]) for a, b in rounds] for name in names]

    def centres(chosen: Sequence[int]) -> list[float]:
        medians = [statistics.median([row[i] for i in chosen]) for row in ratios]
        return [*medians, statistics.fmean(medians)]

    draw, every = random.Random(_SEED), range(len(rounds))  # noqa: S311 - the same each time
    drawn = [centres(draw.choices(every, k=len(every))) for _ in range(_RESAMPLES)]
    *found, mean = map(_estimate, centres(every), zip(*drawn, strict=True))
    return dict(zip(names, found, strict=True)), mean


def _estimate(centre: float, drawn: Sequence[float]) -> Estimate:
    """Return the estimate of a logarithm from its values in resamples.

    `equal`: the 95 % interval lies inside 3 %. `faster` and `slower`: that of 99.9 % lies outside,
    because narrower ones of eight rounds on a busy machine call equal builds different.
    """
    ordered, last = sorted(drawn), len(drawn) - 1
    lowest, low, high, highest = (
        ordered[round(share * last)] for share in (0.0005, 0.025, 0.975, 0.9995)
    )
    limit, verdict = math.log1p(_EQUAL), Verdict.NOISY
    if -limit < low and high < limit:
        verdict = Verdict.EQUAL
    elif lowest > limit:
        verdict = Verdict.SLOWER
    elif highest < -limit:
        verdict = Verdict.FASTER
    return Estimate(ratio=math.exp(centre), low=math.exp(low), high=math.exp(high), verdict=verdict)
