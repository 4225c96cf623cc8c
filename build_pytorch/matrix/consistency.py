"""Values of matrix.toml that depend on each other, and names that two packages share.

Each function yields the path of a wrong value, with the value found and the values allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import numbers, order
from build_pytorch.matrix import known_hardware, release_consistency, rules
from build_pytorch.matrix.compatibility import required_cpu_flags
from build_pytorch.matrix.field_types import Fault, Trail, listed, quoted, wrong
from build_pytorch.matrix.hashed_sources import FAKE, sources
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.release_consistency import is_for_recipes
from build_pytorch.matrix.tables import (
    Condition,
    CpuIsa,
    GpuArchitecture,
    MatrixFile,
    Release,
)

_NEW_GPU: Final = ('family = "NAME"', 'hosts.x86_64-linux = ["PRODUCT"]', 'first_cuda = "13.0"')
_NEW_ISA: Final = (
    'platform = "x86_64-linux"',
    "level = 9   # order among the ISAs of the platform",
    'flags = ["-mFLAG"]   # for gcc',
    'cpuinfo = ["FLAG"]   # of /proc/cpuinfo',
)
_MOST_VARIANTS: Final = 10_000
"""Maximum number of variants of a matrix: lists multiply."""


def _below(place: Trail, faults: Iterable[Fault]) -> Iterator[Fault]:
    for trail, what in faults:
        yield (*place, *trail), what


def unknown_keys(spec: MatrixFile) -> Iterator[Fault]:
    """Yield keys of tables and ids of rules that the file does not have."""
    for trail, key, known in _references(spec):
        if key not in known:
            hint = near_miss(key, known)
            if trail[-2] == "gpu" and (digits := re.fullmatch("sm([3-9]|1[0-9])([0-9])", key)):
                hint = _table(f"gpu.{key}", f'capability = "{digits[1]}.{digits[2]}"', *_NEW_GPU)
            elif trail[-2] == "cpu" and not hint:
                hint = _table(f"cpu.{key}", *_NEW_ISA)
            yield trail, f"{wrong(quoted(key), listed(known))}{hint}"


def _table(header: str, *lines: str) -> str:
    """Return the table of a row that is not known, for a person to complete."""
    return "; or add its table:" + "".join(f"\n  {line}" for line in (f"[{header}]", *lines))


def _references(spec: MatrixFile) -> Iterator[tuple[Trail, str, Collection[str]]]:
    """Yield the place of each key of another table, and the keys that there are."""
    tables: dict[str, Collection[str]] = {"gpu": spec.gpu, "cpu": spec.cpu, "pin": spec.pin}
    for index, rule in enumerate(spec.rule):
        for field in ("when", "until"):
            for kind, known in tables.items():
                for position, key in enumerate(getattr(getattr(rule, field), kind, ())):
                    yield ("rule", index, field, kind, position), key, known
        for position, key in enumerate(rule.effect.patches):
            yield ("rule", index, "effect", "patches", position), key, spec.patch
    for name, release in spec.release.items():
        for trail, key, known in _references_of(release, tables):
            yield ("release", name, *trail), key, known


def _references_of(
    release: Release, tables: Mapping[str, Collection[str]]
) -> Iterator[tuple[Trail, str, Collection[str]]]:
    yield ("nixpkgs", "pin"), release.nixpkgs.pin, tables["pin"]
    for index, group in enumerate(release.group):
        for kind in ("gpu", "cpu"):
            for position, key in enumerate(getattr(group, kind)):
                yield ("group", index, kind, position), key, tables[kind]


def contradictions(spec: MatrixFile) -> Iterator[Fault]:
    """Yield contradictions inside the tables of a file that has all keys that it names."""
    for key, gpu in spec.gpu.items():
        yield from _below(("gpu", key), _gpu(key, gpu))
    for key, cpu in spec.cpu.items():
        if missing := [flag for flag in required_cpu_flags(cpu.flags) if flag not in cpu.cpuinfo]:
            allowed = f"also {', '.join(missing)}: its flags need them, or a CPU stops (SIGILL)"
            yield ("cpu", key, "cpuinfo"), wrong(quoted(list(cpu.cpuinfo)), allowed)
        yield from _below(("cpu", key), _alias(spec, cpu))
    yield from _levels(spec)
    yield from _pins(spec)
    yield from _rules(spec)
    yield from _codegen_rules(spec)
    sizes = [(len(g.gpu) or 1) * len(g.cpu) for r in spec.release.values() for g in r.group]
    if sum(sizes) > _MOST_VARIANTS:
        yield ("release",), wrong(f"{sum(sizes)} variants", f"{_MOST_VARIANTS} at most")
    for name, release in spec.release.items():
        yield from _below(("release", name), release_consistency.contradictions(spec, release))


def _gpu(key: str, gpu: GpuArchitecture) -> Iterator[Fault]:
    """The key has the digits of the capability; codegen_base is of its major version."""
    if key != f"sm{gpu.code}":
        yield ("capability",), wrong(quoted(gpu.capability), f"the same digits with a dot as {key}")
    if gpu.codegen_base and numbers(gpu.codegen_base)[0] != numbers(gpu.capability)[0]:
        allowed = f"a capability of the major version of {gpu.capability}"
        yield ("codegen_base",), wrong(quoted(gpu.codegen_base), allowed)
    known = known_hardware.of_capability(gpu.capability) or gpu
    for field in ("first_cuda", "driver"):
        least, own = getattr(known, field), getattr(gpu, field)
        if least and own and order(own) < order(least):
            yield (field,), wrong(quoted(own), f"{least} or newer, as {gpu.capability} needs")
    if known.last_cuda and order(gpu.last_cuda or "99") > order(known.last_cuda):
        found = quoted(gpu.last_cuda or "")
        yield ("last_cuda",), wrong(found, f"{known.last_cuda} or older for {gpu.capability}")


def _alias(spec: MatrixFile, cpu: CpuIsa) -> Iterator[Fault]:
    """An ISA stands for another one that runs wherever that one does, and only with evidence."""
    if not cpu.same_as:
        return
    if not cpu.evidence:
        allowed = "only with `evidence`: `invoke compare A --against B` prints it"
        yield ("same_as",), wrong(quoted(cpu.same_as), allowed)
    other = spec.cpu.get(cpu.same_as)
    of_lower = other and other.platform == cpu.platform and other.level < cpu.level
    if not of_lower or (other and other.same_as):
        allowed = f"an ISA of {cpu.platform} of a lower level, which is the same as no other one"
        yield ("same_as",), wrong(quoted(cpu.same_as), allowed)


def _levels(spec: MatrixFile) -> Iterator[Fault]:
    """Levels are unique in a platform; an ISA that requires more flags has a higher one.

    Only Darwin has an ISA without flags.
    """
    taken: dict[tuple[str, int], str] = {}
    for key, cpu in spec.cpu.items():
        for field in ("flags", "cpuinfo"):
            if not getattr(cpu, field) and not cpu.platform.endswith("-darwin"):
                yield ("cpu", key, field), wrong("[]", "a list with at least one element")
        at: Trail = ("cpu", key, "level")
        other = taken.setdefault((cpu.platform, cpu.level), key)
        if other != key:
            found = f"{cpu.level}, the level of {other}"
            yield at, wrong(found, f"one that no other ISA of {cpu.platform} has")
        for below, less in spec.cpu.items():
            requires_less = less.platform == cpu.platform and set(less.cpuinfo) < set(cpu.cpuinfo)
            if requires_less and less.level >= cpu.level:
                reason = "as every CPU that has this one has that one"
                allowed = f"more than {less.level}, the level of {below}, {reason}"
                yield at, wrong(str(cpu.level), allowed)


def _pins(spec: MatrixFile) -> Iterator[Fault]:
    """Hashes are those of real sources; each revision of nixpkgs has one set of facts."""
    for source in sources(spec.release, spec.pin, spec.patch, {}):
        if source.hash == FAKE:
            yield source.trail, wrong("a fake hash", "the hash of the real source")
    revisions: dict[str, str] = {}
    for key, pin in spec.pin.items():
        first = revisions.setdefault(pin.rev, key)
        if first != key:
            found = f"the revision of pin.{first}"
            yield ("pin", key, "rev"), wrong(found, "each revision once, with one set of facts")


def shared_hashes(spec: MatrixFile) -> Iterator[Fault]:
    """Yield hashes that are those of another repository or of another revision.

    One whose revision did not follow is left to verification, and to `invoke prefetch`.
    """
    of = {known.hash: (known.repository, known.rev) for known in known_hardware.load().source}
    for source in sources(spec.release, spec.pin, spec.patch, {}):
        fetched = (source.table.address, source.taken_for)
        address, revision = of.setdefault(source.hash, fetched)
        is_same = (_name(address), revision) == (_name(fetched[0]), fetched[1])
        if source.hash and source.recorded == source.taken_for and not is_same:
            found = f"{quoted(source.hash)}, the hash of {address} {revision}"
            yield source.trail, wrong(found, "a hash of its own; `invoke prefetch` takes it")


def _name(address: str) -> str:
    """Return the last part of an address: a fork has the name of its repository."""
    return address.rpartition("/")[2]


def or_assume(rev: str) -> str:
    """Return what to do without an evaluation of a revision that matrix.toml names."""
    bump = f"`invoke bump --nixpkgs {rev} --assume PIN`"
    return f"with the revision before it in matrix.toml, {bump} takes what another pin contains"


def unknown_pins(spec: MatrixFile) -> Iterator[Fault]:
    """Yield each pin of which nobody knows what it contains: rules depend on that."""
    for key, pin in spec.pin.items():
        fix = f"`invoke prefetch --only nixpkgs` evaluates it; {or_assume(pin.rev)}"
        if pin.facts is None:
            yield ("pin", key, "facts"), f"missing, so what it contains is not known; {fix}"
        elif pin.facts.of != pin.rev:
            yield ("pin", key, "facts", "of"), f"{wrong(quoted(pin.facts.of), pin.rev)}; {fix}"


def _rules(spec: MatrixFile) -> Iterator[Fault]:
    ids: set[str] = set()
    for index, rule in enumerate(spec.rule):
        if rule.id in ids:
            yield ("rule", index, "id"), wrong(f"{quoted(rule.id)} twice", "each id once")
        ids.add(rule.id)
        for field in ("when", "until"):
            if getattr(rule, field) == Condition():
                yield ("rule", index, field), wrong("no condition", "at least one")


def _codegen_rules(spec: MatrixFile) -> Iterator[Fault]:
    """A GPU with codegen_base is one of a rule that reads it."""
    named = [rule.when.gpu for rule in spec.rule if "codegen-condition" in rule.effect.fixes]
    for key, gpu in spec.gpu.items():
        if gpu.codegen_base and not any(key in keys or not keys for keys in named):
            found = f"{quoted(gpu.codegen_base)} without a rule that reads it"
            allowed = f'"{key}" in when.gpu of a rule with the fix codegen-condition'
            yield ("gpu", key, "codegen_base"), wrong(found, allowed)


def collisions(
    spec: MatrixFile, variants: Sequence[Variant], companions: Sequence[Package] = ()
) -> Iterator[Fault]:
    """Yield names and files that two packages or two releases share, and wrong lists of them."""
    packages: list[Package] = [*variants, *companions]
    yield from _shared_names(packages)
    yield from rules.wrong_blas(variants)
    recipes = {package.path for package in packages}
    notes: dict[str, str] = {}
    for name, release in spec.release.items():
        at: Trail = ("release", name)
        first = notes.setdefault(release.notes or name, name)
        if release.notes and first != name:
            found = f"{quoted(release.notes)}, the notes of release.{first} as well"
            yield (*at, "notes"), wrong(found, "a file of its own")
        yield from _below(at, _listed_files(release, recipes))
        groups = [(n, g.folder) for n, g in enumerate(release.group) if g.folder]
        for index, folder in groups:
            if what := _wrong_folder(spec, folder):
                yield (*at, "group", index, "folder"), what


def _wrong_folder(spec: MatrixFile, folder: str) -> str:
    """Return what is wrong with a folder of recipes: Flox takes all files below a folder."""
    found = quoted(folder)
    if not is_for_recipes(folder):
        return wrong(found, "a folder of recipes")
    for name, release in spec.release.items():
        own = [it for it in release.variant_folders if it != folder]
        if any(f"{folder}/".startswith(f"{each}/") for each in own):
            allowed = "one outside it, as Flox takes every file in it for a package"
            return wrong(f"{found}, which is in the folder of release.{name}", allowed)
        for other in (*release.variant_folders, *release.companion_folders):
            if other != folder and f"{other}/".startswith(f"{folder}/"):
                return wrong(f"{found}, which contains {other}", "one without other recipes")
    return ""


def _shared_names(packages: Sequence[Package]) -> Iterator[Fault]:
    """Each package has a recipe of its own, and a name of its own in its catalog."""
    recipes: dict[str, Package] = {}
    names: dict[tuple[str, str], Package] = {}
    for package in packages:
        release = package.release
        at: Trail = ("release", package.release_name)
        place: Trail = (*at, "names")
        if package.companion:
            place = (*at, "companion", package.name)
        by_path = recipes.setdefault(package.path, package)
        by_name = names.setdefault((release.catalog, package.package), package)
        if by_path is not package and by_path.release is release:
            place = (*at, "group", release.group.index(package.variant.group))
            yield place, wrong(f"{package.variant.short_id} twice", "each variant once")
        elif by_path is not package:
            found = f"{package.path}, which release.{by_path.release_name} writes as well"
            yield place, wrong(found, "another folder or other names")
        elif by_name is not package:
            found = f"{package.package}, a package of release.{by_name.release_name} as well"
            yield place, wrong(found, "other names or another catalog")


def _listed_files(release: Release, recipes: Collection[str]) -> Iterator[Fault]:
    """A file is once in the list cleanup, and its action fits its recipe."""
    seen: set[str] = set()
    for index, entry in enumerate(release.cleanup):
        found = quoted(entry.file)
        if entry.file in seen:
            yield ("cleanup", index, "file"), wrong(f"{found} twice", "each file once")
        seen.add(entry.file)
        is_recipe = f"{release.folder}/{entry.file}" in recipes
        if entry.action == "delete" and is_recipe:
            what = wrong(f"{found}, the recipe of a variant", "a file that no variant needs")
            yield ("cleanup", index, "file"), what
        if entry.action != "delete" and not is_recipe:
            allowed = f"with action {entry.action} the recipe of a variant"
            what = wrong(f"{found}, which is no variant's recipe", allowed)
            yield ("cleanup", index, "file"), what
