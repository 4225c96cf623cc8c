"""Variants by the patterns and tags that people type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Variant


def select(matrix: Matrix, patterns: Sequence[str]) -> tuple[Variant, ...]:
    """Return the variants whose id or package name matches a pattern, in matrix order.

    No pattern selects all. Raises BuildPytorchError for a pattern that matches nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        names = [(name, v.package) for v in matrix.variants for name in (v.id, v.package)]
        matching = {package for name, package in names if fnmatchcase(name, pattern)}
        if not matching:
            hint = near_miss(pattern, [name for name, _ in names])
            hint = hint or f"; for instance {matrix.variants[0].id} or sm90-*"
            raise BuildPytorchError(f'no variant matches "{pattern}"{hint}')
        found |= matching
    return tuple(v for v in matrix.variants if not patterns or v.package in found)


def session_ids(matrix: Matrix) -> list[tuple[Variant, str, list[str]]]:
    """Return each variant with the id and the tags of its nox session.

    The id is the variant's if only one release has it, otherwise the package name. Tags are the
    GPU architecture, the CPU ISA, the release, and `gpu` or `cpu-only`.
    """
    counts = Counter(variant.id for variant in matrix.variants)
    sessions = []
    for v in matrix.variants:
        tags = [tag for tag in (v.gpu_key, v.cpu_key, v.release_name, v.group.kind) if tag]
        sessions.append((v, v.id if counts[v.id] == 1 else v.package, tags))
    return sessions
