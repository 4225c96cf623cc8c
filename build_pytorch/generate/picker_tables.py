"""The tables of the picker: the map of each release, classes of CPUs."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from build_pytorch.base.versions import numbers
from build_pytorch.generate.pages import MapCell, ReleaseMap
from build_pytorch.hardware.possible import PossibleVariants
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import Release

STATES: Final = {
    "listed": ("●", "in the matrix, with a recipe"),
    "addable": ("+", "not in the matrix yet; it could be"),
    "impossible": ("-", "no machine has that GPU with that CPU"),
    "never": ("·", "this CUDA does not compile for that GPU"),
}
"""The states of a cell of the map, each with its sign and its meaning."""


class CpuClass(Struct, frozen=True, kw_only=True):
    """CPUs that get the same answer: those whose highest ISA is the same."""

    key: str
    """An ISA; for CPUs without any of their platform, a processor or the word `other`."""
    title: str
    platform: str
    needs: tuple[str, ...] = ()
    """Flags of the ISA, by which the page recognises it."""
    flags: tuple[str, ...] = ()
    """The same with the flags of the lower ISAs, which such CPUs have as well."""
    cpus: tuple[str, ...] = ()


def release_map(possible: PossibleVariants, name: str) -> ReleaseMap:
    """Return the grid of a release: GPU architectures, the newest first, and none, by ISAs.

    It has all architectures of the matrix; of a nightly, only those that it has.
    """
    matrix = possible.matrix
    release = matrix.releases[name]
    variants = [variant for variant in matrix.of_release(name) if not variant.is_wrapper]
    by_capability = sorted(matrix.gpus, key=lambda key: numbers(matrix.gpus[key].capability))
    keys: list[str | None] = [*reversed(by_capability), None]
    if release.torch.is_nightly:
        keys = [key for key in keys if any(variant.gpu_key == key for variant in variants)]
    used = {variant.cpu_key for variant in variants}
    columns = {
        key: cpu.title
        for key, cpu in possible.cpus.items()
        if key in used or not cpu.platform.endswith("-darwin")
    }
    on = f"CUDA {release.cuda.version}" if release.cuda else "no CUDA"
    return ReleaseMap(
        name=name,
        title=f"PyTorch {release.torch.version}, {on}, Python {release.python.version}",
        columns=columns,
        rows=tuple(
            (
                key or "cpu",
                ", ".join(matrix.gpus[key].products) if key else "CPU-only",
                tuple(_cell(possible, possible.variant(name, key, cpu)) for cpu in columns),
            )
            for key in keys
        ),
    )


def _cell(possible: PossibleVariants, variant: Variant) -> MapCell:
    """Return the cell of a variant, which need not exist."""
    gpu, cuda, name = variant.gpu, variant.cuda, variant.id
    is_listed = possible.is_existing(variant)
    needs = ", ".join(variant.cpu.cpus)
    if gpu:
        needs = f"{', '.join(gpu.hosts.get(variant.platform, ()))} with {needs}"
    if gpu and not compiles(cuda, gpu) and not is_listed:
        whose = f"CUDA {cuda.version}" if cuda else "a release without CUDA"
        state, text = "never", f"{whose} does not compile for {gpu.capability}"
    elif variant.impossible:
        state, text = "impossible", variant.impossible
    else:
        state = "listed" if is_listed else "addable"
        text = needs
    if is_listed and variant.driver:
        text += f"; driver {variant.driver} or newer"
    link = f"#gpu={gpu.capability if gpu else 'none'}&cpu={variant.cpu_key}"
    signs = ((state, STATES[state][0]),)
    return MapCell(state=state, name=name, text=text, link=link, signs=signs)


def oldest_drivers(matrix: Matrix) -> list[tuple[str, Release, str, list[str]]]:
    """Return each release with the oldest driver of each of its GPU architectures."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for variant in matrix.variants:
        keys = rows.setdefault((variant.release_name, variant.driver), {})
        keys[variant.gpu_key or "cpu"] = None
    return [
        (name, matrix.releases[name], driver or "none", list(keys))
        for (name, driver), keys in rows.items()
    ]


def cpu_classes(matrix: Matrix) -> list[CpuClass]:
    """Return the classes of CPUs, of each platform the highest ISA first."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    found = []
    for platform in dict.fromkeys(isa.platform for isa in isas.values()):
        here = {key: isa for key, isa in isas.items() if isa.platform == platform}
        for key, isa in sorted(here.items(), key=lambda item: -item[1].level):
            lower = [it for it in here.values() if it.level <= isa.level]
            found.append(
                CpuClass(
                    key=key,
                    title=isa.title,
                    platform=platform,
                    needs=isa.cpuinfo,
                    flags=tuple(dict.fromkeys(flag for it in lower for flag in it.cpuinfo)),
                    cpus=isa.cpus,
                )
            )
        older = (it for it in known.processor.items() if it[1].platform == platform)
        key, processor = next(((k, it) for k, it in older if not it.isa), ("", None))
        if processor:
            found.append(CpuClass(key=key, title=processor.title, platform=platform))
    return [*found, CpuClass(key="other", title="", platform="{platform}")]
