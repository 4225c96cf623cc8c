"""In which order variants are built.

First a canary: one variant of each kind before its siblings, since what is wrong with all of them
shows in the first. Then a diagonal, each CPU ISA with a GPU architecture of its own, then the
remaining architectures, then the rest, and CPU-only last: C++ objects depend on the ISA only, CUDA
objects on the architecture only, so this order has the most work done once where it is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from build_pytorch.matrix.model import Variant


def ordered(variants: Iterable[Variant]) -> list[Variant]:
    """Variants in the order in which they are begun; kinds and releases keep that of the matrix."""
    kinds: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        kinds.setdefault(kind(variant), []).append(variant)
    blocks = sorted(kinds.values(), key=lambda block: block[0].gpu is None)
    blocks = [_diagonal(block) for block in blocks]
    canaries = [block[0] for block in blocks]
    return [*canaries, *(variant for block in blocks for variant in block[1:])]


def kind(variant: Variant) -> tuple[str, str]:
    """What a canary speaks for: the variants of one group, whose recipes differ in values only."""
    return variant.release_name, variant.group.title


def _diagonal(block: Sequence[Variant]) -> list[Variant]:
    """Each ISA with a new architecture, then what else is new, then the rest."""
    gpus: set[str | None] = set()
    cpus: set[str] = set()
    result: list[Variant] = []

    def take(variant: Variant) -> None:
        result.append(variant)
        gpus.add(variant.gpu_key)
        cpus.add(variant.cpu_key)

    for variant in block:
        if variant.gpu_key not in gpus and variant.cpu_key not in cpus:
            take(variant)
    for variant in block:
        if variant.gpu_key not in gpus or variant.cpu_key not in cpus:
            take(variant)
    return [*result, *(variant for variant in block if variant not in result)]


def next_of(
    pending: Sequence[Variant], running: Sequence[Variant], ended: Sequence[Variant]
) -> Variant | None:
    """Which of the pending to begin now, or None where it is better to wait for one that runs.

    Siblings wait for their canary. Two with the same new ISA or architecture do not run at once
    where another can be taken.
    """
    waiting_for = {kind(v) for v in running if not any(kind(v) == kind(e) for e in ended)}
    free = [v for v in pending if kind(v) not in waiting_for]
    gpus = {v.gpu_key for v in ended}
    cpus = {v.cpu_key for v in ended}
    for variant in free:
        clash = any(
            (variant.gpu_key not in gpus and variant.gpu_key == other.gpu_key is not None)
            or (variant.cpu_key not in cpus and variant.cpu_key == other.cpu_key)
            for other in running
        )
        if not clash:
            return variant
    return free[0] if free else None
