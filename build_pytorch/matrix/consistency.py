"""Values of matrix.toml that depend on each other, and names that two packages share.

Most rules are rows: the path of a value, whether it is wrong, and what is allowed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.errors import near_miss
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.available import driver_of
from build_pytorch.matrix.compatibility import compiles, cuda_window
from build_pytorch.matrix.field_types import Fault, Trail, listed, quoted, wrong
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import (
    FAKE,
    CpuIsa,
    GpuArchitecture,
    Group,
    MatrixFile,
    PackageSource,
    Pin,
    Release,
    TorchSource,
    companion_folder_of,
)
from build_pytorch.matrix.versions import digits, minor_version, order

Row = tuple[str, bool, str]
"""The path of a value below its table, whether it is wrong, and what is allowed."""

_NEW_GPU: Final = ('family = "NAME"', 'hosts.x86_64-linux = ["PRODUCT"]', 'first_cuda = "13.0"')
_NEW_ISA: Final = (
    'platform = "x86_64-linux"',
    "level = 9   # order among the ISAs of the platform",
    'flags = ["-mFLAG"]   # for gcc',
    'cpuinfo = ["FLAG"]   # of /proc/cpuinfo',
)
_MOST_VARIANTS: Final = 10_000
"""Maximum number of variants of a matrix: lists multiply."""
_LEAST_JOB_MEMORY: Final = 1
"""GiB of one compile job; measured on PyTorch 2.6 with CUDA 13."""
_NO_RECIPES: Final = frozenset({"docs", "templates", "tests", "build_pytorch", "nix", paths.STATE})
"""Folders below the root in which no recipe is."""
_LAST_SETUP_PY: Final = "20260720"
_SCIKIT_BUILD: Final = "2.14"
"""The day on which setup.py left PyTorch's main (pytorch pull request 189758), and the first
version that scikit-build-core builds."""
_OF_GITHUB: Final = ("owner", "repo", "rev", "hash", "hash_of")


def _faults(table: Struct, rows: Iterable[Row], *place: str | int) -> Iterator[Fault]:
    """Yield the wrong values of a table, with what rows of it allow."""
    for path, is_wrong, allowed in rows:
        if is_wrong:
            trail = [int(step) if step.isdecimal() else step for step in path.split(".")]
            value: Any = table
            for step in trail:
                value = value[step] if isinstance(step, int) else getattr(value, step)
            found = "nothing" if value in {None, ""} else quoted(value)
            yield (*place, *trail), wrong(found, allowed)


# --- names of other tables ---


def unknown_keys(spec: MatrixFile) -> Iterator[Fault]:
    """Yield keys of tables that the file does not have and nobody knows."""
    tables = {"gpu": [*spec.gpus], "cpu": [*spec.cpus], "patches": [*spec.patches]}
    lists: list[tuple[Trail, Struct | None]] = []
    for number, rule in enumerate(spec.rules):
        parts = {"effect": rule.effect, "when": rule.when, "until": rule.until}
        lists += [(("rule", number, name), part) for name, part in parts.items()]
    named: list[tuple[Trail, str, Iterable[str]]] = []
    for name, release in spec.releases.items():
        place: Trail = ("release", name)
        named.append(((*place, "nixpkgs", "pin"), release.nixpkgs.pin, spec.pins))
        companions = known_hardware.load().companion
        named += [((*place, "companion", key), key, companions) for key in release.companion]
        lists += [((*place, "group", number), it) for number, it in enumerate(release.group)]
    for place, table in lists:
        for field, rows in tables.items():
            keys = enumerate(getattr(table, field, ()))
            named += [((*place, field, number), key, rows) for number, key in keys]
    for trail, key, known in named:
        if key not in known:
            hint = near_miss(key, known)
            if trail[-2] == "gpu" and (code := re.fullmatch("sm([3-9]|1[0-9])([0-9])", key)):
                hint = _table(f"gpu.{key}", f'capability = "{code[1]}.{code[2]}"', *_NEW_GPU)
            elif trail[-2] == "cpu" and not hint:
                hint = _table(f"cpu.{key}", *_NEW_ISA)
            yield trail, f"{wrong(quoted(key), listed(known))}{hint}"


def _table(header: str, *lines: str) -> str:
    """Return the table of a row that is not known, for a person to complete."""
    return "; or add its table:" + "".join(f"\n  {line}" for line in (f"[{header}]", *lines))


# --- values that contradict each other ---


def contradictions(spec: MatrixFile) -> Iterator[Fault]:
    """Yield contradictions inside the tables of a file that has all keys that it names."""
    for key, gpu in spec.gpus.items():
        yield from _faults(gpu, _gpu(key, gpu), "gpu", key)
    for key, cpu in spec.cpus.items():
        yield from _faults(cpu, _cpu(spec, key, cpu), "cpu", key)
    ids = [rule.id for rule in spec.rules]
    for index, rule in enumerate(spec.rules):
        row = ("id", rule.id in ids[:index], "each id once")
        yield from _faults(rule, [row], "rule", index)
    groups = [group for release in spec.releases.values() for group in release.group]
    size = sum((len(group.gpu) or 1) * len(group.cpu) for group in groups)
    if size > _MOST_VARIANTS:
        yield ("release",), wrong(f"{size} variants", f"{_MOST_VARIANTS} at most")
    for name, release in spec.releases.items():
        pin = spec.pins[release.nixpkgs.pin]
        yield from _faults(release, _release(release, pin), "release", name)
        for place, source in release.sources.items():
            rows = _source(release, pin, source, place[-1])
            yield from _faults(source, rows, "release", name, *place)
        for index, group in enumerate(release.group):
            rows = _group(spec, release, group)
            yield from _faults(group, rows, "release", name, "group", index)
    yield from _folders(spec)


def _gpu(key: str, gpu: GpuArchitecture) -> Iterator[Row]:
    """The key has the digits of the capability; the facts fit those that are known."""
    own = gpu.capability
    yield "capability", key != f"sm{gpu.code}", f"the same digits with a dot as {key}"
    known = known_hardware.load().gpu.get(key, gpu)
    is_other = gpu.first_cuda != known.first_cuda
    yield "first_cuda", is_other, f"{known.first_cuda}, the first CUDA that compiles for {own}"
    is_older = order(gpu.driver or known.driver or "") < order(known.driver or "")
    yield "driver", is_older, f"{known.driver} or newer, as {own} needs"


def _cpu(spec: MatrixFile, key: str, cpu: CpuIsa) -> Iterator[Row]:
    """The flags of /proc/cpuinfo cover those of the compiler; levels order; aliases are of others.

    A flag needs its namesake, and those of a known ISA all that it has.
    """
    needed = dict.fromkeys(
        name
        for known in known_hardware.load().cpu.values()
        for name in known.cpuinfo
        if {*known.flags} <= {*cpu.flags} or f"-m{name.replace('_', '')}" in cpu.flags
    )
    missing = [name for name in needed if name not in cpu.cpuinfo]
    allowed = f"also {', '.join(missing)}: its flags need them, or a CPU stops (SIGILL)"
    yield "cpuinfo", bool(missing), allowed
    if cpu.same_as:
        allowed = "only with `evidence`: `invoke compare A --against B` prints it"
        yield "same_as", not cpu.evidence, allowed
        lower = spec.cpus.get(cpu.same_as, cpu)
        fits = lower.platform == cpu.platform and lower.level < cpu.level and not lower.same_as
        allowed = f"an ISA of {cpu.platform} of a lower level, which is the same as no other one"
        yield "same_as", not fits, allowed
    for other, before in itertools.takewhile(lambda row: row[0] != key, spec.cpus.items()):
        is_same = (before.platform, before.level) == (cpu.platform, cpu.level)
        yield "level", is_same, f"another level than {other}"


def _release(release: Release, pin: Pin) -> Iterator[Row]:
    """The pin has what the release is made of, and names have its versions."""
    torch, cuda, build = release.torch, release.cuda, release.build
    is_retired = pin.rev in release.nixpkgs.retired
    yield "nixpkgs.pin", is_retired, "any pin whose revision nixpkgs.retired does not list"
    is_low = build.job_memory < _LEAST_JOB_MEMORY and any(it.gpu for it in release.group)
    allowed = f"{_LEAST_JOB_MEMORY} or more for GPUs: a CUDA file takes 0.6 to 4.7 GiB"
    yield "build.job_memory", is_low, allowed
    python = f"python{digits(release.python.version)}"
    tokens = [("pname", digits(minor_version(torch.version))), ("gpu", python), ("cpu", python)]
    if cuda:
        tokens.append(("gpu", f"cuda{digits(cuda.version, '_')}"))
        sets = [name for name, version in pin.cuda.items() if version == cuda.version]
        known = " or ".join(sets) or f"a package set of pin.{release.nixpkgs.pin}.cuda"
        yield "cuda.package_set", cuda.package_set not in sets, f"{known} for CUDA {cuda.version}"
        least = driver_of(cuda.version)
        allowed = f"{least} or newer for CUDA {cuda.version}"
        yield "cuda.driver", order(cuda.driver) < order(least), allowed
    if cuda and (other := cuda.packages_from):
        for field in ("owner", "repo", "rev"):
            is_wrong = bool(getattr(other, field)) == bool(other.folder)
            yield f"cuda.packages_from.{field}", is_wrong, "a repository, or a folder of copies"
    for field, token in tokens:
        allowed = f'a name with "{token}", from the release\'s versions'
        yield f"names.{field}", token not in getattr(release.names, field), allowed


def _source(release: Release, pin: Pin, source: PackageSource, name: str) -> Iterator[Row]:
    """A source is that of the pin, or complete and of its version."""
    torch, version, rev = release.torch, source.version, source.rev
    if source.is_of_pin:
        given = [field for field in _OF_GITHUB if getattr(source, field)]
        yield "source", bool(given), f'"github" with {" and ".join(given)}'
        is_other = torch.version != pin.torch
        allowed = f'"{pin.torch}", the torch of pin.{release.nixpkgs.pin}, or source "github"'
        yield "version", source is torch and is_other, allowed
        allowed = f'"github": that of the pin is for its torch {pin.torch}, not for {torch.version}'
        yield "source", is_other and not torch.is_of_pin, allowed
        return
    for field in ("owner", "repo", "rev"):
        yield field, not getattr(source, field), "a value, as the source is GitHub"
    is_other = rev.startswith("v") and rev != f"v{version}"
    yield "rev", is_other, f'"v{version}", the tag of {name}.version, or 40 hex digits'
    if isinstance(source, TorchSource):
        day = version.partition(".dev")[2]
        is_newer = day > _LAST_SETUP_PY and order(pin.torch) < order(_SCIKIT_BUILD)
        allowed = f"a day up to {_LAST_SETUP_PY}, or a pin with torch {_SCIKIT_BUILD} or newer"
        yield "version", is_newer, f"{allowed}: nixpkgs {pin.torch} builds with setup.py"


def _group(spec: MatrixFile, release: Release, group: Group) -> Iterator[Row]:
    """The CUDA compiles for the GPUs, and the ISAs have what the build and its BLAS need."""
    cuda, is_mkl = release.cuda, group.blas == "mkl"
    is_lacking = is_mkl and "allowUnfree" not in release.nixpkgs.config
    yield "blas", is_lacking, '"mkl" with allowUnfree in nixpkgs.config: MKL is not free'
    for index, key in enumerate(group.gpu):
        gpu = spec.gpus[key]
        allowed = f"GPUs of CUDA {cuda.version}" if cuda else "none in a release without a CUDA"
        is_other = not compiles(cuda, gpu)
        yield f"gpu.{index}", is_other, f"{allowed}; this one needs CUDA {cuda_window(gpu)}"
    for index, key in enumerate(group.cpu):
        cpu = spec.cpus[key]
        is_darwin = cpu.platform.endswith("-darwin")
        yield f"cpu.{index}", bool(group.gpu) and is_darwin, f"ISAs for Linux; {key} has Metal"
        is_other = is_mkl and cpu.platform != "x86_64-linux"
        yield "blas", is_other, f'"openblas" on {cpu.platform}: MKL is for x86-64'
        is_lacking = release.build.require_builder_feature and not cpu.builder_feature
        allowed = "ISAs with a builder_feature, as build.require_builder_feature is true"
        yield f"cpu.{index}", is_lacking, allowed


def _folders(spec: MatrixFile) -> Iterator[Fault]:
    """Folders are for recipes, and none is in another: Flox takes all files below a folder."""
    places: list[tuple[Trail, str]] = []
    for name, release in spec.releases.items():
        at: Trail = ("release", name)
        groups = enumerate(release.group)
        own = [((*at, "folder"), release.folder)]
        own += [((*at, "group", n, "folder"), it.folder) for n, it in groups if it.folder]
        places += own + [(place, companion_folder_of(folder)) for place, folder in own]
        copies = release.cuda and release.cuda.packages_from
        if copies and copies.folder:
            places.append(((*at, "cuda", "packages_from", "folder"), copies.folder))
    for place, folder in places:
        parts = folder.split("/")
        is_file = folder.endswith((".toml", ".nix", ".py", ".md"))
        if is_file or ".git" in parts or parts[0] in _NO_RECIPES:
            yield place, wrong(quoted(folder), "a folder of recipes")
        if outer := next((it for _, it in places if folder.startswith(f"{it}/")), ""):
            allowed = f"one outside the folder {outer}, as Flox takes every file in it"
            yield place, wrong(quoted(folder), allowed)


# --- what is known of pins and hashes ---


def unknown_pins(spec: MatrixFile) -> Iterator[Fault]:
    """Yield each pin of which nobody knows what it contains: rules depend on that."""
    fix = "`invoke prefetch --only nixpkgs` evaluates it"
    for key, pin in spec.pins.items():
        if pin.facts is None:
            yield ("pin", key, "facts"), f"missing, so what it contains is not known; {fix}"
        elif pin.facts.of != pin.rev:
            yield ("pin", key, "facts", "of"), f"{wrong(quoted(pin.facts.of), pin.rev)}; {fix}"


def shared_hashes(spec: MatrixFile) -> Iterator[Fault]:
    """Yield hashes that are fake, or of another source.

    One whose revision did not follow is left to verification, and to `invoke prefetch`.
    """
    known = known_hardware.load().raw["source"]
    # A fork has the name of its repository.
    of = {it["hash"]: (it["repository"].rpartition("/")[2], it["rev"]) for it in known}
    for source in spec.sources():
        if source.hash == FAKE:
            yield source.trail, wrong("a fake hash", "the hash of the source, or an empty text")
        fetched = (source.origin.address.rpartition("/")[2], source.origin.revision)
        other = of.setdefault(source.hash, fetched)
        if source.hash and source.recorded == source.origin.revision and other != fetched:
            found = f"{quoted(source.hash)}, the hash of {' '.join(other)}"
            yield source.trail, wrong(found, "a hash of its own; `invoke prefetch` takes it")


# --- names and files ---


def collisions(spec: MatrixFile, packages: Sequence[Package]) -> Iterator[Fault]:
    """Yield names and files that two packages share, and wrong clean-up lists."""
    paths_of: dict[str, Package] = {}
    names: dict[tuple[str, str], Package] = {}
    for package in packages:
        release = package.release
        at: Trail = ("release", package.release_name)
        place = (*at, "companion", package.name) if package.companion else (*at, "names")
        by_path = paths_of.setdefault(package.path, package)
        by_name = names.setdefault((release.catalog, package.package), package)
        if by_path is not package and by_path.release is release:
            place = (*at, "group", release.group.index(package.group))
            yield place, wrong(f"{package.variant.short_id} twice", "each variant once")
        elif by_path is not package:
            found = f"{package.path}, which release.{by_path.release_name} writes as well"
            yield place, wrong(found, "another folder or other names")
        elif by_name is not package:
            found = f"{package.package}, a package of release.{by_name.release_name} as well"
            yield place, wrong(found, "other names or another catalog")
    for name, release in spec.releases.items():
        for index, entry in enumerate(release.cleanup):
            place = ("release", name, "cleanup", index, "file")
            is_recipe = f"{release.folder}/{entry.file}" in paths_of
            allowed = f"with action {entry.action} the recipe of a variant"
            if entry.action == "delete":
                is_recipe, allowed = not is_recipe, "a file that no variant needs"
            if not is_recipe:
                yield place, wrong(quoted(entry.file), allowed)
