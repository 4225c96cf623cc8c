"""Whether a variant runs on a machine with one of its GPUs: obstacles, and doubts about its driver.

The driver is judged only where nothing else is in the way.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.base.versions import digits, numbers
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import (
    TEGRA,
    compiles,
    cuda_window,
    missing_cpu_flags,
    runs_on,
)
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.tables import GpuArchitecture

_CONSUMER: Final = ("geforce", "titan")
"""Words in the names of GPUs that refuse a newer libcuda than their driver, with error 804.

Source: NVIDIA, "CUDA Compatibility", forward compatibility; checked 2026-11. It works on
data-centre GPUs, Jetson and some RTX cards for servers.
"""


class Obstacle(Struct, frozen=True):
    """One reason why a variant does not run.

    `subject` is what has the obstacle: a GPU architecture, CPU ISA, platform or release.
    """

    kind: Literal["platform", "host", "gpu", "capability", "flags", "driver"]
    subject: str
    text: str


class DriverNeed(NamedTuple):
    """The oldest driver that a CUDA needs, or a GPU or its code if that one is newer."""

    cuda: str
    driver: str
    whose: str
    """What needs it, such as `SM120`; empty for the CUDA of this version."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A variant on a machine with one of its GPUs or none; it is accepted without obstacles."""

    variant: Variant
    gpu: MachineGpu | None
    grade: Literal["exact", "compatible", "cpu-only"]
    """How the GPU code fits; "exact" also if it does not fit."""
    obstacles: tuple[Obstacle, ...] = ()
    """The first one decides: why the variant was rejected."""
    doubts: tuple[str, ...] = ()
    """What could not be verified."""

    @property
    def waits_for_driver(self) -> bool:
        """Whether the variant would run with a newer driver."""
        return bool(self.obstacles) and self.obstacles[0].kind == "driver"


def cpu_obstacles(variant: Variant, machine: Machine) -> tuple[Obstacle, ...]:
    """Return why the CPU of a machine does not run a variant, by platform and flags alone."""
    if variant.platform != machine.platform:
        return (Obstacle("platform", variant.platform, f"this machine is {machine.platform}"),)
    flags = machine.cpu.flags.split()
    missing = missing_cpu_flags(variant.cpu, flags)
    text = f"the CPU lacks {', '.join(missing)}" if flags else "the CPU's flags are unknown"
    return (Obstacle("flags", variant.cpu_key, text),) if missing else ()


def gpu_verdict(variant: Variant, gpu: MachineGpu | None) -> Candidate:
    """Judge a variant by the GPU alone, and by whether a machine can have both its GPU and CPU."""
    if not (variant.gpu and variant.gpu_key):
        return Candidate(variant=variant, gpu=gpu, grade="cpu-only")
    found, runs = [], None
    if gpu is None:
        found.append(Obstacle("gpu", "GPU variants", "no GPU with a working driver"))
    elif gpu.capability is None:
        text = f"the capability of {gpu.name} is unknown; add it to a description"
        found.append(Obstacle("gpu", "GPU variants", text))
    elif (runs := runs_on(variant.gpu.capability, gpu.capability)) is None:
        text = _why_not(variant.gpu, gpu.capability)
        found.append(Obstacle("capability", variant.gpu_key, text))
    if variant.impossible:
        found.append(Obstacle("host", variant.gpu_key, variant.impossible))
    return Candidate(variant=variant, gpu=gpu, grade=runs or "exact", obstacles=tuple(found))


def with_driver(candidate: Candidate, machine: Machine) -> Candidate:
    """Return a candidate that nothing else rejects, with the verdict about the driver."""
    if candidate.variant.gpu is None or candidate.gpu is None:
        return candidate
    variant, gpu = candidate.variant, candidate.gpu
    limit = driver_limit(driver_need(variant, gpu), machine, gpu)
    if isinstance(limit, Obstacle):
        limit = msgspec.structs.replace(limit, subject=candidate.variant.release_name)
        return msgspec.structs.replace(candidate, obstacles=(limit,))
    known = known_hardware.load().gpu.get(variant.gpu_key or "")
    unconfirmed = f"not confirmed: {known.unconfirmed}" if known and known.unconfirmed else ""
    doubts = tuple(filter(None, (limit, _unknown_to_cuda(variant, gpu), unconfirmed)))
    return msgspec.structs.replace(candidate, doubts=doubts) if doubts else candidate


