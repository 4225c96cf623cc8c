"""The only reader of matrix.toml: returns a consistent Matrix or raises all its errors.

It also finds the lines of values and of syntax errors, which no TOML parser for Python keeps.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import consistency, known_hardware, release_consistency, rules
from build_pytorch.matrix.field_types import Trail, dotted, message, misfits
from build_pytorch.matrix.model import CompanionPackage, Matrix, Variant
from build_pytorch.matrix.tables import MatrixFile

_AnyPackage = TypeVar("_AnyPackage", Variant, CompanionPackage)

_RESTORE: Final = (
    "restore it with `git checkout matrix.toml`; outside a checkout of build-pytorch, "
    "install the package from one with `pip install -e .`"
)


def load(root: Path = paths.PROJECT, *, learning: bool = False) -> Matrix:
    """Read and check the matrix of a checkout; that of this package if it has none.

    With `learning`, nobody needs to know what its pins contain. Raises MatrixError with file, line,
    TOML path, the value found and the values allowed.
    """
    path = paths.in_use(root, paths.MATRIX)
    try:
        data = files.read_below(path.parent, path.name, files.LARGEST_TEXT)
    except FileNotFoundError:
        raise MatrixError(f"{path}: no such file; {_RESTORE}") from None
    except OSError as error:
        is_locked = isinstance(error, PermissionError)
        fix = "let this user read it" if is_locked else f"move it away, then {_RESTORE}"
        raise MatrixError(f"{path}: cannot be read: {error.strerror}; {fix}") from None
    return decode(data, path.name, root, learning=learning)


def decode(
    data: bytes, name: str = paths.MATRIX, root: Path = paths.PROJECT, *, learning: bool = False
) -> Matrix:
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
    stages = [consistency.unknown_keys, consistency.contradictions, consistency.unknown_pins]
    for stage in stages[: -1 if learning else None]:
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
    companions = _named(_companions(variants))
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
    for trail in [trail for trail in found if trail[:1] == ("release",) and trail[2:]]:
        like = release_consistency.like(tables(text)["release"], trail[1])
        if like != trail[1] and found.get(("release", like, *trail[2:])) == found[trail]:
            del found[trail]  # of a value that the release inherits
    trails = sorted(found, key=lines.of)
    places = [f"{name}:{lines.of(trail)}" if text else name for trail in trails]
    errors = [f"{at}: {dotted(it)}: {found[it]}" for at, it in zip(places, trails, strict=True)]
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


# --- lines ---

_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\\?\Z)|"(?:[^"\\\n]|\\.)*"'
    r"|'''.*?(?:'{3,5}|\Z)|'[^'\n]*'"
    r"|#[^\n]*|[][{}\n]|[^]\"'#[{}\n]+",
    re.DOTALL,
)
_KEY: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*(\.?)""")
_PLACE: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)")
_MEANINGS: Final = {
    r"Unterminated string|(Illegal|invalid) character '\\n'|Expected [\"']{2,}": (
        "the text is not closed; add the missing quote at its end"
    ),
    "Cannot (declare|overwrite|mutate)|Duplicate inline": (
        "set twice, first in line {first}; keep one of them"
    ),
    "Invalid value": "found no value; put a text into quotes, or add the value",
    "Expected '='|Invalid (statement|initial)": "allowed: KEY = VALUE, [TABLE] or # and a comment",
}
"""What messages of tomllib in Python 3.11 to 3.14 mean, where they do not say what to do."""


class TomlLines:
    """The lines of the values in a TOML text; in one with an error, of those before the error."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Trail, int] = {(): 1}
        self._statements: list[tuple[int, int, int, Trail]] = []  # offsets, line and path
        last: dict[Trail, int] = {}  # array of tables -> index of its last table
        table: Trail = ()
        for start, end, line, statement in _statements(text):
            keys = _keys(statement.lstrip("["))
            if statement.startswith("[") and keys:
                parent: Trail = ()
                for key in keys[:-1]:
                    parent = (*parent, key)
                    parent = (*parent, last[parent]) if parent in last else parent
                table = (*parent, keys[-1])
                if statement.startswith("[["):
                    last[table] = last.get(table, -1) + 1
                    self._lines.setdefault(table, line)
                    table = (*table, last[table])
                trail = table
            else:
                trail = (*table, *keys)
            self._statements.append((start, end, line, trail))
            for length in range(len(trail), 0, -1):
                self._lines.setdefault(trail[:length], line)

    def of(self, trail: Trail) -> int:
        """Return the first line of the statement that sets a value, or its table if missing."""
        while trail not in self._lines:
            trail = trail[:-1]
        return self._lines[trail]

    def span(self, trail: Trail) -> tuple[int, int] | None:
        """Return the offsets of the first statement of a value or table and after its last one."""
        found = [each for each in self._statements if each[-1][: len(trail)] == trail]
        return (found[0][0], found[-1][1]) if found else None

    def runs(self, trail: Trail) -> list[tuple[int, int]]:
        """Return the offsets of the statements of a table, as runs of those without others between.

        A run begins with its first statement and ends after its last one.
        """
        found = []
        keyed = itertools.groupby(self._statements, lambda each: each[-1][: len(trail)] == trail)
        for is_inside, run in keyed:
            statements = list(run)
            if is_inside:
                found.append((statements[0][0], statements[-1][1] + 1))
        return found

    def at(self, offset: int) -> tuple[int, Trail]:
        """Return the line and the path of the statement that holds an offset, or is before it."""
        before = [(line, trail) for start, _, line, trail in self._statements if start <= offset]
        return before[-1] if before else (1, ())


def syntax_problem(text: str, message: str) -> tuple[int, str]:
    """Return the offset of an error of tomllib, and what is wrong there.

    With `{first}` in the explanation, the error is a key that is set for the second time.
    """
    place = _PLACE.search(message)
    offset = len(text)
    if place and place[1]:
        lines = text.split("\n")[: int(place[1]) - 1]
        offset = sum(len(line) + 1 for line in lines) + int(place[2]) - 1
    known = (meaning for pattern, meaning in _MEANINGS.items() if re.search(pattern, message))
    return offset, f"not valid TOML: {next(known, _PLACE.sub('', message))}"


def _statements(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield each table header and each key with its value: offsets, first line and text."""
    depth, start, line = 0, 0, 1
    for token in _TOKEN.finditer(f"{text}\n"):
        if token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth -= 1
        elif token[0] == "\n" and not depth:
            statement = text[start : token.start()]
            if statement.strip() and not statement.lstrip().startswith("#"):
                yield start, token.start(), line, statement.strip()
            line += statement.count("\n") + 1
            start = token.end()
    if rest := text[start:].strip():  # brackets that are not closed
        yield start, len(text), line, rest


def _keys(statement: str) -> list[str]:
    """Return the parts of the dotted key at the start of a statement."""
    keys: list[str] = []
    position, more = 0, "."
    while more and (found := _KEY.match(statement, position)):
        written, more = found.groups()
        with contextlib.suppress(ValueError):  # of an error in the text, such as "\q"
            written = tomllib.loads(f"key = {written}")["key"] if written[0] in "\"'" else written
        keys.append(written)
        position = found.end()
    return keys
