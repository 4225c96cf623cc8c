"""Builds of the matrix: the best that could be built for a machine, and whether to build it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdict import BuildVerdict, judge
from build_pytorch.matrix.available import WITH_CUDNN, AvailableBuild
from build_pytorch.matrix.compatibility import compiles, cuda_window, missing_cpu_flags, runs_on
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import GpuArchitecture, Release
from build_pytorch.matrix.versions import numbers, order

_SIZE: Final = "for size (libtorch_cuda 2.6: 192 MB, not 903) or one CUDA in Nix"
"""Measured with 2.6.0, built for 9.0 and run on an H100: docs/explanation/worth.md."""


class BuildAdvice(Struct, frozen=True, kw_only=True):
    """The best variant that could be built, and whether there is a reason to build it."""

    variant: str = ""  #: its id; empty if none runs
    has_reason: bool = False
    says: str = "no reason: no instruction set that is known here fits this CPU"
    lines: str = ""  #: what to append to matrix.toml, if it lacks the variant
    rejected: dict[str, str]  #: releases that have nothing for the GPUs, with the reason


def own_build(
    release: Release, gpu: GpuArchitecture | None, platform: str, command: str = "", cpu: str = ""
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


def flags_up_to(matrix: Matrix, key: str) -> str:
    """Return the flags of an ISA and of the lower ones of its platform, which its CPUs have."""
    isa = matrix.cpus[key]
    same = (it for it in matrix.cpus.values() if it.platform == isa.platform)
    below = [it for it in same if it.level <= isa.level]
    return " ".join(dict.fromkeys(flag for it in below for flag in it.cpuinfo))


def advice(matrix: Matrix, machine: Machine, ready: Sequence[BuildVerdict]) -> BuildAdvice:
    """Return whether to build the ideal variant, given the published builds that run.

    The ideal is the best of all known GPU architectures and ISAs. Of equal ones the matrix's own
    comes first, then an ISA that is no alias, then the highest.
    """
    kinds, flags = {gpu.capability or "" for gpu in machine.gpus} - {""}, machine.cpu.flags.split()
    gpus: dict[str | None, GpuArchitecture | None] = {None: None} | {
        key: gpu
        for key, gpu in matrix.gpus.items()
        if machine.platform in gpu.hosts and any(runs_on(gpu.capability, it) for it in kinds)
    }
    isas = {
        key: isa
        for key, isa in matrix.cpus.items()
        if isa.platform == machine.platform and not missing_cpu_flags(isa, flags)
    }
    rejected: dict[str, str] = {}
    running: dict[tuple[str, str | None], BuildVerdict] = {}
    for name, release in matrix.releases.items():
        if release.torch.is_nightly:
            continue
        verdicts = {key: _verdict(release, gpu, machine) for key, gpu in gpus.items()}
        of_gpus = [it for key, it in verdicts.items() if key]
        if of_gpus and not any(it.runs for it in of_gpus):
            rejected[f"release {name}"] = "; ".join(of_gpus[0].obstacles)
        running |= {(name, key): it for key, it in verdicts.items() if it.runs}
    if not (running and isas):
        return BuildAdvice(rejected=rejected)
    ranks = {place: it.rank() for place, it in running.items()}
    equal = [place for place, rank in ranks.items() if rank == max(ranks.values())]
    own = [it for it in matrix.variants if (it.release_name, it.gpu_key) in equal]
    existing = {(it.release_name, it.gpu_key, it.cpu_key): it.id for it in own}
    best = max(
        ((*place, isa) for place in equal for isa in isas),
        key=lambda it: (it in existing, not isas[it[2]].same_as, isas[it[2]].level),
    )
    has_reason, says = _reason(running[best[:2]], ready)
    short = "darwin-mps" if best[2] == "apple" else f"{best[1] or 'cpu'}-{best[2]}"
    new = f"{best[0]}/{short}" if len(matrix.releases) > 1 else short
    return BuildAdvice(
        variant=existing.get(best, new),
        has_reason=has_reason,
        says=says,
        lines="" if best in existing else group_lines(*best),
        rejected=rejected,
    )


def _verdict(release: Release, gpu: GpuArchitecture | None, machine: Machine) -> BuildVerdict:
    """Judge what a release has, or could have, for a GPU architecture or for the CPU alone."""
    build, cuda = own_build(release, gpu, machine.platform), release.cuda
    if gpu is None or compiles(cuda, gpu):
        return judge(build, machine)
    what = f"CUDA {cuda.version}" if cuda else "a release without CUDA"
    why = f"{what} does not compile for {gpu.capability}: CUDA {cuda_window(gpu)} does"
    return BuildVerdict(build, machine, obstacles=(why,))


def _reason(own: BuildVerdict, ready: Sequence[BuildVerdict]) -> tuple[bool, str]:
    """Return whether there is a reason to build, and which."""
    version, code = own.build.version, own.build.code
    best = ready[0].serves if ready else (False, (), -1)
    if own.serves > best:
        return True, f"{version}; nothing ready runs here"
    if own.serves < best:
        return False, "no reason: no release here can be built for the same GPUs"
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


def group_lines(release: str, gpu: str | None, isa: str) -> str:
    """Return the group to append to matrix.toml, so that a release has a variant."""
    own = f'gpu = ["{gpu}"]\n' if gpu else ""
    head = f'[[release.{release}.group]]\ntitle = "For {gpu or "cpu"}-{isa}"\n'
    return f'{head}{own}cpu = ["{isa}"]\n'
