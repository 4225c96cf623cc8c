"""Whether a build, published, of the matrix or installed, runs on a machine, and on which GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.available import AvailableBuild
from build_pytorch.matrix.compatibility import TEGRA, Fit
from build_pytorch.matrix.versions import numbers, order

_NO_CUDA: Final = re.compile(r"-[0-9]+(-[0-9]+)?(A|B)$")
"""The end of the name of a vGPU for desktops, such as GRID T4-2B: NVIDIA, "Virtual GPU Software
User Guide", vGPU types; checked 2026-11."""
_BLACKWELL: Final = (10, 0)
_FITS: Final[tuple[Fit, ...]] = ("ptx", "compatible", "exact")


class BuildVerdict(Struct, frozen=True):
    """A build on a machine."""

    build: AvailableBuild
    machine: Machine
    gpus: dict[int, Fit] = {}  #: the GPUs that it uses by number, and how its code fits each
    obstacles: tuple[str, ...] = ()  #: why it does not run, or not on some of the GPUs
    doubts: tuple[str, ...] = ()  #: what decides whether it runs, and is not known
    limits: tuple[str, ...] = ()  #: what does not work, although it runs

    @property
    def runs(self) -> bool:
        """Whether it runs: a build with CUDA on a GPU, another one on the CPU."""
        return bool(self.gpus) or not (self.build.cuda or self.obstacles)

    @property
    def used(self) -> list[MachineGpu]:
        """The GPUs that it uses."""
        return [gpu for gpu in self.machine.gpus if gpu.index in self.gpus]

    @property
    def kinds(self) -> list[str]:
        """The capabilities of the GPUs that it uses, each once."""
        return list(dict.fromkeys(gpu.capability or "" for gpu in self.used))

    @property
    def serves(self) -> tuple[bool, tuple[int, ...], int]:
        """Whether it uses all GPUs, the newest that it uses, and how many."""
        newest = max((numbers(it) for it in self.kinds), default=())
        return len(self.gpus) == len(self.machine.gpus), newest, len(self.gpus)

    def on_cpu(self, cpu: Processor) -> BuildVerdict:
        """Return the verdict on a machine with a CPU."""
        flags = cpu.flags.split() if self.build.cpu else []
        missing = [flag for flag in self.build.cpu.split() if flag not in flags]
        if not missing:
            return self
        lacks = f"the CPU lacks {', '.join(missing)}" if flags else "the CPU's flags are unknown"
        return BuildVerdict(self.build, self.machine, obstacles=(lacks,))

    def rank(self, tools: Collection[str] = ()) -> tuple[object, ...]:
        """Return the rank among builds that run; the highest is chosen. This is the one rule.

        A build for all GPUs, else for the newest of them; then one without doubts; then the newest
        PyTorch, of equal ones no preview; then native code; then what a person has `tools` for;
        then PyPI, then the other indexes of wheels; then the newest CUDA.
        """
        build = self.build
        return (
            *self.serves,
            not self.doubts,
            order(build.version),
            build.newest,
            "a" not in build.version,
            min(map(_FITS.index, self.gpus.values()), default=0),
            bool(tools) and build.installer in tools,
            build.index == "",
            build.index is not None,
            numbers(build.cuda),
        )


def judge(build: AvailableBuild, machine: Machine, python: str = "") -> BuildVerdict:
    """Judge a build on a machine with any CPU, for a Python such as `3.12` or any."""
    obstacle = "no NVIDIA GPU with a working driver" if build.cuda and not machine.gpus else ""
    if python and build.pythons and build.installer == "pip" and python not in build.pythons:
        obstacle = f"for Python {build.pythons[0]} to {build.pythons[-1]}; {python} is active"
    if obstacle:
        return BuildVerdict(build, machine, obstacles=(obstacle,))
    gpus: dict[int, Fit] = {}
    obstacles, doubts, limits = [], [], []
    for gpu in machine.gpus if build.cuda else ():
        fit = build.fit(gpu.capability) if gpu.capability else None
        problem, doubt = f"no code for {gpu.capability or 'an unknown capability'}", ""
        if fit:
            problem, doubt = _gpu_problem(build, gpu, machine)
        if problem or not fit:
            obstacles.append(problem)
            continue
        gpus[gpu.index] = fit
        doubts += [doubt] if doubt else []
        newest, is_blackwell = build.blackwell_compile, numbers(gpu.capability or "") >= _BLACKWELL
        if newest and is_blackwell and numbers(machine.driver or "") < numbers(newest):
            limits.append(f"torch.compile fails below driver {newest}")
    texts = (tuple(dict.fromkeys(it)) for it in (obstacles, doubts, limits))
    return BuildVerdict(build, machine, gpus, *texts)


def needed_driver(build: AvailableBuild, gpu: MachineGpu) -> str:
    """Return the oldest driver that runs a build on a GPU: of its CUDA, its PTX and the GPU."""
    known, cuda = known_hardware.of_capability(gpu.capability), known_hardware.load().cuda
    found = [build.driver, (known and known.driver) or "0"]
    if build.cuda in cuda and build.fit(gpu.capability or "") == "ptx":
        found.append(cuda[build.cuda].bundled or "0")  # no driver compiles PTX of a newer CUDA
    return max(found, key=numbers)


def driver_words(build: AvailableBuild, gpu: MachineGpu, machine: Machine) -> str:
    """Return which driver a build needs on a GPU."""
    if gpu.capability in TEGRA:
        return f"a JetPack with CUDA {build.cuda}"
    if machine.is_wsl:
        return f"a driver of Windows for CUDA {build.cuda.partition('.')[0]}"
    return f"driver {needed_driver(build, gpu)} or newer"


def _gpu_problem(build: AvailableBuild, gpu: MachineGpu, machine: Machine) -> tuple[str, str]:
    """Return what is wrong with a GPU and its driver for a build, and what is unknown.

    A driver runs machine code of every CUDA of its major version. On Jetson and in WSL, whose
    drivers have other numbers, the newest CUDA that it supports decides.
    """
    if _NO_CUDA.search(gpu.name):
        return f"{gpu.name} is a vGPU of the A or B series, which have no CUDA", ""
    newest, driver, is_tegra = machine.cuda or "", machine.driver, gpu.capability in TEGRA
    needs = f"needs {driver_words(build, gpu, machine)}"
    reaches_major = bool(newest) and numbers(newest)[0] >= numbers(build.cuda)[0]
    if is_tegra or machine.is_wsl or not driver:
        known = known_hardware.of_capability(gpu.capability)
        if not newest:
            return "", needs
        if not reaches_major or (known and numbers(newest) < numbers(known.first_cuda)):
            return f"{needs}; this one is for CUDA {newest}", ""
        is_older = is_tegra and numbers(newest) < numbers(build.cuda)
        return "", f"built for CUDA {build.cuda}, and this JetPack has {newest}" if is_older else ""
    oldest = needed_driver(build, gpu)
    if numbers(driver) >= numbers(oldest) or driver == oldest.partition(".")[0]:
        return "", ""
    if reaches_major:  # a container brings a newer libcuda, which GeForce refuses (error 804)
        return "", f"driver {driver} is older than {oldest}, but reports CUDA {newest}"
    return f"{needs}; found {driver}", ""
