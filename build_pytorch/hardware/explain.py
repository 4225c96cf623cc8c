"""Texts for a machine and a recommendation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from build_pytorch.hardware.resolver import Candidate
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.matrix.tables import CpuIsa


def machine_lines(machine: Machine, isas: Iterable[CpuIsa] = ()) -> list[str]:
    """Return what is known of a machine, without its notes. May hold control characters.

    Of the CPU's flags, those that decide between `isas`.
    """
    cpu = machine.cpu
    name = cpu.model or cpu.vendor or "an unknown CPU"
    here = [isa.cpuinfo for isa in isas if isa.platform == machine.platform]
    deciding = dict.fromkeys(flag for flags in here for flag in flags)
    flags = cpu.flags.split()
    there = " ".join(flag for flag in deciding if flag in flags) or "none"
    absent = " ".join(flag for flag in deciding if flag not in flags)
    gpus = []
    for gpu in machine.gpus:
        memory = f", {gpu.memory / 2**30:.0f} GiB" if gpu.memory else ""
        text = f"{gpu.name}, capability {gpu.capability or 'unknown'}{memory}"
        gpus.append((str(gpu.index), text))
    lines = [f"machine  {machine.platform}, {name}"]
    if flags and deciding:
        lines.append(f"flags    {there}" + (f"; lacks {absent}" if absent else ""))
    lines += [f"gpu {numbers:<4} {text}" for numbers, text in joined(gpus)]
    if machine.driver or machine.cuda:
        cuda = f", supports CUDA {machine.cuda}" if machine.cuda else ""
        lines.append(f"driver   {machine.driver or 'of unknown version'}{cuda}")
    return lines if machine.gpus else [*lines, "gpu      none with a working driver"]


def joined(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join the rows that have the same second text into one row."""
    subjects: dict[str, list[str]] = {}
    for subject, text in rows:
        subjects.setdefault(text, []).append(subject)
    return [(", ".join(several), text) for text, several in subjects.items()]


def commands(
    variant: Variant, organization: str, companions: Sequence[CompanionPackage] = ()
) -> dict[str, list[str]]:
    """Return the commands that install, build and publish a variant.

    `organization` is where the current recipe's result is published, or "". With `companions`,
    `set` installs the variant with those that belong to it.
    """
    name = variant.id
    return {
        "install": [install([variant], organization)],
        **({"set": [install([variant, *companions], organization)]} if companions else {}),
        "build": [f"invoke build {name}", f'nox -s "build({name})"'],
        "publish": [f"invoke publish {name}"],
    }


def companion_commands(package: CompanionPackage, organization: str) -> dict[str, list[str]]:
    """Return the commands that install, build and publish a companion with its variant."""
    both = f"{package.variant.id} {package.id}"
    return {
        "install": [install([package.variant, package], organization)],
        "build": [f"invoke build {package.id}"],
        "publish": [f"invoke publish {both}"],
    }


def install(packages: Sequence[Package], organization: str) -> str:
    """Return the command that installs packages of one organization together."""
    names = (f"{organization or 'ORG'}/{each.package}" for each in packages)
    return f"flox install {' '.join(names)}"


def why_best(best: Candidate) -> str:
    """Return why a candidate is the first of the ranking."""
    return f"{_gpu_code(best)}; {best.variant.cpu.title}"


def why_fallback(fallback: Candidate, best: Candidate) -> str:
    """Return how a fallback differs from the best."""
    variant, other = fallback.variant, best.variant
    parts = []
    if variant.release is not other.release:
        parts.append(f"PyTorch {variant.release.torch.version}")
    if variant.gpu_key != other.gpu_key:
        parts.append(_gpu_code(fallback))
    if variant.cpu_key != other.cpu_key:
        below = variant.cpu.level < other.cpu.level
        parts.append(f"{variant.cpu.title}, {'a lower' if below else 'the higher'} level")
    return "; ".join(parts) or "the same in another group"


def _gpu_code(candidate: Candidate) -> str:
    if candidate.variant.gpu is None:
        return "leaves the GPU unused" if candidate.gpu else "no GPU"
    built = candidate.variant.gpu.arch_list
    if candidate.grade == "exact":
        return f"built for exactly this GPU's capability {built}"
    return (
        f"built for capability {built}, which runs on {candidate.gpu and candidate.gpu.capability}"
    )
