"""Measure two builds: processes in the order A B B A, until the intervals are narrow.

A ratio is the time of A divided by the time of B: below 1, A is faster.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import foreign_json, installed_torch, process
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.compare import workloads
from build_pytorch.compare.builds import ComparedBuild
from build_pytorch.results.ledger import Verdict
from build_pytorch.smoke.script import ending

ROUNDS: Final = 8
"""Least number of rounds."""
_EQUAL: Final = 0.03
"""Ratios from 1 / 1.03 to 1.03 are no difference."""
_WIDTH: Final = 0.03
"""Width of an interval, as a share of the ratio, at which no more rounds are needed."""
_RESAMPLES: Final = 1000
_SEED: Final = 20261122
_SECONDS: Final = 600.0
"""Maximum seconds of one process, whose import may come from a cold network file system."""
_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_Count = Annotated[int, Meta(ge=0, le=1 << 60)]
_Text = Annotated[str, Meta(max_length=20_000)]
_Seconds = Annotated[float, Meta(gt=0, le=1e6)]
Seconds = Mapping[str, float]
"""Seconds of one call by workload, as one process measured them."""
Round = tuple[Seconds, Seconds]
"""What a process of A and a process of B measured."""


class ComparedTorch(Struct, frozen=True, kw_only=True):
    """What torch says of itself in base/installed_torch.py. `error`: why it does not work."""

    error: _Text = ""
    version: _Text = ""
    file: _Text = ""
    cuda: _Text | None = None
    pools: tuple[_Text, ...] = ()
    """Libraries that hold a pool of threads."""
    library_bytes: _Count = 0
    resident: _Count = 0
    """Bytes of memory after the import."""
    python: _Text = ""


class ProcessReport(Struct, frozen=True, kw_only=True):
    """The document of workloads.py: seconds of one call, or errors, by workload."""

    format: Literal[2]
    error: _Text = ""
    gpu: _Text = ""
    threads: _Count = 0
    asked: _Text = ""
    """OMP_NUM_THREADS in the process."""
    seconds: dict[_Text, _Seconds] = {}
    errors: dict[_Text, _Text] = {}


class Setting(Struct, frozen=True):
    """Where and with how many threads processes run; 0 threads: as many as the build chooses."""

    device: str
    """`cpu` or the number of a GPU."""
    threads: int

    @property
    def title(self) -> str:
        """The setting in words."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return threads if self.device == "cpu" else f"GPU {self.device}"


class Estimate(Struct, frozen=True, kw_only=True):
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float
    verdict: Verdict


class MeasuredSetting(Struct, frozen=True, kw_only=True):
    """The result of one setting; `last` has the reports of the last processes of A and B."""

    setting: Setting
    title: str
    mean: Estimate | None
    """Geometric mean of the ratios."""
    workloads: dict[str, Estimate]
    seconds: dict[str, tuple[float, ...]]
    """Median seconds of A and B by workload."""
    missing: dict[str, str]
    """Workloads that A or B could not run, with the reason."""
    last: tuple[ProcessReport, ProcessReport]
    rounds: tuple[Round, ...]


_Report = TypeVar("_Report", ComparedTorch, ProcessReport)
Runner = Callable[[ComparedBuild, Setting], ProcessReport]


def torch_of(build: ComparedBuild) -> ComparedTorch:
    """Import the torch of a build and return what it says of itself. Raises BuildPytorchError."""
    answer = _output(build, [installed_torch.__file__], {})
    first, _, second = answer.partition("\n")
    found = _decoded(build, second, ComparedTorch)
    python = _decoded(build, first, ComparedTorch).python
    return msgspec.structs.replace(found, python=python)


def run_process(build: ComparedBuild, setting: Setting, *options: str) -> ProcessReport:
    """Run the workloads once in a build. Raises BuildPytorchError with the reason if it fails."""
    threads = dict.fromkeys(_VARIABLES, str(setting.threads)) if setting.threads else {}
    argv = [workloads.__file__, "--device", setting.device, *options]
    return _decoded(build, _output(build, argv, threads), ProcessReport)


def _output(build: ComparedBuild, argv: list[str], env: dict[str, str]) -> str:
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1", **env}
    started = process.start([str(build.python), *argv], env={**build.env, **env})
    result = started.finish(_SECONDS)
    problem = f"Python {ending(result.code)}: {result.last_line}" if result.code else ""
    if result.expired:
        problem = f"no answer after {_SECONDS:g} s"
    if problem:
        raise BuildPytorchError(f"{build.label}: {problem}")
    return result.stdout


def _decoded(build: ComparedBuild, text: str, kind: type[_Report]) -> _Report:
    try:
        report = msgspec.convert(foreign_json.decode(text), kind)
    except ValueError as error:
        why = f"its output is not a report: {error}"
        raise BuildPytorchError(f"{build.label}: {why}") from None
    if report.error:
        raise BuildPytorchError(f"{build.label}: torch does not work: {report.error}")
    return report


def measure(
    builds: Sequence[ComparedBuild],
    setting: Setting,
    run: Runner,
    *,
    is_over: Callable[[], bool],
    on_round: Callable[[int], object],
) -> MeasuredSetting:
    """Run rounds until all intervals are narrow or the time is over, but at least ROUNDS."""
    rounds: list[Round] = []
    is_narrow = False
    while len(rounds) < ROUNDS or not (is_narrow or is_over()):
        on_round(len(rounds) + 1)
        order = (0, 1) if len(rounds) % 2 == 0 else (1, 0)
        reports = {side: run(builds[side], setting) for side in order}
        rounds.append((reports[0].seconds, reports[1].seconds))
        if len(rounds) >= ROUNDS:
            found, mean = estimates(rounds)
            is_narrow = all(it.high - it.low < _WIDTH * it.ratio for it in found.values())
    missing: dict[str, str] = {}
    for build, report in zip(builds, (reports[0], reports[1]), strict=True):
        for name in report.seconds.keys() - found.keys():
            missing.setdefault(name, f"{build.label}: not in every round")
        missing |= {name: f"{build.label}: {why}" for name, why in report.errors.items()}
    sides = list(zip(*rounds, strict=True))
    return MeasuredSetting(
        setting=setting,
        title=setting.title,
        mean=mean,
        workloads=found,
        seconds={
            name: tuple(statistics.median(each[name] for each in side) for side in sides)
            for name in found
        },
        missing=missing,
        last=(reports[0], reports[1]),
        rounds=tuple(rounds),
    )


def estimates(rounds: Sequence[Round]) -> tuple[dict[str, Estimate], Estimate | None]:
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
    limit, verdict = math.log1p(_EQUAL), Verdict.NOISY
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
