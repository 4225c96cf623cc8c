"""The only reader of matrix.toml: returns a consistent Matrix or raises all its errors."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import (
    consistency,
    known_hardware,
    release_consistency,
    rules,
    toml_lines,
)
from build_pytorch.matrix.field_types import Trail, dotted, message, misfits
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.tables import MatrixFile

_RESTORE: Final = (
    "restore it with `git checkout matrix.toml`; outside a checkout of build-pytorch, "
    "install the package from one with `pip install -e .`"
)


_MAKE_REGULAR: Final = "put its text into a regular file of at most 1 MiB in its place"


def load(root: Path = paths.PROJECT, *, learning: bool = False) -> Matrix:
    """Read and check the matrix of a checkout; that of this package if it has none.

    With `learning`, nobody needs to know what its pins contain, or the true hashes. Raises
    MatrixError with file, line, TOML path, the value found and the values allowed.
    """
    path = paths.in_use(root, paths.MATRIX)
    try:
        data = files.read_below(path.parent, path.name, files.LARGEST_TEXT)
    except FileNotFoundError:
        raise MatrixError(f"{path}: no such file; {_RESTORE}") from None
    except OSError as error:
        is_locked = isinstance(error, PermissionError)
        fix = "let this user read it" if is_locked else _MAKE_REGULAR
        raise MatrixError(f"{path}: cannot be read: {error.strerror}; {fix}") from None
    return decode(data, path.name, root, learning=learning)


def decode(
    data: bytes, name: str = paths.MATRIX, root: Path = paths.PROJECT, *, learning: bool = False
) -> Matrix:
    """Parse the content of a matrix file. Raises MatrixError as `load` does."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise MatrixError(f"{name}:{line}: {what}") from None
    if text.startswith("\ufeff"):
        what = "begins with a byte order mark; save the file without one"
        raise MatrixError(f"{name}:1: top level: {what}")
    return parse(text, name, root, learning=learning)


def parse(
    text: str, name: str = paths.MATRIX, root: Path = paths.PROJECT, *, learning: bool = False
) -> Matrix:
    """Parse the text of a matrix file; errors mention `name`. Raises MatrixError as `load` does.

    `root` is the checkout that the matrix describes.
    """
    raw = _parse_toml(text, name)
    if wrong := list(release_consistency.complete(raw)):
        raise _error(text, name, wrong)
    tables_with_known = known_hardware.with_known(raw)
    if wrong := misfits(tables_with_known, MatrixFile):
        raise _error(text, name, wrong)
    spec = msgspec.convert(tables_with_known, MatrixFile)
    stages = [consistency.unknown_keys, consistency.contradictions]
    stages += [] if learning else [consistency.unknown_pins, consistency.shared_hashes]
    for stage in stages:
        if wrong := list(stage(spec)):
            raise _error(text, name, wrong)
    variants = _named(_variants(spec))
    own = {kind: set(raw.get(kind, ())) for kind in ("gpu", "cpu", "patch")}
    own["rule"] = {rule["id"] for rule in raw.get("rule", ())}
    used_rules = {rule.id for variant in variants for rule in variant.effects.rules}
    applied = [rule for rule in spec.rule if rule.id in used_rules | own["rule"]]
    used: dict[str, set[str | None]] = {
        "gpu": {variant.gpu_key for variant in variants},
        "cpu": {variant.cpu_key for variant in variants},
        "patch": {key for rule in applied for key in rule.effect.patches},
    }
    companions = tuple(_companions(variants))
    if wrong := list(consistency.collisions(spec, variants, companions)):
        raise _error(text, name, wrong)
    matrix = Matrix(
        releases=spec.release,
        gpus={k: gpu for k, gpu in spec.gpu.items() if k in used["gpu"] | own["gpu"]},
        cpus={k: cpu for k, cpu in spec.cpu.items() if k in used["cpu"] | own["cpu"]},
        pins=spec.pin,
        patches={k: it for k, it in spec.patch.items() if k in used["patch"] | own["patch"]},
        rules=tuple(applied),
        variants=variants,
        companions=companions,
        notes=(),
        publisher=spec.publisher,
        repository=spec.repository,
        text=text,
        root=root,
    )
    return msgspec.structs.replace(matrix, notes=tuple(_notes(matrix, name)))


