"""Rules on values of matrix.toml that depend on each other.

Each rule yields the path of a wrong value, with the value found and the values allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import rules
from build_pytorch.matrix.model import (
    Condition,
    CudaToolkit,
    Group,
    MatrixFile,
    Release,
    Trail,
    Variant,
)

Contradiction = tuple[Trail, str]

_DRIVERS: Final = {12: 525, 13: 580}
"""Oldest Linux driver of each CUDA major (NVIDIA, CUDA compatibility, minor version floors)."""

_OUR_FOLDERS: Final = frozenset({"docs", "templates", "tests", "build_pytorch", paths.STATE})
_WHOLE_PAGES: Final = frozenset(
    {paths.VARIANTS_DOC, paths.CHECKS_DOC, paths.CHOOSING_DOC, paths.MATRIX_DOC}
)


def contradictions(spec: MatrixFile) -> Iterator[Contradiction]:
    """Yield contradictions inside the tables of a file."""
    for key, gpu in spec.gpu.items():
        if key != f"sm{gpu.capability.replace('.', '')}":
            allowed = f"allowed for {key}: the same digits with a dot"
            yield ("gpu", key, "capability"), f'found "{gpu.capability}"; {allowed}'
    yield from _levels(spec)
    for key, cpu in spec.cpu.items():
        for field in ("flags", "cpuinfo", "macros"):
            if not getattr(cpu, field) and not cpu.platform.endswith("-darwin"):
                yield ("cpu", key, field), "found []; allowed: a list with at least one element"
    for trail, value in _hashes(spec):
        if value and set(value.removeprefix("sha256-")[:-1]) == {"A"}:
            yield trail, "found a fake hash; allowed: the hash of the real source"
    yield from _rules(spec)
    for name, release in spec.release.items():
        for trail, what in _in_release(spec, release):
            yield ("release", name, *trail), what


def collisions(spec: MatrixFile, variants: Sequence[Variant]) -> Iterator[Contradiction]:
    """Yield names and files that two variants or two releases share, and wrong lists of them."""
    recipes: dict[str, Variant] = {}
    packages: dict[tuple[str, str], Variant] = {}
    for variant in variants:
        release, name = variant.release, variant.release_name
        at: Trail = ("release", name)
        other = recipes.setdefault(variant.path, variant)
        if other is not variant:
            place: Trail = (*at, "names")
            what = f"{variant.path}, which release.{other.release_name} writes as well"
            allowed = "another folder or other names"
            if other.release is release:
                place = (*at, "group", release.group.index(variant.group))
                what, allowed = f"{variant.short_id} twice", "each variant once"
            yield place, f"found {what}; allowed: {allowed}"
            continue
        other = packages.setdefault((release.catalog, variant.package), variant)
        if other is not variant:
            what = f"found {variant.package}, a package of release.{other.release_name} as well"
            yield (*at, "names"), f"{what}; allowed: other names or another catalog"
    notes: dict[str, str] = {}
    for name, release in spec.release.items():
        first = notes.setdefault(release.notes or name, name)
        if release.notes and first != name:
            what = f'found "{release.notes}", the notes of release.{first} as well'
            yield ("release", name, "notes"), f"{what}; allowed: a file of its own"
        own = [variant for variant in variants if variant.release_name == name]
        for index, setting in enumerate(release.setting):
            for position, pattern in enumerate(setting.variants):
                if not any(rules.names(pattern, variant) for variant in own):
                    trail = ("setting", index, "variants", position)
                    what = f'found "{pattern}", which names no variant'
                    allowed = "a pattern of ids such as sm90-*, or the title of a group"
                    yield ("release", name, *trail), f"{what}; allowed: {allowed}"
        for trail, what in _cleanup(release, recipes):
            yield ("release", name, "cleanup", *trail), what


def _levels(spec: MatrixFile) -> Iterator[Contradiction]:
    """Levels are unique in a platform; an ISA that requires more flags has a higher one."""
    taken: dict[tuple[str, int], str] = {}
    for key, cpu in spec.cpu.items():
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


def _in_release(spec: MatrixFile, release: Release) -> Iterator[Contradiction]:
    yield from _torch(spec, release)
    if release.nixpkgs.pin in spec.pin:
        pin = spec.pin[release.nixpkgs.pin]
        if pin.rev in release.nixpkgs.retired:
            found = f'found "{release.nixpkgs.pin}", whose revision nixpkgs.retired lists'
            yield ("nixpkgs", "pin"), f"{found}; allowed: any other pin"
    else:
        yield ("nixpkgs", "pin"), _unknown(release.nixpkgs.pin, spec.pin)
    parts = release.folder.split("/")
    if ".git" in parts or parts[0] in _OUR_FOLDERS:
        yield ("folder",), f'found "{release.folder}"; allowed: a folder of recipes'
    if release.notes in _WHOLE_PAGES:
        found = f'found "{release.notes}", which is generated as a whole'
        yield ("notes",), f"{found}; allowed: another page"
    yield from _names(release)
    if release.cuda:
        yield from _cuda(spec, release, release.cuda)
    for index, setting in enumerate(release.setting):
        for position, without in enumerate(setting.without):
            ids = [rule.id for rule in spec.rule]
            if without.rule not in ids:
                trail = ("setting", index, "without", position, "rule")
                yield trail, _unknown(without.rule, ids)
    for index, group in enumerate(release.group):
        for trail, what in _group(spec, release, group):
            yield ("group", index, *trail), what


def _hashes(spec: MatrixFile) -> Iterator[Contradiction]:
    """Yield the path and the value of every hash."""
    for key, pin in spec.pin.items():
        yield ("pin", key, "sha256"), pin.sha256
    for key, patch in spec.patch.items():
        yield ("patch", key, "hash"), patch.hash
    for key, release in spec.release.items():
        yield ("release", key, "torch", "hash"), release.torch.hash


def _rules(spec: MatrixFile) -> Iterator[Contradiction]:
    """Conditions and effects name what the matrix has."""
    first: dict[str, int] = {}
    for index, rule in enumerate(spec.rule):
        at: Trail = ("rule", index)
        if first.setdefault(rule.id, index) != index:
            yield (*at, "id"), f'found "{rule.id}" twice; allowed: each id once'
        for field in ("when", "until"):
            condition: Condition | None = getattr(rule, field)
            if condition == Condition():
                yield (*at, field), "found no condition; allowed: at least one"
            for name, known in (("cpu", spec.cpu), ("pin", spec.pin)):
                for position, key in enumerate(getattr(condition, name, ())):
                    if key not in known:
                        yield (*at, field, name, position), _unknown(key, known)
        for position, key in enumerate(rule.effect.patches):
            if key not in spec.patch:
                yield (*at, "effect", "patches", position), _unknown(key, spec.patch)


_OF_GITHUB: Final = ("owner", "repo", "rev", "hash", "hash_of")


def _torch(spec: MatrixFile, release: Release) -> Iterator[Contradiction]:
    """A source of its own is complete; the torch of the pin has the version of the pin."""
    torch = release.torch
    for field in _OF_GITHUB:
        is_given = bool(getattr(torch, field))
        if is_given == torch.is_of_pin:
            what = 'allowed only with source "github"' if is_given else "missing; add it"
            yield ("torch", field), what
    pin = spec.pin.get(release.nixpkgs.pin)
    if torch.is_of_pin and pin and torch.version != pin.torch:
        allowed = f'"{pin.torch}", the torch of pin {release.nixpkgs.pin}, or source "github"'
        yield ("torch", "version"), f'found "{torch.version}"; allowed: {allowed}'
    if torch.rev.startswith("v") and torch.rev != f"v{torch.version}":
        allowed = f'"v{torch.version}", the tag of torch.version, or 40 hex digits'
        yield ("torch", "rev"), f'found "{torch.rev}"; allowed: {allowed}'


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
            yield ("names", field), f'found "{value}"; allowed: {allowed}'


def _cuda(spec: MatrixFile, release: Release, cuda: CudaToolkit) -> Iterator[Contradiction]:
    major = numbers(cuda.version)[0]
    oldest = _DRIVERS.get(major, 0)
    allowed = f"allowed for CUDA {cuda.version}"
    if numbers(cuda.driver)[0] < oldest:
        yield ("cuda", "driver"), f'found "{cuda.driver}"; {allowed}: {oldest} or newer'
    if (pin := spec.pin.get(release.nixpkgs.pin)) is None:
        return
    sets = [name for name, version in pin.cuda.items() if version == cuda.version]
    if cuda.package_set not in sets:
        found = f'found "{cuda.package_set}"'
        known = " or ".join(sets) or f"a CUDA that pin {release.nixpkgs.pin} has"
        yield ("cuda", "package_set"), f"{found}; {allowed}: {known}"


def _group(spec: MatrixFile, release: Release, group: Group) -> Iterator[Contradiction]:
    if group.kind == "gpu" and not group.gpu:
        yield (), 'found kind "gpu" without gpu; allowed: a list of GPU architectures'
    if group.kind == "gpu" and release.cuda is None:
        yield (), "found a GPU group; allowed only in a release that has a cuda table"
    if group.kind != "gpu" and group.gpu:
        yield ("gpu",), f'found a list; allowed with kind "{group.kind}": no gpu at all'
    if (group.kind == "mps") != group.platform.endswith("-darwin"):
        allowed = 'aarch64-darwin with kind "mps" and only then'
        yield ("platform",), f'found "{group.platform}"; allowed: {allowed}'
    for index, key in enumerate(group.gpu):
        if key not in spec.gpu:
            yield ("gpu", index), _unknown(key, spec.gpu)
        elif release.cuda and (range_ := _unsupported(spec, key, release.cuda)):
            found = f'found "{key}" with CUDA {release.cuda.version}'
            yield ("gpu", index), f"{found}; allowed: CUDA {range_}"
    for index, key in enumerate(group.cpu):
        if key not in spec.cpu:
            yield ("cpu", index), _unknown(key, spec.cpu)
        elif (platform := spec.cpu[key].platform) != group.platform:
            found = f'found "{key}", which is for {platform}'
            yield ("cpu", index), f"{found}; allowed: CPU ISAs of {group.platform}"


def _unknown(key: str, known: Collection[str]) -> str:
    return f'found "{key}"; allowed: {", ".join(known)}{near_miss(key, known)}'


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
        at, found = (index, "file"), f'found "{entry.file}"'
        if entry.file in files:
            yield at, f"{found} twice; allowed: each file once"
        files.add(entry.file)
        is_variant = f"{release.folder}/{entry.file}" in recipes
        allowed = f"allowed with action {entry.action}"
        if entry.action == "delete" and is_variant:
            yield at, f"{found}, the recipe of a variant; {allowed}: a file that no variant needs"
        if entry.action != "delete" and not is_variant:
            yield at, f"{found}, which is no variant's recipe; {allowed}: the recipe of a variant"

