"""Measure two builds: processes in the order A B B A, rounds that were disturbed again."""

from __future__ import annotations

import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Annotated, Final, Literal

import msgspec
import psutil
from msgspec import Meta, Struct

from build_pytorch.base import foreign_json, process
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.compare import workload_script
from build_pytorch.compare.builds import ComparedBuild
from build_pytorch.compare.gpu_clocks import GpuClocks, gpu_clocks
from build_pytorch.compare.ratio_statistics import Estimate, Pair, Seconds, estimates
from build_pytorch.smoke.script import ending

ROUNDS: Final = 8
"""Least number of rounds."""
_MOST_REPEATED: Final = 8
"""Disturbed rounds of one setting that are run again; later ones count as they are."""
_JUMP: Final = 0.5
"""Cores that other work keeps busy beyond the usual: more is a disturbance."""
SECONDS: Final = 600.0
"""Maximum seconds of one process."""
_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_Count = Annotated[int, Meta(ge=0, le=1 << 60)]
_Text = Annotated[str, Meta(max_length=20_000)]


class MeasuredTorch(Struct, frozen=True, kw_only=True):
    """What torch says of itself, and the libraries with pools of threads that it loaded."""

    version: _Text = ""
    file: _Text = ""
    cuda: _Text | None = None
    threads: _Count = 0
    variable: _Text = ""
    """OMP_NUM_THREADS in the process."""
    cpu_capability: _Text = ""
    pools: tuple[_Text, ...] = ()
    config: _Text = ""
    parallel: _Text = ""


class MeasuredGpu(Struct, frozen=True, kw_only=True):
    """The GPU, and the bytes of its memory that are free after the first kernel."""

    name: _Text
    capability: _Text
    free: _Count


class MeasuredWorkload(Struct, frozen=True, kw_only=True):
    """The seconds of one call, or why there are none."""

    name: _Text
    seconds: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    error: _Text = ""


class ProcessReport(Struct, frozen=True, kw_only=True):
    """The document of workload_script.py. `error`: why torch does not work."""

    format: Literal[1]
    python: _Text
    error: _Text = ""
    torch: MeasuredTorch = MeasuredTorch()
    gpu: MeasuredGpu | None = None
    resident: _Count = 0
    results: tuple[MeasuredWorkload, ...] = ()

    @property
    def seconds(self) -> Seconds:
        """The seconds of one call by workload."""
        return {each.name: each.seconds for each in self.results if each.seconds is not None}


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


class ProcessFacts(Struct, frozen=True, kw_only=True):
    """A process that ended: its report and what else happened on the machine."""

    report: ProcessReport
    others: float
    """Cores that other programs kept busy meanwhile."""
    throttled: tuple[str, ...] = ()
    clock: int = 0
    """Highest clock of the GPU in MHz meanwhile; 0: unknown."""
    context: int = 0
    """Bytes of device memory that the process took for its context; 0: unknown."""


class MeasuredSetting(Struct, frozen=True, kw_only=True):
    """The result of one setting. Facts of A and B are those of their last process."""

    setting: Setting
    title: str
    mean: Estimate | None
    """Geometric mean of the ratios."""
    workloads: dict[str, Estimate]
    seconds: dict[str, tuple[float, ...]]
    """Median seconds of A and B by workload."""
    missing: dict[str, str]
    """Workloads that A or B could not run, with the reason."""
    repeated: dict[str, int]
    """How many rounds were run again, by reason."""
    facts: tuple[ProcessFacts, ProcessFacts]
    rounds: tuple[Pair, ...]


Runner = Callable[[ComparedBuild, Setting], ProcessFacts]