def tables(text: str) -> dict[str, Any]:
    """Return the tables of a valid matrix as they are written, without inherited values."""
    return tomllib.loads(text)


def own_values(text: str, release: str) -> dict[str, Any]:
    """Return the values of a release in the text of a matrix, without inherited ones."""
    values: dict[str, Any] = tables(text)["release"][release]
    return values


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        line, what = toml_lines.syntax_error(text, str(error))
        raise MatrixError(f"{name}:{line}: {what}") from None


def _error(text: str, name: str, wrong: Iterable[tuple[Trail, str]]) -> MatrixError:
    """Return one error that holds the first problem of each wrong value, in order of the lines."""
    found: dict[Trail, str] = {}
    for trail, what in wrong:
        found.setdefault(trail, what)
    for trail in [trail for trail in found if trail[:1] == ("release",) and trail[2:]]:
        like = release_consistency.like(tables(text)["release"], trail[1])
        is_inherited = isinstance(like, str) and like != trail[1]
        if is_inherited and found.get(("release", like, *trail[2:])) == found[trail]:
            del found[trail]  # of a value that the release inherits
    lines = {trail: toml_lines.line_of(text, trail) for trail in found}
    trails = sorted(found, key=lambda trail: lines[trail])
    errors = [f"{name}:{lines[trail]}: {dotted(trail)}: {found[trail]}" for trail in trails]
    return MatrixError(message(errors))


def _notes(matrix: Matrix, name: str) -> Iterator[str]:
    """Yield the hashes that are not taken yet, of pins and of nightlies."""
    missing = [source for source in matrix.sources() if source.may_wait and not source.hash]
    for source in missing:
        unsure = "Nix cannot detect a changed tarball"
        effect = unsure if source.place[0] == "pin" else "no build begins"
        line = toml_lines.line_of(matrix.text, source.place)
        what = f"{name}:{line}: {dotted(source.place)} has no {source.trail[-1]}"
        yield f"{what}: {effect}; `invoke prefetch --only {source.name}` adds the hash"


def _named(variants: Iterable[Package]) -> tuple[Package, ...]:
    """Return the variants; `shares_name` is set for those with the package name of another one."""
    found = list(variants)
    counts = Counter(variant.package for variant in found)
    return tuple(
        msgspec.structs.replace(it, shares_name=True) if counts[it.package] > 1 else it
        for it in found
    )


def _companions(variants: Iterable[Package]) -> Iterator[Package]:
    """Yield the companions of the variants, in their order."""
    for variant in variants:
        for name, companion in variant.release.companion.packages.items():
            yield variant.with_companion(name, companion)


def _variants(spec: MatrixFile) -> Iterator[Package]:
    """Yield every variant, in the order of releases, groups, GPU architectures and CPU ISAs."""
    for name, release in spec.release.items():
        pin = spec.pin[release.nixpkgs.pin]
        own = [rule for rule in spec.rule if rules.may_hold(rule.when, release, pin)]
        for group in release.group:
            for gpu_key in group.gpu or (None,):
                for cpu_key in group.cpu:
                    variant = Package(
                        release_name=name,
                        release=release,
                        pin=pin,
                        group=group,
                        gpu_key=gpu_key,
                        gpu=spec.gpu[gpu_key] if gpu_key else None,
                        cpu_key=cpu_key,
                        cpu=spec.cpu[cpu_key],
                        is_qualified=len(spec.release) > 1,
                    )
                    effects = rules.effects(variant, own, spec.patch)
                    variant = msgspec.structs.replace(variant, effects=effects)
                    yield variant
                    if variant.cuda and variant.cuda.packages_from:
                        yield msgspec.structs.replace(variant, is_wrapper=True)
