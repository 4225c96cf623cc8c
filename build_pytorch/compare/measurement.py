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
from build_pytorch.compare import workloads
from build_pytorch.compare.builds import ComparedBuild, answer_of

ROUNDS: Final = 8  #: least number of rounds
_EQUAL: Final = 0.03  #: ratios from 1 / 1.03 to 1.03 are no difference
_WIDTH: Final = 0.03  #: width of an interval, as a share of the ratio, that is narrow
_RESAMPLES: Final = 1000
_SEED: Final = 20261122

Seconds = dict[str, Annotated[float, Meta(gt=0, le=1e6)]]
"""Seconds of one call by workload, as one process measured them."""
Round = tuple[Seconds, Seconds]
"""What a process of A and a process of B measured."""
Setting = tuple[str, int]
"""Where processes run, `cpu` or the number of a GPU, and with how many threads (0: any)."""


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
    asked: str  #: OMP_NUM_THREADS in the process
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
    seconds: dict[str, list[float]]  #: medians of A and B by workload
    rounds: tuple[Round, ...]


def run_process(build: ComparedBuild, setting: Setting, *names: str) -> ProcessReport:
    """Run the workloads once in a build. Raises BuildPytorchError with the reason if it fails."""
    device, threads = setting
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = dict.fromkeys(variables, str(threads)) if threads else {}
    return answer_of(build, [workloads.__file__, device, *names], env, ProcessReport)


def measure(
    builds: Sequence[ComparedBuild],
    setting: Setting,
    seconds: float,
    run: Callable[[ComparedBuild, Setting], ProcessReport] = run_process,
    clock: Callable[[], float] = time.monotonic,
) -> MeasuredSetting:
    """Run rounds until all intervals are narrow or the seconds are over, but at least ROUNDS.

    Raises BuildPytorchError where no workload ran in both builds.
    """
    (device, threads), rounds = setting, list[Round]()
    title = counted(threads, "thread") if threads else f"GPU {device}"
    errors: tuple[dict[str, str], ...] = ({}, {})
    is_narrow, end = False, clock() + seconds
    with waiting(title) as line:
        while len(rounds) < ROUNDS or not (is_narrow or clock() >= end):
            line.update(f"{title}, round {len(rounds) + 1}")
            order = (0, 1) if len(rounds) % 2 == 0 else (1, 0)
            reports = {side: run(builds[side], setting) for side in order}
            rounds.append((reports[0].seconds, reports[1].seconds))
            for side in order:
                errors[side].update(reports[side].errors)
            if len(rounds) >= ROUNDS:
                found, mean = estimates(rounds)
                is_narrow = all(it.high - it.low < _WIDTH * it.ratio for it in found.values())
    verdict, reasons = mean.verdict, [f"{mean.verdict}, {mean}"]
    for side, name in ((1, "B"), (0, "A")):
        report, worse = reports[side], Verdict.NOISY if side else Verdict.SLOWER
        if threads not in {0, report.threads}:
            ran = f"{counted(report.threads, 'thread')} where {threads} were asked"
            why = f"OMP_NUM_THREADS is {report.asked or 'not set'} in its process"
            reasons.append(f"{name} ran with {ran}: {why}")
            verdict = worse
        for workload in sorted(errors[side].keys() - errors[1 - side].keys()):
            reasons.append(f"{name} cannot run {workload}: {errors[side][workload]}")
            verdict = verdict if side else worse
    sides = list(zip(*rounds, strict=True))
    return MeasuredSetting(
        title=title,
        gpu=reports[0].gpu,
        verdict=verdict,
        reasons=tuple(reasons),
        mean=mean,
        workloads=found,
        seconds={
            name: [statistics.median(it[name] for it in side) for side in sides] for name in found
        },
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
    draw, count = random.Random(_SEED), len(rounds)  # noqa: S311 - the same result each time
    draws = [draw.choices(range(count), k=count) for _ in range(_RESAMPLES)]
    centres, resampled = [], []
    for name in names:
        ratios = [math.log(a[name] / b[name]) for a, b in rounds]
        centres.append(statistics.median(ratios))
        resampled.append([statistics.median([ratios[i] for i in chosen]) for chosen in draws])
    means = list(map(statistics.fmean, zip(*resampled, strict=True)))
    found = dict(zip(names, map(_estimate, centres, resampled), strict=True))
    return found, _estimate(statistics.fmean(centres), means)


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
