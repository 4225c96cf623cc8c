"""Resolve which variants run on a machine, the best first: a pure function of explicit facts.

Every variant becomes a candidate that is accepted, or rejected with its obstacles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct
from packaging.version import Version

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.matrix.compatibility import TEGRA, fit, missing_cpu_flags
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.source_tables import CudaToolkit

_UNKNOWN_FLAGS: Final = "the CPU's flags are unknown"
CONSUMER: Final = ("geforce", "titan")
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


class Candidate(Struct, frozen=True, kw_only=True):
    """A variant on a machine with one of its GPUs or none; it is accepted without obstacles."""

    variant: Variant
    gpu: MachineGpu | None
    grade: Literal["exact", "compatible", "cpu-only"]
    """How the GPU code fits; "exact" also if it does not fit."""
    obstacles: tuple[Obstacle, ...]
    doubts: tuple[str, ...]
    """What could not be verified."""

    @property
    def waits_for_driver(self) -> bool:
        """Whether the variant would run with a newer driver."""
        return [obstacle.kind for obstacle in self.obstacles] == ["driver"]


class Answer(Struct, frozen=True, kw_only=True):
    """The result for all GPUs of one capability, or for a machine without GPUs."""

    gpus: tuple[MachineGpu, ...]
    candidates: tuple[Candidate, ...]
    """Every variant, in the order of the matrix."""
    best: Candidate | None
    fallbacks: tuple[Candidate, ...]
    """The other accepted candidates, the best first."""
    waits_for_driver: Candidate | None
    """A variant that would be better than the best, with a newer driver."""
    gaps: tuple[str, ...]
    """What matrix.toml lacks for a better answer."""

    @property
    def near_misses(self) -> tuple[Obstacle, ...]:
        """The obstacles of the candidates that have the fewest, with GPU code and without."""
        found: list[Obstacle] = []
        for is_gpu in (True, False):
            lists = [it.obstacles for it in self.candidates if bool(it.variant.gpu) is is_gpu]
            fewest = min((len(obstacles) for obstacles in lists if obstacles), default=0)
            found += [it for obstacles in lists if len(obstacles) == fewest for it in obstacles]
        return tuple(dict.fromkeys(found))


class Recommendation(Struct, frozen=True, kw_only=True):
    """The answers for a machine; `for_all` is the best variant that runs on all of its GPUs."""

    answers: tuple[Answer, ...]
    for_all: Variant | None


def preference(variant: Variant) -> tuple[bool, bool, Version, Version, bool, int, bool]:
    """Return the rank of a variant among those that run; the highest is recommended.

    GPU code ranks above none; then a release above a nightly; then the newest PyTorch; then the
    highest capability, which is the GPU's own or the nearest below; then a build for one GPU
    alone; then the level of the ISA; then the CUDA packages of the pin.
    """
    return (
        variant.gpu is not None,
        not variant.release.torch.is_nightly,
        Version(variant.release.torch.version),
        Version(variant.gpu.capability if variant.gpu else "0"),
        variant.gpu is None or variant.gpu.is_single,
        variant.cpu.level,
        not variant.is_wrapper,
    )


def recommend(
    matrix: Matrix,
    machine: Machine,
    *,
    gpu: int | None = None,
    release: str | None = None,
) -> Recommendation:
    """Resolve a machine, for each kind of its GPUs or for the one with the number `gpu`.

    Raises BuildPytorchError for an unknown GPU or release.
    """
    if release is not None:
        require_release(matrix, release)
    wanted = [it for it in machine.gpus if gpu in {None, it.index}]
    if gpu is not None and not wanted:
        known = ", ".join(str(it.index) for it in machine.gpus) or "none; this machine has no GPU"
        raise BuildPytorchError(f"--gpu: found {gpu}; allowed: {known}")
    variants = matrix.variants if release is None else matrix.of_release(release)
    kinds: dict[str | None, list[MachineGpu]] = {}
    for it in wanted:
        kinds.setdefault(it.capability, []).append(it)
    resolver = Resolver(matrix=matrix, variants=variants, machine=machine)
    answers = tuple(resolver.answer(tuple(gpus)) for gpus in kinds.values() or [()])
    shared = [
        row[0].variant
        for row in zip(*(answer.candidates for answer in answers), strict=True)
        if len(answers) > 1 and row[0].variant.gpu and not any(it.obstacles for it in row)
    ]
    for_all = max(shared, key=preference, default=None)
    return Recommendation(answers=answers, for_all=for_all)


class Resolver(Struct, frozen=True, kw_only=True):
    """The facts that all answers share."""

    matrix: Matrix
    variants: tuple[Variant, ...]
    machine: Machine

    def answer(self, gpus: tuple[MachineGpu, ...]) -> Answer:
        """Judge every variant for GPUs of one kind, and rank those that run."""
        gpu = gpus[0] if gpus else None
        candidates = tuple(self.candidate(variant, gpu) for variant in self.variants)
        ranking = sorted(
            (it for it in candidates if not it.obstacles or it.waits_for_driver),
            key=lambda it: (preference(it.variant), not it.obstacles),
            reverse=True,
        )
        accepted = [it for it in ranking if not it.obstacles]
        best = next(iter(accepted), None)
        return Answer(
            gpus=gpus,
            candidates=candidates,
            best=best,
            fallbacks=tuple(accepted[1:]),
            waits_for_driver=ranking[0] if ranking and ranking[0] is not best else None,
            gaps=tuple(self._gaps(gpu, best)),
        )

    def candidate(self, variant: Variant, gpu: MachineGpu | None) -> Candidate:
        """Judge a variant, which need not be in the matrix, for a GPU or for none."""
        runs = None
        if variant.gpu and gpu and gpu.capability:
            runs = fit(variant.gpu, gpu.capability)
        found = list(self._limits(variant, gpu, runs))
        return Candidate(
            variant=variant,
            gpu=gpu,
            grade=(runs or "exact") if variant.gpu else "cpu-only",
            obstacles=tuple(it for it in found if isinstance(it, Obstacle)),
            doubts=tuple(it for it in found if isinstance(it, str)),
        )

    def _limits(
        self, variant: Variant, gpu: MachineGpu | None, runs: str | None
    ) -> Iterator[Obstacle | str]:
        """Yield why a variant does not run, as obstacles, and doubts as texts."""
        platform, flags = variant.cpu.platform, self.machine.cpu.flags.split()
        if platform != self.machine.platform:  # another platform has other flags
            yield Obstacle("platform", platform, f"this machine is {self.machine.platform}")
        elif missing := missing_cpu_flags(variant.cpu, flags):
            text = f"the CPU lacks {', '.join(missing)}" if flags else _UNKNOWN_FLAGS
            yield Obstacle("flags", variant.cpu_key, text)
        if not (variant.gpu and variant.gpu_key):
            return
        if variant.impossible:
            yield Obstacle("host", variant.gpu_key, variant.impossible)
        if gpu is None or gpu.capability is None:
            text = "no GPU with a working driver"
            if gpu:
                text = f"the capability of GPU {gpu.index} is unknown; add it to a description"
            yield Obstacle("gpu", "GPU variants", text)
        elif runs is None:
            yield Obstacle("capability", variant.gpu_key, _why_not(variant, gpu.capability))
        if gpu and variant.release.cuda:
            yield from self._driver_limits(variant, variant.release.cuda, gpu)

    def _driver_limits(
        self, variant: Variant, cuda: CudaToolkit, gpu: MachineGpu
    ) -> Iterator[Obstacle | str]:
        """Accept a driver by its version, or by the newest CUDA version that it supports.

        CUDA itself compares the latter. It decides where driver versions mislead: Jetson and
        Windows (below WSL) number them differently, and a container may bring a newer libcuda.
        """
        driver, newest, oldest = self.machine.driver, self.machine.cuda, variant.driver
        whose = f"CUDA {cuda.version}" if oldest == cuda.driver else variant.gpu_label
        needs = f"{whose} needs driver {oldest} or newer"
        if driver and driver.isdecimal() and driver == oldest.partition(".")[0]:
            yield f"driver {driver}: {needs}"
            return
        if driver and Version(driver) >= Version(oldest) and not (self.machine.is_wsl and newest):
            return
        is_enough = newest is not None and Version(newest) >= Version(cuda.version)
        if self.machine.is_wsl and newest:  # versions of Windows drivers: CUDA decides alone
            # Minor-version compatibility: the driver of 12.0 runs all of CUDA 12.
            if is_enough or Version(newest).major == Version(cuda.version).major:
                return
            driver = None
        if is_enough and driver and any(word in gpu.name.lower() for word in CONSUMER):
            why = "a libcuda newer than the driver does not run on this GPU (error 804)"
            yield Obstacle("driver", variant.release_name, f"{needs}; found {driver}; {why}")
        elif is_enough:
            if driver:
                yield f"driver {driver} is older than {oldest}, but supports CUDA {newest}"
        elif driver or newest:
            found = f"found driver {driver or f'for CUDA {newest}'}"
            yield Obstacle("driver", variant.release_name, f"{needs}; {found}")
        else:
            yield f"the driver version is unknown; {needs}"

    def _gaps(self, gpu: MachineGpu | None, best: Candidate | None) -> Iterator[str]:
        """Yield what matrix.toml lacks if the GPU stays unused or no variant runs."""
        if best and (gpu is None or best.variant.gpu):
            return
        cpus, platform = self.matrix.cpus, self.machine.platform
        flags = self.machine.cpu.flags.split()
        isas = [key for key, cpu in cpus.items() if cpu.platform == platform]
        isas.sort(key=lambda key: cpus[key].level, reverse=True)
        fitting = [key for key in isas if not missing_cpu_flags(cpus[key], flags)]
        if not isas:
            platforms = " and ".join(dict.fromkeys(cpu.platform for cpu in cpus.values()))
            yield f"no variant is for {platform}, only for {platforms}"
        elif not flags:
            yield f"{_UNKNOWN_FLAGS}, so it is unknown which CPU ISA of the matrix fits"
        elif not fitting:
            needed = ", ".join(cpus[isas[-1]].cpuinfo)
            yield f"no CPU ISA of the matrix fits: the lowest, {isas[-1]}, needs {needed}"
        else:
            if gpu and gpu.capability:
                yield from self._gpu_gaps(gpu, gpu.capability, fitting)
            cpu_only = {v.cpu_key for v in self.variants if not v.gpu}
            if best is None and cpu_only.isdisjoint(fitting):
                yield f"cpu-{fitting[0]} would run without a GPU, but no group of the matrix has it"

    def _gpu_gaps(self, gpu: MachineGpu, capability: str, isas: Sequence[str]) -> Iterator[str]:
        """Yield what matrix.toml lacks for a GPU of known capability; `isas` fit the CPU."""
        gpus, platform = self.matrix.gpus, self.machine.platform
        fitting = [key for key, it in gpus.items() if fit(it, capability)]
        keys = [key for key in fitting if platform in gpus[key].hosts]
        if not fitting:
            only = "; Jetson and DRIVE GPUs run only code built for them"
            yield (
                f"no GPU architecture of the matrix runs on capability {capability} ({gpu.name})"
                f"{only if capability in TEGRA else ''}"
            )
        elif not keys:
            names, lack = ", ".join(fitting), f"the matrix has no {platform} host for it"
            yield f"{names} would run on capability {capability} ({gpu.name}), but {lack}"
        elif not any(v.gpu_key in keys and v.cpu_key in isas for v in self.variants):
            key = max(keys, key=lambda key: Version(gpus[key].capability))
            yield f"{key}-{isas[0]} would run, but no group of the matrix has it"


def _why_not(variant: Variant, capability: str) -> str:
    """Return why the code of a GPU variant does not run on a GPU of this capability."""
    built = variant.gpu.capability if variant.gpu else ""
    if variant.gpu and not variant.gpu.is_single:
        return f"built for {variant.gpu.arch_list}, and this GPU has {capability}"
    if Version(built).major != Version(capability).major:
        what = "another major version"
    elif TEGRA & {built, capability}:
        return f"Tegra GPUs run only code built for them, and this GPU has {capability}"
    else:
        what = "a higher minor version"
    return f"built for {what} than this GPU's {capability}"
