"""Consistency of pins, rules and settings with what they name, and of releases with their pins."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence

from build_pytorch.base.errors import near_miss
from build_pytorch.matrix import rules
from build_pytorch.matrix.matrix_errors import listed, quoted
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.source_tables import (
    CUDA_PACKAGES,
    CompanionSource,
    PackageSource,
    TorchSource,
)
from build_pytorch.matrix.tables import Condition, MatrixFile, Release, Rule, Trail

Contradiction = tuple[Trail, str]
"""The path of a wrong value, and what is wrong."""

_OF_GITHUB = ("owner", "repo", "rev", "hash", "hash_of")


def contradictions(spec: MatrixFile) -> Iterator[Contradiction]:
    """Yield contradictions of pins, patches and rules."""
    for trail, value in _hashes(spec):
        if value and set(value.removeprefix("sha256-")[:-1]) == {"A"}:
            yield trail, "found a fake hash; allowed: the hash of the real source"
    revisions: dict[str, str] = {}
    for key, pin in spec.pin.items():
        first = revisions.setdefault(pin.rev, key)
        if first != key:
            allowed = "each revision once, with one set of facts"
            yield ("pin", key, "rev"), f"found the revision of pin.{first}; allowed: {allowed}"
    ids: dict[str, int] = {}
    for index, rule in enumerate(spec.rule):
        if ids.setdefault(rule.id, index) != index:
            yield ("rule", index, "id"), f"found {quoted(rule.id)} twice; allowed: each id once"
        for trail, what in _of_rule(spec, rule):
            yield ("rule", index, *trail), what


def of_release(spec: MatrixFile, release: Release) -> Iterator[Contradiction]:
    """Yield contradictions between a release, its pin and the rules that its settings name."""
    ids = [rule.id for rule in spec.rule]
    for index, setting in enumerate(release.setting):
        for position, without in enumerate(setting.without):
            if without.rule not in ids:
                trail = ("setting", index, "without", position, "rule")
                yield trail, unknown(without.rule, ids)
    yield from _torch(spec, release)
    yield from _nightly(release)
    yield from _cuda_packages(release)
    key, cuda = release.nixpkgs.pin, release.cuda
    if key not in spec.pin:
        yield ("nixpkgs", "pin"), unknown(key, spec.pin)
        return
    pin = spec.pin[key]
    if pin.rev in release.nixpkgs.retired:
        found = f"found {quoted(key)}, whose revision nixpkgs.retired lists"
        yield ("nixpkgs", "pin"), f"{found}; allowed: any other pin"
    sets = [name for name, version in pin.cuda.items() if cuda and version == cuda.version]
    if cuda and cuda.package_set not in sets:
        known = " or ".join(sets) or f"a CUDA of pin.{key}.cuda"
        allowed = f"allowed for CUDA {cuda.version}: {known}"
        yield ("cuda", "package_set"), f"found {quoted(cuda.package_set)}; {allowed}"


def unused_settings(
    name: str, release: Release, variants: Sequence[Variant]
) -> Iterator[Contradiction]:
    """Yield patterns of the settings of a release that name none of its variants."""
    own = [v for v in variants if v.release_name == name] if release.setting else ()
    for index, setting in enumerate(release.setting):
        for position, pattern in enumerate(setting.variants):
            if not any(rules.names(pattern, variant) for variant in own):
                what = f"found {quoted(pattern)}, which names no variant"
                allowed = "a pattern of ids such as sm90-*, or the title of a group"
                yield (index, "variants", position), f"{what}; allowed: {allowed}"


def unknown(key: str, known: Collection[str]) -> str:
    """Return what is wrong with a key that a table does not have."""
    return f"found {quoted(key)}; allowed: {listed(known)}{near_miss(key, known)}"


def _hashes(spec: MatrixFile) -> Iterator[Contradiction]:
    """Yield the path and the value of every hash."""
    for key, pin in spec.pin.items():
        yield ("pin", key, "sha256"), pin.sha256
    for key, patch in spec.patch.items():
        yield ("patch", key, "hash"), patch.hash
    for key, release in spec.release.items():
        for place, source in release.sources.items():
            yield ("release", key, *place, "hash"), source.hash
        if release.cuda and (packages := release.cuda.packages_from):
            yield ("release", key, "cuda", "packages_from", "hash"), packages.hash


def _of_rule(spec: MatrixFile, rule: Rule) -> Iterator[Contradiction]:
    """Conditions and effects name what the matrix has."""
    for field in ("when", "until"):
        condition: Condition | None = getattr(rule, field)
        if condition == Condition():
            yield (field,), "found no condition; allowed: at least one"
        for name, known in (("gpu", spec.gpu), ("cpu", spec.cpu), ("pin", spec.pin)):
            for position, key in enumerate(getattr(condition, name, ())):
                if key not in known:
                    yield (field, name, position), unknown(key, known)
    for position, key in enumerate(rule.effect.patches):
        if key not in spec.patch:
            yield ("effect", "patches", position), unknown(key, spec.patch)


def _torch(spec: MatrixFile, release: Release) -> Iterator[Contradiction]:
    """Sources of a release are complete; the torch of the pin has the version of the pin."""
    torch = release.torch
    pin = spec.pin.get(release.nixpkgs.pin)
    if torch.is_of_pin and pin and torch.version != pin.torch:
        allowed = f'"{pin.torch}", the torch of pin.{release.nixpkgs.pin}, or source "github"'
        yield ("torch", "version"), f"found {quoted(torch.version)}; allowed: {allowed}"
    for place, source in release.sources.items():
        for trail, what in _source(source, place[-1]):
            yield (*place, *trail), what
        if torch.is_of_pin or not source.is_of_pin:
            continue
        if pin and torch.version != pin.torch:
            found = f'found "nixpkgs", which belongs to the torch {pin.torch} of the pin'
            yield (*place, "source"), f'{found}; allowed for {torch.version}: "github"'


def _source(source: PackageSource, name: str) -> Iterator[Contradiction]:
    """A source of its own is complete, and its tag is that of its version."""
    for field in _OF_GITHUB:
        is_given = bool(getattr(source, field))
        if is_given and source.is_of_pin:
            yield (field,), 'found a value; allowed only with source "github"'
        if not (is_given or source.is_of_pin or field.startswith("hash")):
            yield (field,), "missing; add it"
    if isinstance(source, CompanionSource) and source.is_of_pin and source.patches == "clear":
        yield ("patches",), 'found "clear"; allowed with source "nixpkgs": "keep"'
    is_nightly = isinstance(source, TorchSource) and source.is_nightly
    if source.rev.startswith("v") and source.rev != f"v{source.version}" and not is_nightly:
        allowed = f'"v{source.version}", the tag of {name}.version, or 40 hex digits'
        yield ("rev",), f"found {quoted(source.rev)}; allowed: {allowed}"


def _nightly(release: Release) -> Iterator[Contradiction]:
    """A nightly is a commit of a day; nothing else names a commit of Triton."""
    torch = release.torch
    if not torch.is_nightly:
        if torch.triton_rev:
            what = f"found a commit with version {torch.version}"
            yield (
                ("torch", "triton_rev"),
                f"{what}; allowed: only with a version such as 2.11.0.devDAY",
            )
        return
    if torch.rev.startswith("v"):
        allowed = "40 hex digits: a nightly is a commit, never a tag or a branch"
        yield ("torch", "rev"), f"found {quoted(torch.rev)}; allowed: {allowed}"
    try:
        dt.datetime.strptime(torch.nightly_day, "%Y%m%d")  # noqa: DTZ007 - a date without a time
    except ValueError:
        found = f"found {quoted(torch.version)}, which ends in no date"
        yield ("torch", "version"), f"{found}; allowed: X.Y.0.devYYYYMMDD"


def _cuda_packages(release: Release) -> Iterator[Contradiction]:
    """The other source of CUDA packages is a repository at a revision, or copies with digests."""
    cuda = release.cuda
    if cuda is None or (packages := cuda.packages_from) is None:
        return
    at = ("cuda", "packages_from")
    for field in ("owner", "repo", "rev"):
        if packages.is_copied and getattr(packages, field):
            yield (*at, field), "found a value beside folder; allowed: a repository or copies"
        if not (packages.is_copied or getattr(packages, field)):
            yield (*at, field), "missing; add it, or folder for copies in this repository"
    copies = {cuda.package_file(name) for name in CUDA_PACKAGES} if packages.is_copied else set()
    if packages.digests.keys() != copies:
        fix = "`invoke vendor cuda-packages --from DIR` writes them"
        found = f"found {', '.join(packages.digests) or 'none'}"
        yield (*at, "digests"), f"{found}; allowed: {', '.join(sorted(copies)) or 'none'}; {fix}"
    if f"{packages.folder}/".startswith(f"{release.folder}/"):
        what = f"found {quoted(packages.folder)}, a part of the folder of recipes"
        yield (*at, "folder"), f"{what}; allowed: another one, as Flox builds every file there"
