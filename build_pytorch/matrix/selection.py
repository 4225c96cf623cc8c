"""Which packages a person means: patterns, keys, states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.field_types import quoted
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant

_WILDCARDS: Final = frozenset("*?[")

StateName = Literal[
    "building", "failed", "published", "tested", "built", "impossible-host", "interrupted",
    "outdated", "not-built",
]  # fmt: skip
"""The states of packages as a person writes them."""


class Selection(Struct, frozen=True, kw_only=True):
    """What a person said to select packages. All that is said has to hold; nothing selects all."""

    variants: tuple[str, ...] = ()  #: ids, package names or patterns
    release: str = ""
    gpu: tuple[str, ...] = ()  #: keys, or names that `recommend --gpu` knows
    isa: tuple[str, ...] = ()
    state: tuple[StateName, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether more is said than the release, which has a hundred packages."""
        return bool(self.variants or self.gpu or self.isa or self.state)


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
    """Return the variants that patterns name; a companion stands for its variant."""
    return variants_of(select_packages(matrix, patterns, release))


def variants_of(packages: Iterable[Package]) -> tuple[Variant, ...]:
    """Return packages with the variant in place of each companion."""
    return tuple({package.variant.path: package.variant for package in packages}.values())


def select_packages(
    matrix: Matrix, patterns: Sequence[str], release: str = "", companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return variants and companions, in matrix order with the variants first.

    A pattern matches ids, ids inside their release, and package names; a pattern with `*` may
    match variants of several releases, a name may not. No pattern selects all variants. A pattern
    that matches no variant may match companions, such as `sm90-*+torchvision` or `torchvision-*`.
    `companions` are names of companions to add for each selected variant.

    Raises BuildPytorchError for a pattern that matches nothing or is ambiguous, for no such
    release, and for a companion that no variant has.
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
        raise BuildPytorchError(f"no variant matches {quoted(pattern)}{hint}")
    if len(matching) > 1 and not _WILDCARDS & set(pattern):
        candidate_ids = ", ".join(package.id for package in matching)
        fix = "name one of them, or give --release"
        raise BuildPytorchError(f"{quoted(pattern)} is ambiguous: {candidate_ids}; {fix}")
    return matching


def _names(package: Package) -> tuple[str, ...]:
    """Return what a package may be called."""
    qualified = f"{package.release_name}/{package.short_id}"
    return package.short_id, package.package, qualified


def on_hardware(
    matrix: Matrix, packages: Iterable[Package], selection: Selection
) -> tuple[Package, ...]:
    """Return the packages that are for the GPUs and the CPU ISAs of a selection.

    Raises BuildPytorchError for names that the matrix lacks, and if no package is for them.
    """
    gpus, isas = [*matrix.gpus, "cpu"], list(matrix.cpus)
    wanted_gpus = [_gpu_key(name, gpus) for name in selection.gpu]
    for option, names, known in (("--gpu", wanted_gpus, gpus), ("--isa", selection.isa, isas)):
        for name in names:
            if name not in known:
                hint = near_miss(name, known) or f"; there are {', '.join(known)}"
                if name in known_hardware.load().gpu:
                    hint = f"; docs/how-to/add-a-gpu.md says how to add {name}"
                raise BuildPytorchError(f'{option}: "{name}" is not in matrix.toml{hint}')
    found = tuple(
        package
        for package in packages
        if (package.variant.gpu_key or "cpu") in (wanted_gpus or gpus)
        and package.variant.cpu_key in (selection.isa or isas)
    )
    if not found:
        wanted = ", ".join([*selection.variants, *selection.gpu, *selection.isa])
        raise BuildPytorchError(f"no variant is all of {wanted}; {paths.RELEASES_DOC} lists all")
    return found


def _gpu_key(name: str, keys: Sequence[str]) -> str:
    """Return the key of a GPU architecture by its own or a name that `recommend --gpu` knows."""
    if name in keys:
        return name
    if known_hardware.NO_GPU.fullmatch(name.lower()):
        return "cpu"
    return known_hardware.load().gpu_key(name) or name


def session_ids(matrix: Matrix) -> list[tuple[str, list[str]]]:
    """Return the id of each variant with the tags of its nox session.

    Tags are the GPU architecture, the CPU ISA, the release, the platform and the kind, and
    `buildable` if a machine can run it, all hashes are there, and no other variant is the same.
    """
    found = []
    for v in matrix.variants:
        tags = [v.gpu_key, v.cpu_key, v.release_name, v.platform, v.kind]
        if not (v.impossible or v.untaken_hashes or v.same_build_as):
            tags.append("buildable")
        found.append((v.id, [tag for tag in tags if tag]))
    return found
