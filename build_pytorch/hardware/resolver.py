"""The right variant of a machine: the best, the fallbacks in order, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.hardware.fit import JETSON_DOUBT, Fit, Obstacle, is_jetson, judge, number
from build_pytorch.hardware.machine_model import Machine, MachineGpu
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.field_types import Workload
from build_pytorch.matrix.model import Matrix, Variant

_Order = tuple[bool, tuple[int, ...], tuple[int, ...], bool, int]


class Answer(Struct, frozen=True, kw_only=True):
    """What is right for the GPUs of one capability, or for a machine without any."""

    gpus: tuple[MachineGpu, ...]
    best: Fit | None
    fallbacks: tuple[Fit, ...]
    waits_for_driver: Fit | None
    """What would be better than the best, with a newer driver."""
    near_misses: tuple[Obstacle, ...]
    gaps: tuple[str, ...]
    """What matrix.toml would have to hold for a better answer."""
    fits: tuple[Fit, ...]
    """Every variant that was looked at, in the order of the matrix."""


class Recommendation(Struct, frozen=True, kw_only=True):
    """The answers for a machine; `for_all` is the one variant that runs on all of its GPUs."""

    machine: Machine
    workload: Workload
    answers: tuple[Answer, ...]
    for_all: Variant | None


def recommend(
    matrix: Matrix,
    machine: Machine,
    workload: Workload,
    *,
    gpu: int | None = None,
    release: str | None = None,
) -> Recommendation:
    """Find what is right for a machine: for each kind of GPU, or for one of them.

    Raises BuildPytorchError for a GPU or a release that is not there.
    """
    variants = matrix.variants if release is None else _of_release(matrix, release)
    gpus = machine.gpus if gpu is None else (_gpu(machine, gpu),)
    kinds: dict[str | None, list[MachineGpu]] = {}
    for one in gpus:
        kinds.setdefault(one.capability, []).append(one)
    groups: list[tuple[MachineGpu, ...]] = [tuple(group) for group in kinds.values()]
    answers = tuple(_answer(matrix, variants, machine, group, workload) for group in groups or [()])
    return Recommendation(
        machine=machine,
        workload=workload,
        answers=answers,
        for_all=_for_all(answers, workload) if len(answers) > 1 else None,
    )


def _answer(
    matrix: Matrix,
    variants: Sequence[Variant],
    machine: Machine,
    gpus: tuple[MachineGpu, ...],
    workload: Workload,
) -> Answer:
    gpu = gpus[0] if gpus else None
    fits = [judge(variant, machine, gpu) for variant in variants]

    def order(fit: Fit) -> _Order:
        return preference(fit.variant, workload)

    running = sorted((fit for fit in fits if fit.runs), key=order)
    waiting = sorted((fit for fit in fits if fit.waits_for_driver), key=order)
    best = running[0] if running else None
    waits = waiting[0] if waiting and (not best or order(waiting[0]) < order(best)) else None
    return Answer(
        gpus=gpus,
        best=best,
        fallbacks=tuple(running[1:]),
        waits_for_driver=waits,
        near_misses=_near_misses(fits),
        gaps=tuple(_gaps(matrix, variants, machine, gpu, best)),
        fits=tuple(fits),
    )


def preference(variant: Variant, workload: Workload) -> _Order:
    """What sorts variants that run, the best first.

    With a GPU before without; the newest PyTorch; the highest capability, which is the GPU's own
    or the nearest below it; an ISA that is good for the work; the highest level.
    """
    capability = number(variant.gpu.capability) if variant.gpu else ()
    return (
        variant.gpu is None,
        tuple(-part for part in _age(variant.release.torch.version)),
        tuple(-part for part in capability),
        workload not in variant.cpu.good_for,
        -variant.cpu.level,
    )


def _age(version: str) -> tuple[int, ...]:
    """A PyTorch version as numbers; a release comes after its candidates."""
    numbers, _, candidate = version.partition("rc")
    parts = [*number(numbers), 0, 0][:3]
    return (*parts, int(candidate or 10_000))


def _near_misses(fits: Sequence[Fit]) -> tuple[Obstacle, ...]:
    """The obstacles of the variants that have the fewest, of those with a GPU and of those without.

    Each reason stands once: it holds for every variant of its subject.
    """
    found: dict[tuple[str, str], Obstacle] = {}
    for is_gpu in (True, False):
        misses = [fit for fit in fits if (fit.variant.gpu is not None) is is_gpu and not fit.runs]
        fewest = min((len(fit.obstacles) for fit in misses), default=0)
        for fit in misses:
            if len(fit.obstacles) == fewest:
                for obstacle in fit.obstacles:
                    found.setdefault((obstacle.subject, obstacle.text), obstacle)
    return tuple(found.values())


def _gaps(
    matrix: Matrix,
    variants: Sequence[Variant],
    machine: Machine,
    gpu: MachineGpu | None,
    best: Fit | None,
) -> Iterator[str]:
    """What the matrix lacks where the GPU stays unused, or where nothing runs at all."""
    if best and (gpu is None or best.variant.gpu):
        return
    here = {key: cpu for key, cpu in matrix.cpus.items() if cpu.platform == machine.platform}
    if not here:
        platforms = " and ".join(dict.fromkeys(cpu.platform for cpu in matrix.cpus.values()))
        yield f"nothing is built for {machine.platform}, only for {platforms}"
        return
    able = sorted(
        (key for key, cpu in here.items() if not machine.cpu.lacks(cpu.cpuinfo)),
        key=lambda key: -here[key].level,
    )
    if not machine.cpu.flags:
        yield "the CPU's flags are unknown, so that no CPU ISA of the matrix is known to fit"
        return
    if not able:
        lowest = min(here, key=lambda key: here[key].level)
        wanted = ", ".join(here[lowest].cpuinfo)
        yield f"no CPU ISA of the matrix fits: the lowest, {lowest}, asks for {wanted}"
        return
    if gpu and gpu.capability:
        yield from _gpu_gaps(matrix, variants, machine, gpu, able)
    if best is None and not any(v.gpu is None and v.cpu_key in able for v in variants):
        yield f"cpu-{able[0]} would run without a GPU, and no group of the matrix makes it"


def _gpu_gaps(
    matrix: Matrix, variants: Sequence[Variant], machine: Machine, gpu: MachineGpu, able: list[str]
) -> Iterator[str]:
    """What the matrix lacks for a GPU whose capability is known; `able` are the ISAs that fit."""
    device = gpu.capability or ""
    fitting = [key for key, it in matrix.gpus.items() if runs_on(it.capability, device)]
    keys = [key for key in fitting if machine.platform in matrix.gpus[key].hosts]
    if not fitting:
        yield f"no GPU architecture of the matrix runs on capability {device} ({gpu.name})"
    elif not keys:
        yield (
            f"{', '.join(fitting)} would fit capability {device} ({gpu.name}), and the matrix "
            f"knows no {machine.platform} machine with it"
        )
    elif not any(v.gpu_key in keys and v.cpu_key in able for v in variants):
        key = max(keys, key=lambda key: number(matrix.gpus[key].capability))
        yield f"{key}-{able[0]} would fit, and no group of the matrix makes it"
    if is_jetson(gpu) and fitting and device not in {matrix.gpus[k].capability for k in fitting}:
        yield JETSON_DOUBT


def _for_all(answers: Sequence[Answer], workload: Workload) -> Variant | None:
    """The best variant with GPU code that runs on every GPU, or None."""
    columns = zip(*(answer.fits for answer in answers), strict=True)
    shared = [
        fits[0].variant for fits in columns if fits[0].variant.gpu and all(fit.runs for fit in fits)
    ]
    return min(shared, key=lambda variant: preference(variant, workload), default=None)


def _of_release(matrix: Matrix, name: str) -> Sequence[Variant]:
    if name not in matrix.releases:
        known = ", ".join(matrix.releases)
        hint = near_miss(name, matrix.releases)
        raise BuildPytorchError(f'--release: found "{name}"; allowed: {known}{hint}')
    return matrix.of_release(name)


def _gpu(machine: Machine, index: int) -> MachineGpu:
    if index not in machine.by_index:
        known = ", ".join(map(str, machine.by_index)) or "none, as this machine has no GPU"
        raise BuildPytorchError(f"--gpu: found {index}; allowed: {known}")
    return machine.by_index[index]
