"""Run the smoke script, and read its report as frozen types. The script cannot import them.

They have the fields that are read here; `SmokeRun.raw` has the whole report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import process
from build_pytorch.matrix.field_types import Capability
from build_pytorch.smoke import script

SCRIPT: Final = Path(script.__file__)

_DEEPEST: Final = 20
"""Maximum nesting of a report; the script's have four levels. What writes JSON recurses."""
_GRACE: Final = 5.0
"""Maximum seconds between the script's own limit and the kill; a short limit has a short one."""


_MOST_SECONDS: Final = 1e7
"""Maximum seconds of one test; --timeout allows 100,000 minutes for all."""

Measure = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
"""An error or a tolerance: neither negative nor infinite nor NaN."""
Index = Annotated[int, Meta(ge=0, le=1023)]


class DeclaredTest(Struct, frozen=True, kw_only=True):
    """A test that the script had when the report was made, and what it needs to run."""

    name: str
    """The device and a title: `cpu matmul fp32`, `cuda convolution`."""
    device: Literal["cpu", "cuda"]
    tolerance: Measure | None = None
    capability: Capability | None = None
    """The oldest compute capability that can run it; None: any."""
    magma: bool = False
    """Whether it needs a PyTorch with MAGMA."""
    torch: str | None = None
    """The oldest PyTorch that can run it; None: any."""
    optional: str = ""
    """The part that it needs and that may be missing; empty: none."""
    meaning: str = ""
    """What a failure means."""
    companion: str = ""
    """The companion that it tests; empty: PyTorch itself."""


class SmokeResult(Struct, frozen=True, kw_only=True):
    """The result of one test. `error` and `tolerance` are relative (see MEASURE in script.py)."""

    name: str
    outcome: Literal["passed", "failed", "skipped", "not run"]
    error: Measure | None = None
    tolerance: Measure | None = None
    seconds: Annotated[float, Meta(ge=0, le=_MOST_SECONDS)] = 0
    message: str = ""


class TorchFacts(Struct, frozen=True, kw_only=True):
    """The configuration that torch reports, or why it cannot be imported."""

    import_error: str = ""
    file: str = ""
    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    magma: bool = False
    nccl: str | None = None
    triton: str | None = None
    triton_required: str | None = None
    arch_list: tuple[str, ...] = ()
    cpu_capability: str = ""


class GpuFacts(Struct, frozen=True, kw_only=True):
    """A GPU that torch can use."""

    index: Index
    name: str
    capability: Capability


class CudaFacts(Struct, frozen=True, kw_only=True):
    """Whether torch can use the GPU with the index `device`, and why not."""

    device: Index
    available: bool
    reason: str = ""
    crashed: bool = False
    """The process crashed or hung while it initialised CUDA."""
    devices: tuple[GpuFacts, ...] = ()


class InstalledCompanion(Struct, frozen=True, kw_only=True):
    """A companion that had to be there: the version asked for (empty: any), and what was found."""

    expected: str = ""
    version: str | None = None
    file: str | None = None


class CpuFacts(Struct, frozen=True, kw_only=True):
    """The CPU as /proc/cpuinfo describes it."""

    model: str
    flags: tuple[str, ...]


class DriverFacts(Struct, frozen=True, kw_only=True):
    """The NVIDIA driver, why its library cannot be loaded, and CUDA_VISIBLE_DEVICES."""

    version: str | None
    libcuda_problem: str
    visible_devices: str | None


class PythonFacts(Struct, frozen=True, kw_only=True):
    """The Python that ran the script."""

    version: str
    machine: str


class SmokeReport(Struct, frozen=True, kw_only=True):
    """A whole report. `declared` lists the tests of the script that made it."""

    schema: Literal[2]
    python: PythonFacts
    cpu: CpuFacts
    driver: DriverFacts
    torch: TorchFacts
    cuda: CudaFacts
    companions: dict[str, InstalledCompanion] = {}
    tests: tuple[SmokeResult, ...]
    declared: tuple[DeclaredTest, ...]

    def __post_init__(self) -> None:
        """Require a test of each device, and each name once.

        A report without tests must not pass, and a passed result must not hide a failed one.
        """
        if {test.device for test in self.declared} != {"cpu", "cuda"}:
            raise ValueError("declares no tests for the CPU or none for CUDA")
        for found in (self.declared, self.tests):
            names = [test.name for test in found]
            if len(set(names)) < len(names):
                raise ValueError("has two tests of one name")

    @property
    def gpu(self) -> GpuFacts | None:
        """The GPU that was tested."""
        if not self.cuda.available:
            return None
        return next((d for d in self.cuda.devices if d.index == self.cuda.device), None)


class SmokeRun(Struct, frozen=True, kw_only=True):
    """A report, also as it was printed (`raw`), or the reason why there is none."""

    report: SmokeReport | None = None
    raw: dict[str, Any] = {}
    problem: str = ""


def run(  # noqa: PLR0913 - one run, all by name
    python: Path,
    env: Mapping[str, str | None],
    *,
    device: int,
    seconds: float,
    on_wait: Callable[[int], None],
    companions: Mapping[str, str],
) -> SmokeRun:
    """Run the script on one GPU for at most `seconds`; call `on_wait` while it runs.

    `companions` are those that must be there, with the version of each. Raises ToolError where the
    Python cannot be started.
    """
    maximum = seconds + min(seconds, _GRACE)
    argv = [str(python), str(SCRIPT), "--device", str(device), "--limit", str(seconds)]
    argv += [f"--companion={name}={version}" for name, version in companions.items()]
    # The user's own setting would make torch slower, as if the build were the reason.
    started = process.start(argv, env={**env, "ATEN_CPU_CAPABILITY": None})
    result = started.finish(maximum, on_wait)
    if result.expired:
        return SmokeRun(problem=f"no answer after {maximum:g} s; it was killed")
    if result.code:
        last = f": {result.last_line}" if result.code > 0 else ""
        return SmokeRun(problem=f"Python {script.ending(result.code)}{last}")
    found = parse(result.stdout)
    if found.report and found.raw["declared"] != script.declarations():
        return SmokeRun(problem="its report does not declare the tests of this script")
    return found


def parse(text: str) -> SmokeRun:
    """Parse a report of any version of the script, or anything else. Never raises."""
    try:
        raw = msgspec.json.decode(text)
        report = msgspec.convert(raw, SmokeReport)
    except (ValueError, RecursionError) as error:  # msgspec's errors, and lone surrogates
        return SmokeRun(problem=f"its output is not a report: {error}")
    if _is_deeper(raw, _DEEPEST):
        return SmokeRun(problem="its output is not a report: nested too deeply")
    return SmokeRun(report=report, raw=raw)


def _is_deeper(value: object, depth: int) -> bool:
    """Whether lists and dicts are nested more than `depth` times."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(each, dict | list) for each in level)
