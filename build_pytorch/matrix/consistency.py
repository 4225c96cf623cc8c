"""What single values of matrix.toml cannot show: that they agree with each other.

Each rule yields where the matrix contradicts itself, what was found there and what is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from build_pytorch.base import paths
from build_pytorch.base.errors import near_miss
from build_pytorch.matrix.model import CudaToolkit, Group, MatrixFile, Release, Trail, Variant

Problem = tuple[Trail, str]

_DRIVERS = {"12": 525, "13": 580}
"""The oldest Linux driver of each CUDA (NVIDIA, CUDA compatibility, minor version floors)."""


def contradictions(spec: MatrixFile) -> Iterator[Problem]:
    """What is wrong before there can be variants."""
    for key, gpu in spec.gpu.items():
        if key != f"sm{gpu.capability.replace('.', '')}":
            yield (
                ("gpu", key, "capability"),
                f'found "{gpu.capability}"; allowed for {key}: the same digits with a dot',
            )
    yield from _levels(spec)
    for name, release in spec.release.items():
        at: Trail = ("release", name)
        yield from _sources(release, at)
        yield from _places(release, at)
        yield from _names(release, at)
        for index, group in enumerate(release.group):
            yield from _group(spec, release, group, (*at, "group", index))


def collisions(spec: MatrixFile, variants: Sequence[Variant]) -> Iterator[Problem]:
    """What is wrong between the variants: two in one file, or one that is to be deleted."""
    recipes: dict[str, Variant] = {}
    for variant in variants:
        at: Trail = ("release", variant.release_name)
        other = recipes.setdefault(variant.path, variant)
        if other is variant:
            continue
        if other.release is variant.release:
            yield (
                (*at, "group", variant.release.group.index(variant.group)),
                f"found {variant.id} twice; allowed: each variant once",
            )
        yield (
            (*at, "names"),
            f"found {variant.path}, which release.{other.release_name} writes as well; "
            "allowed: another folder or other names",
        )
    notes: dict[str, str] = {}
    for name, release in spec.release.items():
        other_name = notes.setdefault(release.notes, name)
        if other_name != name:
            yield (
                ("release", name, "notes"),
                f'found "{release.notes}", the notes of release.{other_name} as well; '
                "allowed: a file of its own",
            )
        yield from _cleanup(release, recipes, ("release", name, "cleanup"))


def _levels(spec: MatrixFile) -> Iterator[Problem]:
    """Levels order the ISAs of a platform; one that asks for more flags is above the other."""
    taken: dict[tuple[str, int], str] = {}
    for key, cpu in spec.cpu.items():
        other = taken.setdefault((cpu.platform, cpu.level), key)
        if other != key:
            yield (
                ("cpu", key, "level"),
                f"found {cpu.level}, the level of {other}; "
                f"allowed: one that no other ISA of {cpu.platform} has",
            )
        for below, less in spec.cpu.items():
            asks_less = less.platform == cpu.platform and set(less.cpuinfo) < set(cpu.cpuinfo)
            if asks_less and less.level >= cpu.level:
                yield (
                    ("cpu", key, "level"),
                    f"found {cpu.level}; allowed: more than {less.level}, the level of {below}, "
                    "as every CPU that has this one has that one",
                )


def _sources(release: Release, at: Trail) -> Iterator[Problem]:
    torch, nixpkgs, patch = release.torch, release.nixpkgs, release.magma_patch
    if torch.rev.startswith("v") and torch.rev != f"v{torch.version}":
        yield (
            (*at, "torch", "rev"),
            f'found "{torch.rev}"; allowed: "v{torch.version}", the tag of torch.version, '
            "or 40 hex digits",
        )
    hashes: dict[Trail, str | None] = {
        ("torch", "hash"): torch.hash,
        ("nixpkgs", "sha256"): nixpkgs.sha256,
        ("magma_patch", "hash"): patch.hash if patch else None,
    }
    for trail, value in hashes.items():
        if value and set(value.removeprefix("sha256-")[:-1]) == {"A"}:
            yield (*at, *trail), "found a fake hash; allowed: the hash of the real source"
    if nixpkgs.rev in nixpkgs.retired:
        yield (
            (*at, "nixpkgs", "rev"),
            "found a pin that nixpkgs.retired names; allowed: another",
        )


def _places(release: Release, at: Trail) -> Iterator[Problem]:
    parts = release.folder.split("/")
    ours = {"docs", "templates", "tests", "build_pytorch", paths.STATE}
    if ".git" in parts or parts[0] in ours:
        yield (*at, "folder"), f'found "{release.folder}"; allowed: a folder of recipes'
    if release.notes in {paths.VARIANTS_DOC, paths.CHECKS_DOC, paths.CHOOSING_DOC}:
        yield (
            (*at, "notes"),
            f'found "{release.notes}"; allowed: another page, this one is generated whole',
        )


def _names(release: Release, at: Trail) -> Iterator[Problem]:
    """Named one version, built with another: the mistake that copies of recipes carry on."""
    torch = "".join(release.torch.version.split(".")[:2])
    python = f"python{release.python.version.replace('.', '')}"
    tokens = [("pname", torch), ("gpu", python), ("cpu", python)]
    if release.cuda:
        yield from _package_set(release.cuda, at)
        tokens.append(("gpu", f"cuda{release.cuda.version.replace('.', '_')}"))
    for field, token in tokens:
        value: str = getattr(release.names, field)
        if token not in value:
            yield (
                (*at, "names", field),
                f'found "{value}"; allowed: a name with "{token}", as the release\'s versions say',
            )


def _package_set(cuda: CudaToolkit, at: Trail) -> Iterator[Problem]:
    major = cuda.version.split(".")[0]
    oldest = _DRIVERS.get(major, 0)
    if _number(cuda.driver)[0] < oldest:
        yield (
            (*at, "cuda", "driver"),
            f'found "{cuda.driver}"; allowed for CUDA {cuda.version}: {oldest} or newer',
        )
    allowed = {f"cudaPackages_{major}", f"cudaPackages_{cuda.version.replace('.', '_')}"}
    if cuda.package_set not in allowed:
        yield (
            (*at, "cuda", "package_set"),
            f'found "{cuda.package_set}"; allowed for CUDA {cuda.version}: '
            + " or ".join(sorted(allowed)),
        )


def _group(spec: MatrixFile, release: Release, group: Group, at: Trail) -> Iterator[Problem]:
    if group.kind == "gpu" and not group.gpu:
        yield at, 'found kind "gpu" without gpu; allowed: a list of GPU architectures'
    if group.kind == "gpu" and release.cuda is None:
        yield at, "found a GPU group; allowed only in a release that has a cuda table"
    if group.kind == "cpu-only" and group.gpu:
        yield (*at, "gpu"), 'found a list; allowed with kind "cpu-only": no gpu at all'
    yield from _known(group.gpu, spec.gpu, (*at, "gpu"))
    yield from _known(group.cpu, spec.cpu, (*at, "cpu"))
    for index, key in enumerate(group.cpu):
        if spec.cpu[key].platform != group.platform:
            yield (
                (*at, "cpu", index),
                f'found "{key}", which is for {spec.cpu[key].platform}; '
                f"allowed: CPU ISAs of {group.platform}",
            )
    if release.cuda:
        for index, key in enumerate(group.gpu):
            yield from _compiles(spec, key, release.cuda, (*at, "gpu", index))


def _known(keys: Sequence[str], known: Collection[str], at: Trail) -> Iterator[Problem]:
    for index, key in enumerate(keys):
        if key not in known:
            hint = near_miss(key, known)
            yield (*at, index), f'found "{key}"; allowed: {", ".join(known)}{hint}'


def _compiles(spec: MatrixFile, key: str, cuda: CudaToolkit, at: Trail) -> Iterator[Problem]:
    """Whether a CUDA version compiles for an architecture."""
    gpu = spec.gpu[key]
    last = gpu.last_cuda or cuda.version
    if not _number(gpu.first_cuda) <= _number(cuda.version) <= _number(last):
        until = f" to {gpu.last_cuda}" if gpu.last_cuda else " or newer"
        yield at, f'found "{key}" with CUDA {cuda.version}; allowed: CUDA {gpu.first_cuda}{until}'


def _cleanup(release: Release, recipes: Collection[str], at: Trail) -> Iterator[Problem]:
    files: set[str] = set()
    for index, entry in enumerate(release.cleanup):
        here = (*at, index, "file")
        if entry.file in files:
            yield here, f'found "{entry.file}" twice; allowed: each file once'
        files.add(entry.file)
        is_variant = f"{release.folder}/{entry.file}" in recipes
        if entry.action == "delete" and is_variant:
            yield (
                here,
                f'found "{entry.file}", the recipe of a variant; '
                "allowed with action delete: a file that no variant needs",
            )
        if entry.action != "delete" and not is_variant:
            yield (
                here,
                f'found "{entry.file}", which is no variant\'s recipe; '
                f"allowed with action {entry.action}: the recipe of a variant",
            )


def _number(version: str) -> tuple[int, ...]:
    """A dotted version as numbers, so that 13.0 comes after 9.0."""
    return tuple(int(part) for part in version.split("."))
