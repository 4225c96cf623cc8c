"""Rules on values of matrix.toml that depend on each other.

Each rule yields the path of a wrong value, with the value found and the values allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import pins_and_rules
from build_pytorch.matrix.matrix_errors import quoted
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.matrix.pins_and_rules import Contradiction, unknown
from build_pytorch.matrix.source_tables import CudaToolkit
from build_pytorch.matrix.tables import Group, MatrixFile, Release, Trail, Work

_DRIVERS: Final = {12: 525, 13: 580}
"""Oldest Linux driver of each CUDA major (NVIDIA, CUDA compatibility, minor version floors)."""

_ROUNDING: Final = 0.01
"""Shares have two digits after the point."""

_MOST_VARIANTS: Final = 10_000
"""Maximum number of variants of a matrix: lists multiply."""

_WHOLE_PAGES: Final = frozenset(
    {paths.RELEASES_DOC, paths.CHECKS_DOC, paths.CHOOSING_DOC, paths.MATRIX_DOC}
)


def contradictions(spec: MatrixFile) -> Iterator[Contradiction]:
    """Yield contradictions inside the tables of a file."""
    for key, gpu in spec.gpu.items():
        if gpu.is_single and key != f"sm{gpu.code}":
            allowed = f"allowed for {key}: the same digits with a dot"
            yield ("gpu", key, "capability"), f"found {quoted(gpu.capability)}; {allowed}"
        if not gpu.is_single and key in {f"sm{code}" for code in gpu.code.split(";")}:
            yield ("gpu", key), f"found the key of one architecture; allowed: another, as {key}_ptx"
        ordered = sorted({numbers(each) for each in gpu.capabilities})
        if [numbers(each) for each in gpu.capabilities] != ordered:
            found = f"found {', '.join(gpu.also)} after {gpu.capability}"
            yield ("gpu", key, "also"), f"{found}; allowed: higher capabilities in ascending order"
        base = gpu.codegen_base
        if base and numbers(base) not in {(numbers(gpu.capability)[0], n) for n in range(10)}:
            allowed = f"allowed for {gpu.capability}: a capability of the same major version"
            yield ("gpu", key, "codegen_base"), f"found {quoted(base)}; {allowed}"
    yield from _work(spec.work)
    yield from _levels(spec)
    yield from pins_and_rules.contradictions(spec)
    yield from _builder_features(spec)
    sizes = [(len(g.gpu) or 1) * len(g.cpu) for r in spec.release.values() for g in r.group]
    if sum(sizes) > _MOST_VARIANTS:
        yield ("release",), f"found {sum(sizes)} variants; allowed: {_MOST_VARIANTS} at most"
    for name, release in spec.release.items():
        for trail, what in _in_release(spec, release):
            yield ("release", name, *trail), what


def collisions(
    spec: MatrixFile, variants: Sequence[Variant], companions: Sequence[CompanionPackage] = ()
) -> Iterator[Contradiction]:
    """Yield names and files that two packages or two releases share, and wrong lists of them."""
    packages: list[Package] = [*variants, *companions]
    yield from _shared_names(packages)
    recipes = {package.path for package in packages}
    notes: dict[str, str] = {}
    for name, release in spec.release.items():
        first = notes.setdefault(release.notes or name, name)
        if release.notes and first != name:
            what = f"found {quoted(release.notes)}, the notes of release.{first} as well"
            yield ("release", name, "notes"), f"{what}; allowed: a file of its own"
        for trail, what in pins_and_rules.unused_settings(name, release, variants):
            yield ("release", name, "setting", *trail), what
        for trail, what in (*_cleanup(release, recipes), *_manual(release, recipes)):
            yield ("release", name, *trail), what
        for companion, folder in release.companion_folders.items():
            if what := _wrong_folder(spec, folder):
                yield ("release", name, "companion", companion, "folder"), what


def _wrong_folder(spec: MatrixFile, folder: str) -> str:
    """Return what is wrong with a folder of companions: Flox takes all files below a folder."""
    found = f"found {quoted(folder)}"
    if not _is_for_recipes(folder):
        return f"{found}; allowed: a folder of recipes"
    for name, release in spec.release.items():
        if f"{folder}/".startswith(f"{release.folder}/"):
            what = f"{found}, which is in the folder of release.{name}"
            return f"{what}; allowed: one outside it, as Flox takes every file in it for a package"
        for other in (release.folder, *release.companion_folders.values()):
            if other != folder and f"{other}/".startswith(f"{folder}/"):
                return f"{found}, which contains {other}; allowed: one without other recipes"
    return ""


def _is_for_recipes(folder: str) -> bool:
    parts = folder.split("/")
    return ".git" not in parts and parts[0] not in paths.OWN_FOLDERS


def _shared_names(packages: Sequence[Package]) -> Iterator[Contradiction]:
    """Each package has a recipe of its own, and a name of its own in its catalog."""
    recipes: dict[str, Package] = {}
    names: dict[tuple[str, str], Package] = {}
    for package in packages:
        release = package.release
        at: Trail = ("release", package.release_name)
        place: Trail = (*at, "names")
        if isinstance(package, CompanionPackage):
            place = (*at, "companion", package.name)
        by_path = recipes.setdefault(package.path, package)
        by_name = names.setdefault((release.catalog, package.package), package)
        if by_path is not package and by_path.release is release:
            place = (*at, "group", release.group.index(package.variant.group))
            yield place, f"found {package.variant.short_id} twice; allowed: each variant once"
        elif by_path is not package:
            what = f"{package.path}, which release.{by_path.release_name} writes as well"
            yield place, f"found {what}; allowed: another folder or other names"
        elif by_name is not package:
            what = f"{package.package}, a package of release.{by_name.release_name} as well"
            yield place, f"found {what}; allowed: other names or another catalog"


def _work(work: Work | None) -> Iterator[Contradiction]:
    """The shares of cxx, cuda and link add up to 1; a part of a share is not larger than it."""
    if work is None:
        return
    whole = work.cxx.share + work.cuda.share + work.link.share
    if abs(whole - 1) > _ROUNDING:
        found = f"found {whole:g} as the sum of cxx, cuda and link"
        yield ("work",), f"{found}; allowed: 1, which is one GPU variant that is built alone"
    limits = (
        ("replay", work.replay, "cxx and cuda", work.cxx.share + work.cuda.share),
        ("cpu_only_miss", work.cpu_only_miss, "cpu_only_cxx", work.cpu_only_cxx.share),
    )
    for name, part, others, most in limits:
        if part.share > most:
            what = f"found {part.share:g}, a part of {others}"
            yield ("work", name, "share"), f"{what}; allowed: {most:g} at most"


def _levels(spec: MatrixFile) -> Iterator[Contradiction]:
    """Levels are unique in a platform; an ISA that requires more flags has a higher one.

    Only Darwin has an ISA without flags.
    """
    taken: dict[tuple[str, int], str] = {}
    for key, cpu in spec.cpu.items():
        for field in ("flags", "cpuinfo", "macros"):
            if not getattr(cpu, field) and not cpu.platform.endswith("-darwin"):
                yield ("cpu", key, field), "found []; allowed: a list with at least one element"
        at, found = ("cpu", key, "level"), f"found {cpu.level}"
        other = taken.setdefault((cpu.platform, cpu.level), key)
        if other != key:
            allowed = f"one that no other ISA of {cpu.platform} has"
            yield at, f"{found}, the level of {other}; allowed: {allowed}"
        for below, less in spec.cpu.items():
            requires_less = less.platform == cpu.platform and set(less.cpuinfo) < set(cpu.cpuinfo)
            if requires_less and less.level >= cpu.level:
                reason = "as every CPU that has this one has that one"
                yield (
                    at,
                    f"{found}; allowed: more than {less.level}, the level of {below}, {reason}",
                )


def _builder_features(spec: MatrixFile) -> Iterator[Contradiction]:
    """A builder states its CPU by builder_feature of ISAs; a name that no ISA has is a mistake."""
    for index, builder in enumerate(spec.builder):
        isas = [cpu for cpu in spec.cpu.values() if cpu.platform in builder.platforms]
        known = [cpu.builder_feature for cpu in isas if cpu.builder_feature]
        for number, feature in enumerate(builder.features):
            if feature.startswith("gccarch-") and feature not in known:
                allowed = f"builder_feature of a CPU ISA of its platforms: {', '.join(known)}"
                found = f"found {quoted(feature)}; allowed: {allowed}{near_miss(feature, known)}"
                yield ("builder", index, "features", number), found


def _in_release(spec: MatrixFile, release: Release) -> Iterator[Contradiction]:
    yield from pins_and_rules.of_release(spec, release)
    if not _is_for_recipes(release.folder):
        yield ("folder",), f"found {quoted(release.folder)}; allowed: a folder of recipes"
    notes = release.notes or ""
    if notes in _WHOLE_PAGES or notes.startswith(f"{paths.RELEASE_PAGES}/"):
        found = f"found {quoted(release.notes)}, which is generated as a whole"
        yield ("notes",), f"{found}; allowed: another page"
    yield from _names(release)
    if release.cuda:
        yield from _cuda(release.cuda)
    for index, group in enumerate(release.group):
        for trail, what in _group(spec, release, group):
            yield ("group", index, *trail), what


def _names(release: Release) -> Iterator[Contradiction]:
    """Names contain the versions of the release; copied tables often keep old ones."""
    torch = "".join(release.torch.version.split(".")[:2])
    python = f"python{release.python.version.replace('.', '')}"
    tokens = [("pname", torch), ("gpu", python), ("cpu", python)]
    if release.cuda:
        tokens.append(("gpu", f"cuda{release.cuda.version.replace('.', '_')}"))
    for field, token in tokens:
        value: str = getattr(release.names, field)
        if token not in value:
            allowed = f'a name with "{token}", from the release\'s versions'
            yield ("names", field), f"found {quoted(value)}; allowed: {allowed}"


def _cuda(cuda: CudaToolkit) -> Iterator[Contradiction]:
    oldest = _DRIVERS.get(numbers(cuda.version)[0], 0)
    if numbers(cuda.driver)[0] < oldest:
        allowed = f"allowed for CUDA {cuda.version}"
        yield ("cuda", "driver"), f"found {quoted(cuda.driver)}; {allowed}: {oldest} or newer"


def _kind(release: Release, group: Group) -> Iterator[Contradiction]:
    """A group has what its kind needs."""
    if group.kind == "gpu" and not group.gpu:
        yield (), 'found kind "gpu" without gpu; allowed: a list of GPU architectures'
    if group.kind == "gpu" and release.cuda is None:
        yield (), "found a GPU group; allowed only in a release that has a cuda table"
    if group.kind != "gpu" and group.gpu:
        yield ("gpu",), f'found a list; allowed with kind "{group.kind}": no gpu at all'
    if (group.kind == "mps") != group.platform.endswith("-darwin"):
        allowed = 'aarch64-darwin with kind "mps" and only then'
        yield ("platform",), f"found {quoted(group.platform)}; allowed: {allowed}"


def _group(spec: MatrixFile, release: Release, group: Group) -> Iterator[Contradiction]:
    yield from _kind(release, group)
    for index, key in enumerate(group.gpu):
        if key not in spec.gpu:
            yield ("gpu", index), unknown(key, spec.gpu)
        elif release.cuda and (range_ := _unsupported(spec, key, release.cuda)):
            found = f"found {quoted(key)} with CUDA {release.cuda.version}"
            yield ("gpu", index), f"{found}; allowed: CUDA {range_}"
    yield from _group_isas(spec, release, group)


def _group_isas(spec: MatrixFile, release: Release, group: Group) -> Iterator[Contradiction]:
    for index, key in enumerate(group.cpu):
        if key not in spec.cpu:
            yield ("cpu", index), unknown(key, spec.cpu)
        elif release.build.require_builder_feature and not spec.cpu[key].builder_feature:
            found = f"found {quoted(key)}, which has no builder_feature"
            allowed = "ISAs with one, as build.require_builder_feature is true"
            yield ("cpu", index), f"{found}; allowed: {allowed}"
        elif (platform := spec.cpu[key].platform) != group.platform:
            found = f"found {quoted(key)}, which is for {platform}"
            yield ("cpu", index), f"{found}; allowed: CPU ISAs of {group.platform}"


def _unsupported(spec: MatrixFile, key: str, cuda: CudaToolkit) -> str:
    """Return the CUDA versions that compile for an architecture if this one does not, or ""."""
    gpu = spec.gpu[key]
    last = gpu.last_cuda or cuda.version
    if numbers(gpu.first_cuda) <= numbers(cuda.version) <= numbers(last):
        return ""
    return f"{gpu.first_cuda} to {gpu.last_cuda}" if gpu.last_cuda else f"{gpu.first_cuda} or newer"


def _cleanup(release: Release, recipes: Collection[str]) -> Iterator[Contradiction]:
    files: set[str] = set()
    for index, entry in enumerate(release.cleanup):
        at, found = ("cleanup", index, "file"), f"found {quoted(entry.file)}"
        if entry.file in files:
            yield at, f"{found} twice; allowed: each file once"
        files.add(entry.file)
        is_variant = f"{release.folder}/{entry.file}" in recipes
        allowed = f"allowed with action {entry.action}"
        if entry.action == "delete" and is_variant:
            yield at, f"{found}, the recipe of a variant; {allowed}: a file that no variant needs"
        if entry.action != "delete" and not is_variant:
            yield at, f"{found}, which is no variant's recipe; {allowed}: the recipe of a variant"


def _manual(release: Release, recipes: Collection[str]) -> Iterator[Contradiction]:
    places = [entry.file for entry in release.manual]
    cleaned = {entry.file for entry in release.cleanup}
    for index, entry in enumerate(release.manual):
        at, found = ("manual", index, "file"), f"found {quoted(entry.file)}"
        if entry.file in places[:index]:
            yield at, f"{found} twice; allowed: each file once"
        if entry.file in cleaned:
            yield at, f"{found}, which cleanup lists as well; allowed: one of the two"
        if entry.waive and release.place_of(entry) not in recipes:
            what = f"found a waiver for {entry.file}, which no check looks at"
            yield ("manual", index, "waive"), f"{what}; allowed: the recipe of a variant"
