"""The only reader of matrix.toml: returns a consistent Matrix or raises all its errors."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from build_pytorch.base import console, files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import consistency, inheritance, rules
from build_pytorch.matrix.matrix_errors import dotted, message, misfits
from build_pytorch.matrix.model import CompanionPackage, Matrix, Variant
from build_pytorch.matrix.tables import MatrixFile, Trail
from build_pytorch.matrix.toml_lines import TomlLines, syntax_problem

_AnyPackage = TypeVar("_AnyPackage", Variant, CompanionPackage)

_RESTORE: Final = (
    "restore it with `git checkout matrix.toml`; outside a checkout of build-pytorch, "
    "install the package from one with `pip install -e .`"
)


def load(root: Path = paths.PROJECT) -> Matrix:
    """Read and check the matrix of a checkout; that of this package if it has none.

    Raises MatrixError with file, line, TOML path, the value found and the values allowed.
    """
    path = paths.in_use(root, paths.MATRIX)
    try:
        data = files.read_below(path.parent, path.name, files.LARGEST_TEXT)
    except FileNotFoundError:
        raise MatrixError(f"{path}: no such file; {_RESTORE}") from None
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read: {error.strerror}; {_RESTORE}") from None
    matrix = decode(data, path.name, root)
    names = [package.package for package in matrix.packages]
    console.never_mask(["pytorch", *matrix.releases, *matrix.gpus, *matrix.cpus, *names])
    return matrix


def decode(data: bytes, name: str = paths.MATRIX, root: Path = paths.PROJECT) -> Matrix:
    """Parse the content of a matrix file. Raises MatrixError as `load` does."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _syntax_error(before, name, len(before), what) from None
    if text.startswith("\ufeff"):
        what = "begins with a byte order mark; save the file without one"
        raise MatrixError(f"{name}:1: top level: {what}")
    return parse(text, name, root)


def parse(text: str, name: str = paths.MATRIX, root: Path = paths.PROJECT) -> Matrix:
    """Parse the text of a matrix file; errors mention `name`. Raises MatrixError as `load` does.

    `root` is the checkout that the matrix describes.
    """
    raw = _parse_toml(text, name)
    if wrong := list(inheritance.apply(raw)):
        raise _error(text, name, wrong)
    if wrong := misfits(raw, MatrixFile):
        raise _error(text, name, wrong)
    spec = msgspec.convert(raw, MatrixFile)
    for stage in (consistency.unknown_keys, consistency.contradictions):
        if wrong := list(stage(spec)):
            raise _error(text, name, wrong)
    variants = _named(_variants(spec))
    companions = _named(_companions(variants))
    if wrong := list(consistency.collisions(spec, variants, companions)):
        raise _error(text, name, wrong)
    matrix = Matrix(
        releases=spec.release,
        gpus=spec.gpu,
        cpus=spec.cpu,
        pins=spec.pin,
        patches=spec.patch,
        rules=spec.rule,
        builders=spec.builder,
        work=spec.work,
        variants=variants,
        companions=companions,
        notes=(),
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
    text = text.replace("\r\n", "\n")  # as tomllib does, whose positions are compared with it
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise _syntax_error(text, name, *syntax_problem(text, str(error))) from None


def _syntax_error(text: str, name: str, offset: int, what: str) -> MatrixError:
    """Return the error at an offset of a text that is valid TOML up to there."""
    lines = TomlLines(text)
    start, trail = lines.at(offset)
    line = start if offset >= len(text) else text.count("\n", 0, offset) + 1
    if "{first}" in what:
        line, what = start, what.replace("{first}", str(lines.of(trail)))
    return MatrixError(f"{name}:{line}: {dotted(trail)}: {what}")


def _error(text: str, name: str, wrong: Iterable[tuple[Trail, str]]) -> MatrixError:
    """Return one error that holds the first problem of each wrong value, in order of the lines."""
    lines = TomlLines(text)
    found: dict[Trail, str] = {}
    for trail, what in wrong:
        found.setdefault(trail, what)
    trails = sorted(found, key=lines.of)
    errors = [f"{name}:{lines.of(trail)}: {dotted(trail)}: {found[trail]}" for trail in trails]
    return MatrixError(message(errors))


def _notes(matrix: Matrix, name: str) -> Iterator[str]:
    """Yield the hashes that are not taken yet, of pins and of nightlies."""
    missing = [source for source in matrix.sources() if source.may_wait and not source.hash]
    lines = TomlLines(matrix.text if missing else "")
    for source in missing:
        unsure = "Nix cannot detect a changed tarball"
        effect = unsure if source.place[0] == "pin" else "no build begins"
        what = f"{name}:{lines.of(source.place)}: {dotted(source.place)} has no {source.trail[-1]}"
        yield f"{what}: {effect}; `invoke prefetch --only {source.name}` adds the hash"


def _named(packages: Iterable[_AnyPackage]) -> tuple[_AnyPackage, ...]:
    """Return the packages; `shares_name` is set for those with the package name of another one."""
    found = list(packages)
    counts = Counter(package.package for package in found)
    return tuple(
        msgspec.structs.replace(it, shares_name=True) if counts[it.package] > 1 else it
        for it in found
    )


def _companions(variants: Iterable[Variant]) -> Iterator[CompanionPackage]:
    """Yield the companions of the variants, in their order."""
    for variant in variants:
        for name, companion in variant.release.companion.packages.items():
            yield CompanionPackage(name=name, variant=variant, companion=companion)


def _variants(spec: MatrixFile) -> Iterator[Variant]:
    """Yield every variant, in the order of releases, groups, GPU architectures and CPU ISAs."""
    for name, release in spec.release.items():
        pin = spec.pin[release.nixpkgs.pin]
        own = [rule for rule in spec.rule if rules.may_hold(rule.when, release, pin)]
        for group in release.group:
            for gpu_key in group.gpu or (None,):
                for cpu_key in group.cpu:
                    variant = Variant(
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
