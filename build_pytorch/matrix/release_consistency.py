"""One release: the values it has of another one (`like`), placeholders, and contradictions.

Its values depend on each other, on its pin, and on what else the matrix has.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base import paths
from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import digits, minor_version, numbers, order, underscored
from build_pytorch.matrix.compatibility import compiles, cuda_window
from build_pytorch.matrix.field_types import Fault, Trail, quoted, wrong
from build_pytorch.matrix.known_hardware import OF_CUDA
from build_pytorch.matrix.source_tables import (
    Companion,
    CudaPackages,
    CudaToolkit,
    PackageSource,
    Pin,
    TorchSource,
)
from build_pytorch.matrix.tables import Group, MatrixFile, Release

_DRIVERS: Final = {12: 525, 13: 580}
"""Oldest Linux driver of each CUDA major (NVIDIA, CUDA compatibility, minor version floors)."""

_LEAST_JOB_MEMORY: Final = 1
"""GiB of one compile job; measured on PyTorch 2.6 with CUDA 13."""

_LAST_SETUP_PY: Final = "20260720"
_SCIKIT_BUILD: Final = "2.14"
"""The day on which setup.py left PyTorch's main (pytorch pull request 189758), and the first
version that scikit-build-core builds."""

_OF_GITHUB: Final = ("owner", "repo", "rev", "hash", "hash_of")
_WITH_GITHUB: Final = frozenset({*_OF_GITHUB, "submodules", "fetcher", "patches"})

_WHOLE_PAGES: Final = frozenset(
    {paths.RELEASES_DOC, paths.CHECKS_DOC, paths.CHOOSING_DOC, paths.MATRIX_DOC, paths.WHEELS_DOC}
)


def is_for_recipes(folder: str) -> bool:
    """Return whether recipes may be in a folder."""
    parts = folder.split("/")
    is_file = folder.endswith((".toml", ".nix", ".py", ".md"))
    return not is_file and ".git" not in parts and parts[0] not in paths.OWN_FOLDERS


def contradictions(spec: MatrixFile, release: Release) -> Iterator[Fault]:
    """Yield contradictions of a release; paths begin below its table."""
    pin = spec.pin[release.nixpkgs.pin]
    if pin.rev in release.nixpkgs.retired:
        found = f"{quoted(release.nixpkgs.pin)}, whose revision nixpkgs.retired lists"
        yield ("nixpkgs", "pin"), wrong(found, "any other pin")
    yield from _sources(release, pin)
    has_gpus = any(group.kind == "gpu" for group in release.group)
    if has_gpus and release.build.job_memory < _LEAST_JOB_MEMORY:
        found = f"{release.build.job_memory} for GPU variants"
        allowed = f"{_LEAST_JOB_MEMORY} or more: a CUDA file takes 0.6 to 4.7 GiB"
        yield ("build", "job_memory"), wrong(found, allowed)
    if not (release.torch.is_of_pin or release.torch.submodules):
        allowed = "true: PyTorch does not compile without its submodules"
        yield ("torch", "submodules"), wrong("false", allowed)
    yield from _nightly(release.torch, pin)
    if release.cuda:
        yield from _cuda(release, release.cuda, pin)
    if not is_for_recipes(release.folder):
        yield ("folder",), wrong(quoted(release.folder), "a folder of recipes")
    notes = release.notes or ""
    if notes in _WHOLE_PAGES:
        yield ("notes",), wrong(f"{quoted(notes)}, which is generated as a whole", "another page")
    yield from _names(release)
    for index, group in enumerate(release.group):
        for trail, what in (*_kind(release, group), *_members(spec, release, group)):
            yield ("group", index, *trail), what


def _sources(release: Release, pin: Pin) -> Iterator[Fault]:
    """Sources of a release are complete; the torch of the pin has the version of the pin."""
    torch = release.torch
    if torch.is_of_pin and torch.version != pin.torch:
        allowed = f'"{pin.torch}", the torch of pin.{release.nixpkgs.pin}, or source "github"'
        yield ("torch", "version"), wrong(quoted(torch.version), allowed)
    for place, source in release.sources.items():
        for trail, what in _source(source, place[-1]):
            yield (*place, *trail), what
        if source.is_of_pin and not torch.is_of_pin and torch.version != pin.torch:
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
    if isinstance(source, Companion) and source.is_of_pin and source.patches == "clear":
        yield ("patches",), wrong('"clear"', '"keep" with source "nixpkgs"')
    is_nightly = isinstance(source, TorchSource) and source.is_nightly
    if source.rev.startswith("v") and source.rev != f"v{source.version}" and not is_nightly:
        allowed = f'"v{source.version}", the tag of {name}.version, or 40 hex digits'
        yield ("rev",), wrong(quoted(source.rev), allowed)


def _nightly(torch: TorchSource, pin: Pin) -> Iterator[Fault]:
    """A nightly is a commit of a day, with a setup.py for a pin that runs it.

    Nothing else names a commit of Triton.
    """
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
    if torch.nightly_day > _LAST_SETUP_PY and order(pin.torch) < order(_SCIKIT_BUILD):
        found = (
            f"{quoted(torch.version)}, which has no setup.py: nixpkgs {pin.torch} builds with it"
        )
        allowed = f"a day up to {_LAST_SETUP_PY}, or a pin with torch {_SCIKIT_BUILD} or newer"
        yield ("torch", "version"), wrong(found, allowed)


def _cuda(release: Release, cuda: CudaToolkit, pin: Pin) -> Iterator[Fault]:
    """The pin has the CUDA in the named package set; the driver runs it."""
    sets = [name for name, version in pin.cuda.items() if version == cuda.version]
    if cuda.package_set not in sets:
        known = " or ".join(sets) or f"a CUDA of pin.{release.nixpkgs.pin}.cuda"
        found = f"found {quoted(cuda.package_set)}"
        yield ("cuda", "package_set"), f"{found}; allowed for CUDA {cuda.version}: {known}"
    oldest = _DRIVERS.get(numbers(cuda.version)[0], 0)
    if numbers(cuda.driver)[0] < oldest:
        allowed = f"{oldest} or newer for CUDA {cuda.version}"
        yield ("cuda", "driver"), wrong(quoted(cuda.driver), allowed)
    if cuda.packages_from:
        for key, what in _cuda_packages(release, cuda.packages_from):
            yield ("cuda", "packages_from", key), what


def _cuda_packages(release: Release, packages: CudaPackages) -> Iterator[tuple[str, str]]:
    """The other source of CUDA packages is a repository at a revision, or a folder of copies."""
    for field in ("owner", "repo", "rev"):
        if packages.is_copied and getattr(packages, field):
            yield field, wrong("a value beside folder", "a repository or copies")
        if not (packages.is_copied or getattr(packages, field)):
            yield field, "missing; add it, or folder for copies in this repository"
    if packages.is_copied and not is_for_recipes(packages.folder):
        yield "folder", wrong(quoted(packages.folder), "a folder of copies, such as releases/cuda")
    if any(f"{packages.folder}/".startswith(f"{each}/") for each in release.variant_folders):
        found = f"{quoted(packages.folder)}, a part of the folder of recipes"
        yield "folder", wrong(found, "another one, as Flox builds every file there")


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
        if release.cuda and not compiles(release.cuda, spec.gpu[key]):
            found = f"{quoted(key)} with CUDA {release.cuda.version}"
            yield ("gpu", index), wrong(found, f"CUDA {cuda_window(spec.gpu[key])}")
    for index, key in enumerate(group.cpu):
        cpu = spec.cpu[key]
        if release.build.require_builder_feature and not cpu.builder_feature:
            allowed = "ISAs with one, as build.require_builder_feature is true"
            yield ("cpu", index), wrong(f"{quoted(key)}, which has no builder_feature", allowed)
        elif cpu.platform != group.platform:
            found = f"{quoted(key)}, which is for {cpu.platform}"
            yield ("cpu", index), wrong(found, f"CPU ISAs of {group.platform}")


# --- `like` and placeholders ---

PLACEHOLDER: Final = r"\{(release|torch|python|cuda)\}"
"""The key of the release, or digits of one of its versions, in a folder or a name."""
_OWN: Final = frozenset({"like", "notes", "cleanup"})
"""Keys that a release does not inherit."""


def complete(raw: dict[str, Any]) -> Iterator[tuple[Trail, str]]:
    """Complete the releases of a parsed matrix in place; yield each `like` that is wrong.

    Tables are merged, other values replaced. Values of a wrong type are left for the reader.
    """
    releases = raw.get("release")
    if not isinstance(releases, dict):
        return
    complete_releases: dict[str, Any] = {}
    for name in releases:
        chain = [name]
        while isinstance(other := like(releases, chain[-1]), str):
            if other in chain:
                what = wrong(quoted(other), "the key of a release that is not like this one")
                yield ("release", name, "like"), what
                break
            if not isinstance(releases.get(other), dict):
                what = wrong(quoted(other), f"the key of a release{near_miss(other, releases)}")
                yield ("release", chain[-1], "like"), what
                break
            chain.append(other)
        else:
            merged = releases[chain[-1]]
            for own in reversed(chain[:-1]):
                base = {key: value for key, value in merged.items() if key not in _OWN}
                merged = _merged(base, releases[own])
            complete_releases[name] = merged
    releases |= complete_releases
    for name, release in releases.items():
        if isinstance(release, dict):
            _replace_placeholders(name, release)


def like(releases: dict[str, Any], name: Any) -> Any:  # noqa: ANN401 - any value of a matrix
    """Return what the table of a release has as `like`."""
    release = releases.get(name)
    return release.get("like") if isinstance(release, dict) else None


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the values of another one where it has none.

    A package of the pin has none of the values of a source in place of it.
    """
    if own.get("source") == "nixpkgs":
        base = {key: value for key, value in base.items() if key not in _WITH_GITHUB}
    if "driver" in base and "version" in own:  # of another CUDA
        base = {key: value for key, value in base.items() if key not in OF_CUDA}
    merged = base | own
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
    return merged


def _replace_placeholders(name: str, release: dict[str, Any]) -> None:
    """Replace the placeholders of the folders and names of a release."""
    version = {
        table: values.get("version") if isinstance(values, dict) else None
        for table, values in release.items()
    }
    torch, python, cuda = (str(version.get(table) or "") for table in ("torch", "python", "cuda"))
    known = {
        "release": name,
        "torch": digits(minor_version(torch)),
        "python": digits(python),
        "cuda": underscored(cuda),
    }

    def replaced(value: Any) -> Any:  # noqa: ANN401 - any value of a matrix
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        if not isinstance(value, str):
            return value
        return re.sub(PLACEHOLDER, lambda match: known[match[1]] or match[0], value)

    for key in {"folder", "catalog", "names"} & release.keys():
        release[key] = replaced(release[key])

    def with_folder(table: Any) -> Any:  # noqa: ANN401 - any value of a matrix
        has_one = isinstance(table, dict) and "folder" in table
        return {**table, "folder": replaced(table["folder"])} if has_one else table

    if isinstance(groups := release.get("group"), list):
        release["group"] = [with_folder(table) for table in groups]
