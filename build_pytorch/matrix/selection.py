"""Variants and companions by the patterns and tags that people type."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant

_WILDCARDS: Final = frozenset("*?[")


def require_release(matrix: Matrix, name: str, option: str = "--release") -> None:
    """Raise BuildPytorchError if there is no such release; `option` says where the name is from."""
    if name not in matrix.releases:
        hint = near_miss(name, matrix.releases) or f"; there are {', '.join(matrix.releases)}"
        raise BuildPytorchError(f'{option} "{name}": no such release{hint}'.lstrip())


def only_release(matrix: Matrix, name: str, fitting: Sequence[str]) -> str:
    """Return the release with a name; without a name the fitting one, if there is only one.

    Raises BuildPytorchError.
    """
    if name:
        require_release(matrix, name)
        return name
    if len(fitting) != 1:
        raise BuildPytorchError(f"--release: name one of {', '.join(fitting or matrix.releases)}")
    return fitting[0]


def select(matrix: Matrix, patterns: Sequence[str], release: str = "") -> tuple[Variant, ...]:
    """Return the variants that the patterns name, in matrix order; those of one release if given.

    A pattern matches ids, ids inside their release, and package names; a pattern with `*` may
    match variants of several releases, a name may not. No pattern selects all. Raises
    BuildPytorchError for a pattern that matches nothing or is ambiguous, and for no such release.
    """
    found = select_packages(matrix, patterns, release)
    for package in found:
        if not isinstance(package, Variant):
            what = f"{package.id} is a companion, and this command takes variants"
            raise BuildPytorchError(f"{what}; name {package.variant.id}")
    return tuple(package.variant for package in found)


def select_packages(
    matrix: Matrix, patterns: Sequence[str], release: str = "", companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return variants and companions, in matrix order with the variants first.

    A pattern that matches no variant may match companions, such as `sm90-*+torchvision` or
    `torchvision-*`. `companions` are names of companions to add for each selected variant.
    Otherwise as `select`. Raises BuildPytorchError also for a companion that no variant has.
    """
    if release:
        require_release(matrix, release)
    packages = [p for p in matrix.packages if not release or p.release_name == release]
    variants = [p for p in packages if isinstance(p, Variant)]
    found = set() if patterns else {variant.path for variant in variants}
    for pattern in patterns:
        found |= {package.path for package in _matching(pattern, variants, packages)}
    if companions:
        found |= _added(packages, found, companions)
    return tuple(p for p in packages if p.path in found)


def _added(packages: Sequence[Package], found: set[str], companions: Sequence[str]) -> set[str]:
    """Return the recipes of the named companions of the variants that were found."""
    own = [p for p in packages if isinstance(p, CompanionPackage) and p.variant.path in found]
    for name in companions:
        if not any(package.name == name for package in own):
            names = list(dict.fromkeys(package.name for package in own))
            hint = near_miss(name, names) or f"; there are {', '.join(names) or 'none'}"
            raise BuildPytorchError(f'no selected variant has a companion "{name}"{hint}')
    return {package.path for package in own if package.name in companions}


def _matching(
    pattern: str, variants: Sequence[Variant], packages: Sequence[Package]
) -> list[Package]:
    """Return the variants that a pattern names; without any, the companions. Raises as `select`."""
    matching: list[Package] = []
    for candidates in (variants, packages):
        matching = matching or [
            p for p in candidates if any(fnmatchcase(n, pattern) for n in _names(p))
        ]
    if not matching:
        hint = near_miss(pattern, [name for package in packages for name in _names(package)])
        hint = hint or f"; for instance {variants[0].id} or sm90-*"
        raise BuildPytorchError(f'no variant matches "{pattern}"{hint}')
    if len(matching) > 1 and not _WILDCARDS & set(pattern):
        candidate_ids = ", ".join(package.id for package in matching)
        fix = "name one of them, or give --release"
        raise BuildPytorchError(f'"{pattern}" is ambiguous: {candidate_ids}; {fix}')
    return matching


def _names(package: Package) -> tuple[str, ...]:
    """Return what a package may be called."""
    qualified = f"{package.release_name}/{package.short_id}"
    return package.short_id, package.package, qualified


def session_ids(matrix: Matrix) -> list[tuple[Variant, str, list[str]]]:
    """Return each variant with the id and the tags of its nox session.

    Tags are the GPU architecture, the CPU ISA, the release, and the kind.
    """
    return [
        (v, v.id, [tag for tag in (v.gpu_key, v.cpu_key, v.release_name, v.kind) if tag])
        for v in matrix.variants
    ]
