"""The report of the smoke script as frozen types, which the script cannot import.

They have the fields that are read here; `SmokeRun.raw` has the whole report.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import foreign_json
from build_pytorch.matrix.field_types import Capability

_MOST_SECONDS: Final = 1e7
"""Maximum seconds of one test; --timeout allows 100,000 minutes for all."""

Measure = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
"""An error or a tolerance: neither negative nor infinite nor NaN."""
Config = Annotated[str, Meta(max_length=1 << 16)]
Index = Annotated[int, Meta(ge=0, le=1023)]


class DeclaredTest(Struct, frozen=True, kw_only=True):
    """A test that the script had when the report was made, and what it needs to run."""

    name: str
    """The device and a title: `cpu matmul fp32`, `cuda convolution`."""
    device: Literal["cpu", "cuda"]
    tolerance: Measure | None = None
    """None for skipped tests in reports of the first format."""
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
    library_folders: tuple[str, ...] = ()
    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    magma: bool = False
    triton: str | None = None
    triton_required: str | None = None
    arch_list: tuple[str, ...] = ()
    cpu_capability: str = ""
    config: Config = ""
    """What torch.__config__.show() prints."""
    parallel: Config = ""
    """What torch.__config__.parallel_info() prints."""


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


def parse(text: str) -> SmokeRun:
    """Parse a report of any version of the script, or anything else. Never raises."""
    try:
        raw = foreign_json.decode(text)
        return SmokeRun(report=msgspec.convert(raw, SmokeReport), raw=raw)
    except ValueError as error:
        return SmokeRun(problem=f"its output is not a report: {error}")
