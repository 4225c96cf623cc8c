"""Whether one variant runs on one machine, and what stands in its way."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from build_pytorch.hardware.machine_model import Machine, MachineGpu
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import CudaToolkit, Variant

JETSON_DOUBT: Final = "whether Jetson takes the code of other GPUs of its major is unverified"

_JETSON: Final = ("jetson", "orin", "xavier", "thor")
"""In the names of Jetson's GPUs, as nvidia-smi and NVML tell them."""

Kind = Literal["platform", "host", "gpu", "capability", "flags", "driver"]


class Obstacle(Struct, frozen=True, kw_only=True):
    """One reason why a variant does not run.

    `subject` is what it is a reason against: an architecture, an ISA, a platform or a release.
    """

    kind: Kind
    subject: str
    text: str


class Fit(Struct, frozen=True, kw_only=True):
    """A variant on a machine, with one of its GPUs or none."""

    variant: Variant
    gpu: MachineGpu | None
    grade: Literal["exact", "compatible", "cpu-only"]
    """How the GPU code fits, where nothing else stands in the way."""
    obstacles: tuple[Obstacle, ...]
    doubts: tuple[str, ...]
    """What could not be made certain."""

    @property
    def runs(self) -> bool:
        """Whether the variant runs there."""
        return not self.obstacles

    @property
    def waits_for_driver(self) -> bool:
        """Whether a newer driver is all that it takes."""
        return [obstacle.kind for obstacle in self.obstacles] == ["driver"]


def judge(variant: Variant, machine: Machine, gpu: MachineGpu | None) -> Fit:
    """Judge one variant by the matrix alone: platform, hosts, capability, CPU flags, driver."""
    obstacles: list[Obstacle] = []
    doubts: list[str] = []
    platform = variant.cpu.platform
    if platform != machine.platform:
        text = f"this machine is {machine.platform}"
        obstacles.append(Obstacle(kind="platform", subject=platform, text=text))
    else:  # the flags of another platform's CPU have other names: nothing to compare
        obstacles += _lacking(variant, machine)
    grade: Literal["exact", "compatible", "cpu-only"] = "cpu-only"
    if variant.gpu:
        if variant.impossible:
            obstacles.append(
                Obstacle(kind="host", subject=variant.gpu_key or "", text=variant.impossible)
            )
        runs = runs_on(variant.gpu.capability, gpu.capability) if gpu and gpu.capability else None
        grade = runs or "exact"
        if runs is None:
            obstacles.append(_incapable(variant, gpu))
        elif runs == "compatible" and platform == "aarch64-linux":
            doubts.append(JETSON_DOUBT)
        if gpu and variant.release.cuda:
            obstacle, doubt = _driver(variant, variant.release.cuda, machine)
            obstacles += [obstacle] if obstacle else []
            doubts += [doubt] if doubt else []
    return Fit(
        variant=variant, gpu=gpu, grade=grade, obstacles=tuple(obstacles), doubts=tuple(doubts)
    )


def is_jetson(gpu: MachineGpu) -> bool:
    """Whether a GPU is a Jetson's: by its name, or as 8.7, which nothing else has."""
    return gpu.capability == "8.7" or any(word in gpu.name.lower() for word in _JETSON)


def number(version: str) -> tuple[int, ...]:
    """A dotted version as numbers, so that 580.105 comes after 580.65."""
    return tuple(int(part) for part in version.split("."))


def _lacking(variant: Variant, machine: Machine) -> list[Obstacle]:
    lacks = machine.cpu.lacks(variant.cpu.cpuinfo)
    if not lacks:
        return []
    text = f"the CPU lacks {', '.join(lacks)}"
    if not machine.cpu.flags:
        text = "the CPU's flags are unknown"
    return [Obstacle(kind="flags", subject=variant.cpu_key, text=text)]


def _incapable(variant: Variant, gpu: MachineGpu | None) -> Obstacle:
    """Why the code of a GPU variant does not run on a GPU."""
    if gpu is None or variant.gpu is None:
        return Obstacle(kind="gpu", subject="GPU variants", text="no GPU that a driver answers for")
    if gpu.capability is None:
        text = f"the capability of GPU {gpu.index} is unknown; write it into a description"
        return Obstacle(kind="gpu", subject="GPU variants", text=text)
    same_major = number(variant.gpu.capability)[0] == number(gpu.capability)[0]
    what = "a minor above" if same_major else "another major than"
    text = f"built for {what} this GPU's {gpu.capability}"
    return Obstacle(kind="capability", subject=variant.gpu_key or "", text=text)


def _driver(
    variant: Variant, cuda: CudaToolkit, machine: Machine
) -> tuple[Obstacle, None] | tuple[None, str | None]:
    """The driver is new enough by its version, or by the newest CUDA that it says it runs.

    The second is what CUDA itself compares. It counts where versions mislead: drivers of Jetson
    and of Windows below WSL have numbers of their own, and a container may bring a newer libcuda.
    """
    wants = f"driver {cuda.driver} or newer"
    if machine.driver and number(machine.driver) >= number(cuda.driver):
        return None, None
    if machine.cuda and number(machine.cuda) >= number(cuda.version):
        claim = f"driver {machine.driver} is below {cuda.driver}, yet runs CUDA {machine.cuda}"
        return None, f"{claim}, as it says itself" if machine.driver else None
    if not (machine.driver or machine.cuda):
        return None, f"the driver's version is unknown; it takes {wants}"
    here = f"driver {machine.driver}" if machine.driver else f"one for CUDA {machine.cuda}"
    text = f"CUDA {cuda.version} needs {wants}, here is {here}"
    return Obstacle(kind="driver", subject=variant.release_name, text=text), None
