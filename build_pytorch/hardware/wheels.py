"""The official wheel for a machine, and measurements of builds against it and each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base.versions import digits, numbers, order
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.hardware.verdicts import DriverNeed, Obstacle, driver_limit
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import TEGRA
from build_pytorch.matrix.official_wheels import OfficialWheel, official_wheels, runs_on

WHEEL: Final = "wheel "
"""How the name of an official wheel begins in a measurement, where another has a package's id."""
INDEX: Final = "https://download.pytorch.org/whl/"
"""Official wheels by CUDA line, such as .../cu128; pytorch.org, "Get started", 2026-11-22."""
_CODE: Final = {
    "exact": "machine code for {}",
    "compatible": "machine code that runs on {}",
    "ptx": "PTX, which the driver compiles for {} at the first start",
    None: "no code for {}, which stays unused",
}


class Measurement(Struct, frozen=True, kw_only=True):
    """The result of a comparison of a package with another one or with the wheel."""

    package: str
    against: str
    machine_class: str
    """The model of the CPU, its cores, and the names of the GPUs, with commas."""
    verdict: str
    figures: str
    """The verdict of each setting, with the ratio of times and its interval."""
    date: str

    @property
    def says(self) -> str:
        """The result in words."""
        return f"{self.verdict} on {self.machine_class}, {self.date} ({self.figures})"

    def is_like(self, machine: Machine, gpus: Sequence[MachineGpu]) -> bool:
        """Return whether a machine is of the class: it has the CPU, and GPUs of these names."""
        model = f"{machine.cpu.model}, "
        _, *names = self.machine_class.removeprefix(model).split(", ")
        return self.machine_class.startswith(model) and {*names} <= {gpu.name for gpu in gpus}


class ChosenWheel(Struct, frozen=True, kw_only=True):
    """The official wheel for a machine."""

    wheel: OfficialWheel
    code: str
    """What it has for each kind of GPU."""
    limits: tuple[str, ...]
    """What is wrong with the driver, or unknown about it."""
    runs_on: int
    """Number of kinds of GPUs on which it runs with the driver as it is."""

    @property
    def title(self) -> str:
        """Its version and CUDA."""
        cuda = f"for CUDA {self.wheel.cuda}" if self.wheel.cuda else "for the CPU"
        return f"torch {self.wheel.torch} {cuda}"

    @property
    def command(self) -> str:
        """The command that installs it."""
        index = f" --index-url {INDEX}{self.wheel.index}" if self.wheel.index else ""
        return f"uv pip install torch=={self.wheel.torch}{index}"


def choose_wheel(machine: Machine, gpus: Sequence[MachineGpu], torch: str) -> ChosenWheel | None:
    """Return the wheel that serves most GPUs, then the one of a version of PyTorch, or the newest.

    Without a GPU that a wheel has code for, it is one without CUDA. None if none is known for the
    platform.
    """
    known = [wheel for wheel in official_wheels() if wheel.platform == machine.platform]
    kinds = {gpu.capability for gpu in gpus}
    if not any(kind is None or runs_on(wheel, kind) for wheel in known for kind in kinds):
        # PyTorch's own index has each version without CUDA, too.
        known = [replace(wheel, cuda="", index="cpu", sass=(), ptx=()) for wheel in known]
    judged = [_judge(wheel, machine, gpus, torch) for wheel in known]
    return max(judged, key=lambda row: row[0], default=((), None))[1]


def _judge(
    wheel: OfficialWheel, machine: Machine, gpus: Sequence[MachineGpu], torch: str
) -> tuple[tuple[object, ...], ChosenWheel]:
    """Return the rank of a wheel, and what is to say about it."""
    kinds = {gpu.capability: gpu for gpu in gpus if gpu.capability}
    code = {capability: runs_on(wheel, capability) for capability in kinds}
    needs = {capability: wheel_need(wheel, capability) for capability in kinds if code[capability]}
    limits = {key: driver_limit(need, machine, kinds[key]) for key, need in needs.items()}
    running = [key for key, limit in limits.items() if not isinstance(limit, Obstacle)]
    texts = [it.text if isinstance(it, Obstacle) else it for it in limits.values() if it]
    rank = (
        len(running),
        len(limits),
        list(code.values()).count("ptx") * -1,
        wheel.torch == torch,
        order(wheel.torch),
        numbers(wheel.cuda or "0"),
    )
    said = [_CODE[fit].format(capability) for capability, fit in code.items()]
    if needs and not texts:
        oldest = max((need.driver for need in needs.values()), key=numbers)
        said.append(f"needs driver {oldest} or newer")
    return rank, ChosenWheel(
        wheel=wheel,
        code="; ".join(said) or "runs on the CPU",
        limits=tuple(dict.fromkeys(texts)),
        runs_on=len(running),
    )


def wheel_need(wheel: OfficialWheel, capability: str) -> DriverNeed:
    """Return what a wheel asks of the driver of a GPU.

    A driver runs machine code of each newer CUDA of its major version, and no PTX of it.
    """
    known, major = known_hardware.load(), wheel.cuda.partition(".")[0]
    cuda, is_ptx = known.cuda_like(wheel.cuda), runs_on(wheel, capability) == "ptx"
    oldest = (cuda and ((is_ptx and cuda.bundled) or cuda.driver)) or "0"
    gpu = known.first_driver(capability)
    if gpu and numbers(gpu) > numbers(oldest):
        return DriverNeed(f"{major}.0", gpu, f"SM{digits(capability)}")
    if is_ptx or capability in TEGRA:  # whose drivers have other numbers
        return DriverNeed(wheel.cuda, oldest, "")
    return DriverNeed(f"{major}.0", oldest, f"CUDA {major}")
