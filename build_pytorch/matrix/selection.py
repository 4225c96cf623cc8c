"""Which packages: those that a person names, and those whose builds compile for others (seeds)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.field_types import quoted
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant
from build_pytorch.matrix.tables import Work

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


def session_ids(matrix: Matrix) -> list[tuple[Variant, str, list[str]]]:
    """Return each variant with the id and the tags of its nox session.

    Tags are the GPU architecture, the CPU ISA, the release, and the kind.
    """
    return [
        (v, v.id, [tag for tag in (v.gpu_key, v.cpu_key, v.release_name, v.kind) if tag])
        for v in matrix.variants
    ]


# --- seeds ---

# What variants have in common is compiled once. A seed is a compiler cache that a build of its own
# fills: with the C and C++ objects of one CPU ISA, or the CUDA objects of one GPU architecture.

_Place = tuple[str, str]
"""The release and the platform: objects of others differ."""


class Seed(Struct, frozen=True, kw_only=True):
    """A seed, which is made from the recipe of `variant`; its readers have that configuration."""

    kind: Literal["cxx", "cuda"]
    key: str  #: of the CPU ISA or the GPU architecture
    variant: Variant

    @property
    def name(self) -> str:
        """The attribute in release.nix, such as `seed-cuda13_0-x86_64-linux-avx2`."""
        return f"seed-{self.variant.release_name}-{self.variant.cpu.platform}-{self.key}"


def seeds_of(variants: Iterable[Variant]) -> dict[str, tuple[Seed, ...]]:
    """Return the seeds of each GPU variant, and of CPU-only ones whose ISA has GPU variants.

    The keys are attributes of release.nix. Each ISA is made from a variant with a GPU architecture
    of its own, each architecture from the variant that most CPUs can build, both among variants
    with the configuration that most of them have. A variant that no machine can run is taken last.

    A variant does not read a seed of another configuration: every object would be a miss. Variants
    with CUDA packages from elsewhere have no seeds: their headers may differ.

    Pass all variants of the matrix: the seeds of a variant must not depend on the selection.
    """
    blocks: dict[_Place, list[Variant]] = {}
    everything = [variant for variant in variants if not variant.is_wrapper]
    for variant in everything:
        if variant.gpu_key:
            blocks.setdefault(_place(variant), []).append(variant)
    seeds: dict[tuple[_Place, str, str], Seed] = {}
    for place, block in blocks.items():
        possible_first = sorted(block, key=lambda variant: bool(variant.impossible))
        for variant in _typical(diagonal(possible_first), lambda variant: variant.cpu_key):
            seed = Seed(kind="cxx", key=variant.cpu_key, variant=variant)
            seeds.setdefault((place, seed.kind, seed.key), seed)
        for variant in _typical(sorted(block, key=_rank), lambda variant: variant.gpu_key):
            if not variant.release.build.cuda_host_flags:  # else CUDA objects depend on the ISA
                seed = Seed(kind="cuda", key=variant.gpu_key or "", variant=variant)
                seeds.setdefault((place, seed.kind, seed.key), seed)
    found = {}
    for variant in everything:
        keys = (("cxx", variant.cpu_key), ("cuda", variant.gpu_key or ""))
        own = (seeds.get((_place(variant), *key)) for key in keys)
        if read := tuple(
            s for s in own if s and configuration(s.variant) == configuration(variant)
        ):
            found[variant.attribute] = read
    return found


def configuration(variant: Variant) -> tuple[object, ...]:
    """Return what decides which code objects contain, apart from the ISA and the architecture."""
    effects = variant.effects
    return tuple(sorted(effects.environment.items())), effects.cmake_flags, effects.blas


def _typical(variants: Sequence[Variant], key: Callable[[Variant], str | None]) -> list[Variant]:
    """Order variants by how many others with the same key have their configuration."""
    alike = Counter((key(variant), configuration(variant)) for variant in variants)
    return sorted(variants, key=lambda variant: -alike[key(variant), configuration(variant)])


def _place(variant: Variant) -> _Place:
    return variant.release_name, variant.cpu.platform


def _rank(variant: Variant) -> tuple[bool, int]:
    return bool(variant.impossible), len(variant.cpu.cpuinfo)


class SharedWork(Struct, frozen=True, kw_only=True):
    """Estimated work on variants. One unit is the work of one GPU variant that is built alone."""

    seeds: tuple[Seed, ...]
    units: float  #: with seeds
    units_unshared: float
    core_hours: dict[str, float]  #: of each variant with seeds, and of each seed, by name


def shared_work(
    variants: Sequence[Variant],
    work: Work,
    seeds: Mapping[str, Sequence[Seed]],
    there: Collection[str] = (),
) -> SharedWork:
    """Estimate the work on variants with their `seeds`, as `seeds_of` returns them.

    `there`: names of seeds that are built already.
    """
    read = {variant.attribute: seeds.get(variant.attribute, ()) for variant in variants}
    needed = {seed.name: seed for several in read.values() for seed in several}
    shares = {"cxx": work.cxx.share, "cuda": work.cuda.share}
    parts = [(v.attribute, v, _units(v, work, read[v.attribute])) for v in variants]
    parts += [(s.name, s.variant, shares[s.kind]) for s in needed.values() if s.name not in there]
    return SharedWork(
        seeds=tuple(needed.values()),
        units=sum(units for *_, units in parts),
        units_unshared=sum(_units(variant, work) for variant in variants),
        core_hours={name: units * v.release.build.core_hours for name, v, units in parts},
    )


def core_hours(variant: Variant, work: Work | None) -> float:
    """Return the CPU core hours of a variant that is built alone, without seeds."""
    return variant.build.core_hours * (_units(variant, work) if work else 1)


def _units(variant: Variant, work: Work, seeds: Sequence[Seed] = ()) -> float:
    """Return the work on a variant that reads seeds, or that is built alone without any."""
    parts = {"cxx": work.cxx.share, "cuda": work.cuda.share}
    if not variant.gpu_key:
        parts = {"cxx": work.cpu_only_cxx.share}
    kinds = {seed.kind for seed in seeds}
    units = work.link.share + sum(part for kind, part in parts.items() if kind not in kinds)
    if seeds:
        units += work.replay.share
        units += 0.0 if variant.gpu_key else work.cpu_only_miss.share
    return units


def diagonal(block: Sequence[Variant]) -> list[Variant]:
    """Order variants: pairs of a new ISA and a new architecture, then either new, then the rest."""
    result: list[Variant] = []
    gpus: set[str | None] = set()
    cpus: set[str] = set()
    rest = list(block)
    for enough in (2, 1, 0):
        for variant in rest:
            if (variant.gpu_key not in gpus) + (variant.cpu_key not in cpus) >= enough:
                result.append(variant)
                gpus.add(variant.gpu_key)
                cpus.add(variant.cpu_key)
        taken = {variant.package for variant in result}
        rest = [variant for variant in rest if variant.package not in taken]
    return result
