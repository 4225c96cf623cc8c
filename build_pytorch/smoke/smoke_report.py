"""What the script reports, as values. `script.py` stands alone, so it knows nothing of them."""

from __future__ import annotations

from typing import Literal

import msgspec

Result = Literal["passed", "failed", "skipped", "not run"]


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of real work. `error` and `tolerance` are relative, as `Report.measure` says."""

    name: str
    """`cpu matmul fp32`, `cuda convolution`."""
    outcome: Result
    error: float | None = None
    tolerance: float | None = None
    seconds: float = 0
    message: str = ""


class TorchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What torch says of itself, or why it cannot be imported."""

    import_error: str = ""
    file: str = ""
    version: str = ""
    git: str | None = None
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    magma: bool = False
    arch_list: tuple[str, ...] = ()
    cpu_capability: str = ""
    threads: int = 0
    config: str = ""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU. `memory` is in bytes."""

    index: int
    name: str
    capability: str
    memory: int


class CudaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whether torch reaches the GPU asked for (`device`), and why not."""

    device: int
    available: bool
    reason: str = ""
    crashed: bool = False
    """The process ended, or hung, when it looked for GPUs."""
    devices: tuple[Device, ...] = ()


class CpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU as /proc/cpuinfo describes it."""

    model: str
    flags: tuple[str, ...]


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """The NVIDIA driver of the machine, and whether a Python finds its library."""

    version: str | None
    libcuda_problem: str
    visible_devices: str | None
    """CUDA_VISIBLE_DEVICES."""


class PythonFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The Python that ran the script."""

    version: str
    executable: str
    system: str
    machine: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Written by `script.report`."""

    schema: Literal[1]
    at: str
    seconds: float
    measure: str
    python: PythonFacts
    cpu: CpuFacts
    driver: Driver
    torch: TorchFacts
    cuda: CudaFacts
    tests: tuple[Test, ...]

    @property
    def gpu(self) -> Device | None:
        """The GPU that was tested."""
        if not self.cuda.available:
            return None
        return next((d for d in self.cuda.devices if d.index == self.cuda.device), None)


def parse(text: str) -> Report:
    """Read what the script printed. Raises ValueError where it is no report."""
    return msgspec.json.decode(text, type=Report)
