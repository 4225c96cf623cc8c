"""Values of a release that depend on each other, on its pin, and on what else the matrix has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import digits, minor_version, numbers, underscored
from build_pytorch.matrix.compatibility import compiles, cuda_window
from build_pytorch.matrix.matrix_errors import Fault, listed, quoted
from build_pytorch.matrix.source_tables import (
    CUDA_PACKAGES,
    CompanionSource,
    PackageSource,
    Pin,
    TorchSource,
)
from build_pytorch.matrix.tables import Group, MatrixFile, Release

_DRIVERS: Final = {12: 525, 13: 580}
"""Oldest Linux driver of each CUDA major (NVIDIA, CUDA compatibility, minor version floors)."""

_OF_GITHUB: Final = ("owner", "repo", "rev", "hash", "hash_of")

_WHOLE_PAGES: Final = frozenset(
    {paths.RELEASES_DOC, paths.CHECKS_DOC, paths.CHOOSING_DOC, paths.MATRIX_DOC}
)


def wrong(found: str, allowed: str) -> str:
    """Return what is wrong with a value."""
    return f"found {found}; allowed: {allowed}"


def unknown(key: str, known: Collection[str]) -> str:
    """Return what is wrong with a key that a table does not have."""
    return f"{wrong(quoted(key), listed(known))}{near_miss(key, known)}"


def is_for_recipes(folder: str) -> bool:
    """Return whether recipes may be in a folder."""
    parts = folder.split("/")
    return ".git" not in parts and parts[0] not in paths.OWN_FOLDERS


def contradictions(spec: MatrixFile, release: Release) -> Iterator[Fault]:
    """Yield contradictions of a release; paths begin below its table."""
    ids = [rule.id for rule in spec.rule]
    for index, setting in enumerate(release.setting):
        for position, without in enumerate(setting.without):
            if without.rule not in ids:
                yield ("setting", index, "without", position, "rule"), unknown(without.rule, ids)
    key = release.nixpkgs.pin
    pin = spec.pin.get(key)
    if pin is None:
        yield ("nixpkgs", "pin"), unknown(key, spec.pin)
    elif pin.rev in release.nixpkgs.retired:
        found = f"{quoted(key)}, whose revision nixpkgs.retired lists"
        yield ("nixpkgs", "pin"), wrong(found, "any other pin")
    yield from _sources(release, pin)
    yield from _nightly(release.torch)
    yield from _cuda(release, pin)
    yield from _cuda_packages(release)
    if not is_for_recipes(release.folder):
        yield ("folder",), wrong(quoted(release.folder), "a folder of recipes")
    notes = release.notes or ""
    if notes in _WHOLE_PAGES or notes.startswith(f"{paths.RELEASE_PAGES}/"):
        yield ("notes",), wrong(f"{quoted(notes)}, which is generated as a whole", "another page")
    yield from _names(release)
    for index, group in enumerate(release.group):
        for trail, what in (*_kind(release, group), *_members(spec, release, group)):
            yield ("group", index, *trail), what


def _sources(release: Release, pin: Pin | None) -> Iterator[Fault]:
    """Sources of a release are complete; the torch of the pin has the version of the pin."""
    torch, key = release.torch, release.nixpkgs.pin
    is_other = pin is not None and torch.version != pin.torch
    if torch.is_of_pin and pin and is_other:
        allowed = f'"{pin.torch}", the torch of pin.{key}, or source "github"'
        yield ("torch", "version"), wrong(quoted(torch.version), allowed)
    for place, source in release.sources.items():
        for trail, what in _source(source, str(place[-1])):
            yield (*place, *trail), what
        if pin and is_other and source.is_of_pin and not torch.is_of_pin:
            found = f'"nixpkgs", which belongs to the torch {pin.torch} of the pin'
            yield (*place, "source"), wrong(found, f'"github" for {torch.version}')


def _source(source: PackageSource, name: str) -> Iterator[Fault]:
    """A source of its own is complete, and its tag is that of its version."""
    for field in _OF_GITHUB:
        is_given = bool(getattr(source, field))
        if is_given and source.is_of_pin:
            yield (field,), 'found a value; allowed only with source "github"'
        if not (is_given or source.is_of_pin or field.startswith("hash")):
            yield (field,), "missing; add it"
    if isinstance(source, CompanionSource) and source.is_of_pin and source.patches == "clear":
        yield ("patches",), wrong('"clear"', '"keep" with source "nixpkgs"')
    is_nightly = isinstance(source, TorchSource) and source.is_nightly
    if source.rev.startswith("v") and source.rev != f"v{source.version}" and not is_nightly:
        allowed = f'"v{source.version}", the tag of {name}.version, or 40 hex digits'
        yield ("rev",), wrong(quoted(source.rev), allowed)


def _nightly(torch: TorchSource) -> Iterator[Fault]:
    """A nightly is a commit of a day; nothing else names a commit of Triton."""
    if not torch.is_nightly:
        if torch.triton_rev:
            found = f"a commit with version {torch.version}"
            yield ("torch", "triton_rev"), wrong(found, "only with a version as 2.11.0.devDAY")
        return
    if torch.rev.startswith("v"):
        allowed = "40 hex digits: a nightly is a commit, never a tag or a branch"
        yield ("torch", "rev"), wrong(quoted(torch.rev), allowed)
    try:
        dt.datetime.strptime(torch.nightly_day, "%Y%m%d")  # noqa: DTZ007 - a date without a time
    except ValueError:
        found = f"{quoted(torch.version)}, which ends in no date"
        yield ("torch", "version"), wrong(found, "X.Y.0.devYYYYMMDD")


def _cuda(release: Release, pin: Pin | None) -> Iterator[Fault]:
    """The pin has the CUDA in the named package set; the driver runs it."""
    cuda = release.cuda
    if cuda is None:
        return
    sets = [name for name, version in pin.cuda.items() if version == cuda.version] if pin else []
    if pin and cuda.package_set not in sets:
        known = " or ".join(sets) or f"a CUDA of pin.{release.nixpkgs.pin}.cuda"
        found = f"found {quoted(cuda.package_set)}"
        yield ("cuda", "package_set"), f"{found}; allowed for CUDA {cuda.version}: {known}"
    oldest = _DRIVERS.get(numbers(cuda.version)[0], 0)
    if numbers(cuda.driver)[0] < oldest:
        allowed = f"{oldest} or newer for CUDA {cuda.version}"
        yield ("cuda", "driver"), wrong(quoted(cuda.driver), allowed)


def _cuda_packages(release: Release) -> Iterator[Fault]:
    """The other source of CUDA packages is a repository at a revision, or copies with digests."""
    cuda = release.cuda
    if cuda is None or (packages := cuda.packages_from) is None:
        return
    at = ("cuda", "packages_from")
    for field in ("owner", "repo", "rev"):
        if packages.is_copied and getattr(packages, field):
            yield (*at, field), wrong("a value beside folder", "a repository or copies")
        if not (packages.is_copied or getattr(packages, field)):
            yield (*at, field), "missing; add it, or folder for copies in this repository"
    copies = {cuda.package_file(name) for name in CUDA_PACKAGES} if packages.is_copied else set()
    if packages.digests.keys() != copies:
        fix = "`invoke vendor cuda-packages --from DIR` writes them"
        what = wrong(", ".join(packages.digests) or "none", ", ".join(sorted(copies)) or "none")
        yield (*at, "digests"), f"{what}; {fix}"
    if f"{packages.folder}/".startswith(f"{release.folder}/"):
        found = f"{quoted(packages.folder)}, a part of the folder of recipes"
        yield (*at, "folder"), wrong(found, "another one, as Flox builds every file there")


def _names(release: Release) -> Iterator[Fault]:
    """Names contain the versions of the release; copied tables often keep old ones."""
    python = f"python{digits(release.python.version)}"
    tokens = [
        ("pname", digits(minor_version(release.torch.version))),
        ("gpu", python),
        ("cpu", python),
    ]
    if release.cuda:
        tokens.append(("gpu", f"cuda{underscored(release.cuda.version)}"))
    for field, token in tokens:
        value: str = getattr(release.names, field)
        if token not in value:
            allowed = f'a name with "{token}", from the release\'s versions'
            yield ("names", field), wrong(quoted(value), allowed)


def _kind(release: Release, group: Group) -> Iterator[Fault]:
    """A group has what its kind needs."""
    if group.kind == "gpu" and not group.gpu:
        yield (), wrong('kind "gpu" without gpu', "a list of GPU architectures")
    if group.kind == "gpu" and release.cuda is None:
        yield (), wrong("a GPU group", "only in a release that has a cuda table")
    if group.kind != "gpu" and group.gpu:
        yield ("gpu",), wrong("a list", f'with kind "{group.kind}" no gpu at all')
    if (group.kind == "mps") != group.platform.endswith("-darwin"):
        allowed = 'aarch64-darwin with kind "mps" and only then'
        yield ("platform",), wrong(quoted(group.platform), allowed)


def _members(spec: MatrixFile, release: Release, group: Group) -> Iterator[Fault]:
    """The CUDA compiles for the architectures of a group; its ISAs are of its platform."""
    for index, key in enumerate(group.gpu):
        if key not in spec.gpu:
            yield ("gpu", index), unknown(key, spec.gpu)
        elif release.cuda and not compiles(release.cuda, spec.gpu[key]):
            found = f"{quoted(key)} with CUDA {release.cuda.version}"
            yield ("gpu", index), wrong(found, f"CUDA {cuda_window(spec.gpu[key])}")
    for index, key in enumerate(group.cpu):
        if key not in spec.cpu:
            yield ("cpu", index), unknown(key, spec.cpu)
        elif release.build.require_builder_feature and not spec.cpu[key].builder_feature:
            allowed = "ISAs with one, as build.require_builder_feature is true"
            yield ("cpu", index), wrong(f"{quoted(key)}, which has no builder_feature", allowed)
        elif (platform := spec.cpu[key].platform) != group.platform:
            allowed = f"CPU ISAs of {group.platform}"
            yield ("cpu", index), wrong(f"{quoted(key)}, which is for {platform}", allowed)
