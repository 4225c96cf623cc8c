"""Patterns that people type, and the variants they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Variant


def select(matrix: Matrix, patterns: Sequence[str]) -> tuple[Variant, ...]:
    """The variants whose id or package name matches one of the patterns, in matrix order.

    No pattern means all. Raises BuildPytorchError for a pattern that matches nothing.
    """
    if not patterns:
        return matrix.variants
    for pattern in patterns:
        if not any(_matches(variant, pattern) for variant in matrix.variants):
            names = [name for v in matrix.variants for name in (v.id, v.package)]
            hint = near_miss(pattern, names) or f"; for instance {matrix.variants[0].id} or sm90-*"
            raise BuildPytorchError(f'no variant matches "{pattern}"{hint}')
    return tuple(v for v in matrix.variants if any(_matches(v, p) for p in patterns))


def _matches(variant: Variant, pattern: str) -> bool:
    return fnmatchcase(variant.id, pattern) or fnmatchcase(variant.package, pattern)


def session_ids(matrix: Matrix) -> list[tuple[Variant, str, list[str]]]:
    """Each variant with the id of its nox session and its tags.

    The id is the variant's where only one release has it, else the package name. Tags are what
    people choose by: GPU architecture, CPU ISA, release, and `gpu` or `cpu-only`.
    """
    counts = Counter(variant.id for variant in matrix.variants)
    return [
        (
            variant,
            variant.id if counts[variant.id] == 1 else variant.package,
            [
                *([variant.gpu_key] if variant.gpu_key else []),
                variant.cpu_key,
                variant.release_name,
                variant.group.kind,
            ],
        )
        for variant in matrix.variants
    ]
