"""Variants by the patterns and tags that people type."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Variant

_WILDCARDS: Final = frozenset("*?[")


def select(matrix: Matrix, patterns: Sequence[str], release: str = "") -> tuple[Variant, ...]:
    """Return the variants that the patterns name, in matrix order; those of one release if given.

    A pattern matches ids, ids inside their release, and package names; a pattern with `*` may
    match variants of several releases, a name may not. No pattern selects all. Raises
    BuildPytorchError for a pattern that matches nothing or is ambiguous, and for no such release.
    """
    if release and release not in matrix.releases:
        hint = near_miss(release, matrix.releases) or f"; there are {', '.join(matrix.releases)}"
        raise BuildPytorchError(f'--release "{release}": no such release{hint}')
    variants = matrix.of_release(release) if release else matrix.variants
    found: set[str] = set()
    for pattern in patterns:
        matching = [v for v in variants if any(fnmatchcase(n, pattern) for n in _names(v))]
        if not matching:
            hint = near_miss(pattern, [name for variant in variants for name in _names(variant)])
            hint = hint or f"; for instance {variants[0].id} or sm90-*"
            raise BuildPytorchError(f'no variant matches "{pattern}"{hint}')
        if len(matching) > 1 and not _WILDCARDS & set(pattern):
            candidates = ", ".join(variant.id for variant in matching)
            fix = "name one of them, or give --release"
            raise BuildPytorchError(f'"{pattern}" is ambiguous: {candidates}; {fix}')
        found.update(variant.path for variant in matching)
    return tuple(v for v in variants if not patterns or v.path in found)


def _names(variant: Variant) -> tuple[str, ...]:
    """Return what a variant may be called."""
    qualified = f"{variant.release_name}/{variant.short_id}"
    return variant.short_id, variant.package, qualified


def session_ids(matrix: Matrix) -> list[tuple[Variant, str, list[str]]]:
    """Return each variant with the id and the tags of its nox session.

    Tags are the GPU architecture, the CPU ISA, the release, and the kind.
    """
    return [
        (v, v.id, [tag for tag in (v.gpu_key, v.cpu_key, v.release_name, v.kind) if tag])
        for v in matrix.variants
    ]
