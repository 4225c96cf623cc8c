"""Builds of the matrix: the best that could be built for a machine, and whether to build it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from build_pytorch.base.versions import numbers, order
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdict import BuildVerdict, judge
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.available import AvailableBuild
from build_pytorch.matrix.compatibility import compiles, cuda_window, missing_cpu_flags, runs_on
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import GpuArchitecture, Release

WITH_CUDNN: Final = (7, 5)
"""GPUs below this capability get no cuDNN of 9.11 or newer: NVIDIA, support matrix, 2026-11."""
_SIZE: Final = "only for size (libtorch_cuda half, estimated) or one CUDA in Nix"
"""Source: in libtorch_cuda.so of 2.14.1+cu130, code for one GPU and the host is 233 of 503 MB;
docs/explanation/worth.md."""


class BuildAdvice(Struct, frozen=True, kw_only=True):
    """The best variant that could be built, and whether there is a reason to build it."""

    variant: str  #: its id; empty if none runs
    has_reason: bool
    says: str
    lines: str  #: what to append to matrix.toml, if it lacks the variant
    rejected: dict[str, str]  #: releases that have nothing for the GPUs, with the reason


class _Possible(NamedTuple):
    """What a release has, or could have, for a GPU or for the CPU alone."""

    release: str
    gpu: str | None
    verdict: BuildVerdict


def own_build(
    release: Release, gpu: GpuArchitecture | None, platform: str, command: str, cpu: str
) -> AvailableBuild:
    """Return a variant as a build that a command installs; `cpu` are flags that it needs."""
    cuda = release.cuda if gpu else None
    return AvailableBuild(
        who="Flox" if command else "matrix",
        versions=(release.torch.version,),
        platform=platform,
        cuda=cuda.version if cuda else "",
        code=(gpu.capability,) if gpu else (),
        cpu=cpu,
        driver=cuda.driver if cuda else "0",
        command=command,
    )


def advice(matrix: Matrix, machine: Machine, ready: Sequence[BuildVerdict]) -> BuildAdvice:
    """Return whether to build the ideal variant, given the published builds that run.

    The ideal is the best of all known GPU architectures and ISAs. Of equal ones the matrix's own
    comes first, then an ISA that is no alias, then the highest.
    """
    possible, flags = list(_possible(matrix, machine)), machine.cpu.flags.split()
    running = [it for it in possible if it.verdict.runs]
    served = {it.release for it in running if it.gpu}
    rejected = {
        f"release {it.release}": "; ".join(it.verdict.obstacles)
        for it in possible
        if it.gpu and it.release not in served
    }
    isas = {
        key: (not isa.same_as, isa.level)
        for key, isa in {**known_hardware.load().cpu, **matrix.cpus}.items()
        if isa.platform == machine.platform and not missing_cpu_flags(isa, flags)
    }
    if not (running and isas):
        says = "no reason: no instruction set that is known here fits this CPU"
        return BuildAdvice(variant="", has_reason=False, says=says, lines="", rejected=rejected)
    existing = {(it.release_name, it.gpu_key, it.cpu_key): it.id for it in matrix.variants}

    def rank(place: tuple[_Possible, str]) -> tuple[object, ...]:
        it, isa = place
        is_existing = (it.release, it.gpu, isa) in existing
        return it.verdict.rank(machine), is_existing, isas[isa]

    (release, gpu, verdict), isa = max(((it, isa) for it in running for isa in isas), key=rank)
    has_reason, says = _reason(verdict, machine, ready)
    variant = existing.get((release, gpu, isa))
    return BuildAdvice(
        variant=variant or id_of(matrix, release, gpu, isa),
        has_reason=has_reason,
        says=says,
        lines="" if variant else group_lines(release, gpu, isa, machine.platform),
        rejected=rejected,
    )


def _possible(matrix: Matrix, machine: Machine) -> Iterator[_Possible]:
    """Yield what each release that is no nightly could have for a machine, with the obstacles."""
    kinds = {gpu.capability for gpu in machine.gpus if gpu.capability}
    architectures: list[tuple[str | None, GpuArchitecture | None]] = [(None, None)]
    for sm, gpu in {**known_hardware.load().gpu, **matrix.gpus}.items():
        if machine.platform in gpu.hosts and any(runs_on(gpu.capability, it) for it in kinds):
            architectures.append((sm, gpu))
    releases = {key: it for key, it in matrix.releases.items() if not it.torch.is_nightly}
    for name, release in releases.items():
        for key, architecture in architectures:
            build = own_build(release, architecture, machine.platform, "", "")
            verdict = judge(build, machine)
            if architecture and not compiles(release.cuda, architecture):
                what = f"CUDA {release.cuda.version}" if release.cuda else "a release without CUDA"
                why = f"{what} does not compile for {architecture.capability}"
                why += f": {cuda_window(architecture)} does"
                verdict = BuildVerdict(build=build, obstacles=(why,))
            yield _Possible(name, key, verdict)


def _reason(own: BuildVerdict, machine: Machine, ready: Sequence[BuildVerdict]) -> tuple[bool, str]:
    """Return whether there is a reason to build, and which."""
    version, code = own.build.version, own.build.code
    best = ready[0].serves(machine) if ready else (False, (), -1)
    if own.serves(machine) > best:
        return True, f"{version}; nothing ready runs here"
    if own.serves(machine) < best:
        if len({gpu.capability for gpu in machine.gpus}) > 1:
            return False, "no reason: no variant has code for all the GPUs"
        return False, "no reason: no release here can be built for this GPU"
    if not code:
        return False, "no reason: PyTorch chooses its code for the CPU when it runs"
    if all(order(version) > order(it.build.version) for it in ready):
        return True, f"{version}; newer than everything that is ready"
    alone = [it.build for it in ready if it.build.code == code]
    if alone and order(alone[0].version) >= order(version):
        what = f"{alone[0].who} has {alone[0].version} for this GPU alone"
        return False, f"no reason: {what}, the matrix {version}"
    if numbers(code[0]) < WITH_CUDNN:
        what = f"nothing newer than {version} can be built for {code[0]}, and that without cuDNN"
        return False, f"no reason: {what}"
    return True, f"{version}; {_SIZE}"


def id_of(matrix: Matrix, release: str, gpu: str | None, isa: str) -> str:
    """Return the id that a variant gets which a matrix lacks."""
    short = "darwin-mps" if isa == "apple" else f"{gpu or 'cpu'}-{isa}"
    return f"{release}/{short}" if len(matrix.releases) > 1 else short


def group_lines(release: str, gpu: str | None, isa: str, platform: str) -> str:
    """Return the group to append to matrix.toml, so that a release has a variant."""
    kind = "gpu" if gpu else "mps" if platform.endswith("-darwin") else "cpu-only"
    own = f'gpu = ["{gpu}"]\n' if gpu else ""
    head = f'[[release.{release}.group]]\ntitle = "For {gpu or "cpu"}-{isa}"\n'
    return f'{head}kind = "{kind}"\nplatform = "{platform}"\n{own}cpu = ["{isa}"]\n'