def _unknown_to_cuda(variant: Variant, gpu: MachineGpu) -> str:
    """Return what is open where code of a build runs on a GPU that its CUDA does not compile for.

    CUDA chooses kernels of cuBLAS and others by the GPU, and torch.compile compiles for it.
    """
    if not (variant.cuda and variant.gpu) or gpu.capability == variant.gpu.capability:
        return ""
    known = known_hardware.of_capability(gpu.capability)
    if known and compiles(variant.cuda, known):
        return ""
    needs = f"which needs {cuda_window(known)}" if known else "nor do the tables here"
    return (
        f"CUDA {variant.cuda.version} does not know {gpu.capability}, {needs}: the code runs, but "
        "its libraries choose kernels of other GPUs, and torch.compile may fail"
    )


def driver_need(variant: Variant, gpu: MachineGpu) -> DriverNeed:
    """Return what a variant asks of the driver of a GPU; nothing without GPU code."""
    cuda = variant.cuda
    if cuda is None:
        return DriverNeed("", "", "")
    first = known_hardware.load().first_driver(gpu.capability)
    if first and numbers(first) > numbers(variant.driver):
        return DriverNeed(cuda.version, first, f"SM{digits(gpu.capability or '')}")
    whose = variant.gpu_label if variant.driver != cuda.driver else ""
    return DriverNeed(cuda.version, variant.driver, whose)


def driver_limit(need: DriverNeed, machine: Machine, gpu: MachineGpu) -> Obstacle | str | None:
    """Judge the driver by its version, or by the newest CUDA version that it supports.

    Returns an obstacle, a doubt, or None. CUDA itself compares its version. It decides where driver
    versions mislead: Jetson and Windows (below WSL) number them differently, and a container may
    bring a newer libcuda.
    """
    cuda, oldest, whose = need
    if not cuda:
        return None
    driver, newest = machine.driver, machine.cuda
    needs = f"{whose or f'CUDA {cuda}'} needs driver {oldest} or newer"
    like = known_hardware.load().cuda_like(newest or "")
    is_enough = newest is not None and (
        numbers(newest) >= numbers(cuda)
        # Minor-version compatibility: the driver of 12.0 runs all of CUDA 12.
        or bool(like and not driver and numbers(like.driver) >= numbers(oldest))
    )
    if machine.is_wsl and newest:  # a Windows driver has other numbers: CUDA decides alone
        if is_enough or numbers(newest)[0] == numbers(cuda)[0]:
            return None
        driver = None
    elif driver and driver == oldest.partition(".")[0]:
        return f"driver {driver}: {needs}"
    elif driver and numbers(driver) >= numbers(oldest):
        return None
    if is_enough and driver:
        if any(word in gpu.name.lower() for word in _CONSUMER):
            why = "a libcuda newer than the driver does not run on this GPU (error 804)"
            text = f"{needs}; found {driver}; {why}"
            return Obstacle("driver", f"CUDA {cuda}", text)
        return f"driver {driver} is older than {oldest}, but supports CUDA {newest}"
    if is_enough:
        return None
    if driver or newest:
        found = f"driver {driver}" if driver else f"a driver whose newest CUDA is {newest}"
        return Obstacle("driver", f"CUDA {cuda}", f"{needs}; found {found}")
    return f"the driver version is unknown; {needs}"


def _why_not(gpu: GpuArchitecture, capability: str) -> str:
    """Return why the code for an architecture does not run on a GPU of this capability."""
    built = gpu.capability
    if numbers(built)[0] != numbers(capability)[0]:
        return f"built for another major version than this GPU's {capability}"
    if TEGRA & {built, capability}:
        return f"Tegra GPUs run only code built for them, and this GPU has {capability}"
    return f"built for a higher minor version than this GPU's {capability}"