def run_process(
    build: ComparedBuild,
    setting: Setting,
    on_wait: Callable[[int], object],
    *options: str,
    limit: float = SECONDS,
) -> ProcessFacts:
    """Run the script once in a build, for `limit` seconds at most.

    Raises BuildPytorchError with the reason if that fails.
    """
    argv = [str(build.python), workload_script.__file__, "--device", setting.device, *options]
    threads = dict.fromkeys(_VARIABLES, str(setting.threads)) if setting.threads else {}
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1", **threads}
    seen: list[GpuClocks] = []

    def look(done: int) -> None:
        if setting.device != "cpu":
            seen.append(gpu_clocks(int(setting.device)))
        on_wait(done)

    look(0)
    before, began = _busy_seconds(), time.monotonic()
    result = process.start(argv, env={**build.env, **env}).finish(limit, look)
    others = (_busy_seconds() - before) / max(time.monotonic() - began, 1e-3)
    problem = f"no answer after {limit:g} s" if result.expired else ""
    if result.code and not problem:
        problem = f"Python {ending(result.code)}: {result.last_line}"
    try:
        report = msgspec.convert(
            {} if problem else foreign_json.decode(result.stdout), ProcessReport
        )
    except ValueError as error:
        why = problem or f"its output is not a report: {error}"
        raise BuildPytorchError(f"{build.label}: {why}") from None
    if report.error:
        raise BuildPytorchError(f"{build.label}: torch does not work: {report.error}")
    first = seen[0].free if seen else 0
    return ProcessFacts(
        report=report,
        others=max(0, others),
        throttled=tuple(sorted({reason for clocks in seen[1:] for reason in clocks.throttled})),
        clock=max((clocks.clock for clocks in seen[1:]), default=0),
        context=max(0, first - report.gpu.free) if first and report.gpu else 0,
    )


def _busy_seconds() -> float:
    """Return the CPU seconds that all programs but the children of this process have used."""
    times = psutil.cpu_times()._asdict()
    busy = sum(value for name, value in times.items() if name not in {"idle", "iowait"})
    busy -= times.get("guest", 0) + times.get("guest_nice", 0)  # user and nice contain them
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(busy - own.ru_utime - own.ru_stime)


def measure(
    builds: Sequence[ComparedBuild],
    setting: Setting,
    run: Runner,
    *,
    is_over: Callable[[], bool],
    on_round: Callable[[int], object],
) -> MeasuredSetting:
    """Run rounds until all intervals are narrow or the time is over, but at least ROUNDS.

    A round in which the GPU throttled or other work took more of the machine than usual is run
    again.
    """
    rounds: list[Pair] = []
    usual: list[float] = []
    repeated: Counter[str] = Counter()
    while True:
        on_round(len(rounds) + 1)
        order = (0, 1) if len(rounds) % 2 == 0 else (1, 0)
        pair = {side: run(builds[side], setting) for side in order}
        both = (pair[0], pair[1])
        why = disturbance(both, usual)
        usual += [facts.others for facts in both]
        if why and repeated.total() < _MOST_REPEATED and not is_over():
            repeated[why] += 1
            continue
        rounds.append((both[0].report.seconds, both[1].report.seconds))
        if len(rounds) < ROUNDS:
            continue
        found, mean = estimates(rounds)
        if is_over() or all(each.is_narrow for each in found.values()):
            break
    return MeasuredSetting(
        setting=setting,
        title=setting.title,
        mean=mean,
        workloads=found,
        seconds={
            name: tuple(
                statistics.median(side[name] for side in sides)
                for sides in zip(*rounds, strict=True)
            )
            for name in found
        },
        missing=_missing(builds, both, found),
        repeated=dict(repeated),
        facts=both,
        rounds=tuple(rounds),
    )


def _missing(
    builds: Sequence[ComparedBuild], both: Sequence[ProcessFacts], found: Container[str]
) -> dict[str, str]:
    """Return by workload why it was not measured in every round: the error, if a build has one."""
    reasons: dict[str, str] = {}
    for build, facts in zip(builds, both, strict=True):
        for each in facts.report.results:
            if each.name not in found and (each.error or each.name not in reasons):
                reasons[each.name] = f"{build.label}: {each.error or 'not in every round'}"
    return reasons


def disturbance(both: Sequence[ProcessFacts], usual: Sequence[float]) -> str:
    """Return what disturbed a round, or "". `usual`: cores that others kept busy before."""
    if reasons := sorted({reason for facts in both for reason in facts.throttled}):
        return f"GPU throttled: {', '.join(reasons)}"
    if len(usual) > 1 and max(facts.others for facts in both) > statistics.median(usual) + _JUMP:
        return "load jumped"
    return ""
