"""The only reader of matrix.toml: returns a consistent Matrix or raises all its errors."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import consistency
from build_pytorch.matrix.matrix_errors import dotted, explain, message
from build_pytorch.matrix.model import Matrix, MatrixFile, Trail, Variant
from build_pytorch.matrix.toml_lines import TomlLines


def load(path: Path = paths.MATRIX) -> Matrix:
    """Read and check a matrix file.

    Raises MatrixError with file, line, TOML path, the value found and the values allowed.
    """
    try:
        text = files.read_below(path.parent, path.name, files.LARGEST_TEXT).decode("utf-8")
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise MatrixError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    if text.startswith("\ufeff"):
        raise MatrixError(f"{path.name}:1: begins with a byte order mark; save it without one")
    return parse(text, path.name)


def parse(text: str, name: str = "matrix.toml") -> Matrix:
    """Parse the text of a matrix file; errors mention `name`. Raises MatrixError as `load` does."""
    raw = _parse_toml(text, name)
    try:
        spec = msgspec.convert(raw, MatrixFile, strict=True)
    except msgspec.ValidationError as error:
        raise _error(text, name, explain(error, raw, MatrixFile)) from None
    if wrong := list(consistency.contradictions(spec)):
        raise _error(text, name, wrong)
    variants = tuple(_variants(spec))
    if wrong := list(consistency.collisions(spec, variants)):
        raise _error(text, name, wrong)
    return Matrix(
        releases=spec.release,
        gpus=spec.gpu,
        cpus=spec.cpu,
        builders=spec.builder,
        variants=variants,
        warnings=tuple(_warnings(spec, text, name)),
        text=text,
    )


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise MatrixError(f"{name}: nested too deeply to be a matrix") from None
    except ValueError as error:  # TOMLDecodeError, and integers of thousands of digits
        place = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
        where = f":{place[1]}:{place[2]}" if place else ""
        what = str(error).replace(place[0], "") if place else str(error)
        raise MatrixError(f"{name}{where}: not valid TOML: {what}") from None


def _error(text: str, name: str, wrong: Iterable[tuple[Trail, str]]) -> MatrixError:
    """Return one error that holds the first problem of each wrong value, in order of the lines."""
    lines = TomlLines(text)
    found: dict[Trail, str] = {}
    for trail, what in wrong:
        found.setdefault(trail, f"{name}:{lines.of(trail)}: {dotted(trail)}: {what}")
    return MatrixError(message([found[trail] for trail in sorted(found, key=lines.of)]))


def _warnings(spec: MatrixFile, text: str, name: str) -> Iterator[str]:
    without = [key for key, each in spec.release.items() if not each.nixpkgs.sha256]
    lines = TomlLines(text if without else "")
    for key in without:
        trail = ("release", key, "nixpkgs")
        what = f"{name}:{lines.of(trail)}: {dotted(trail)} has no sha256"
        fix = "`nox -s prefetch -- --only nixpkgs` adds the hash"
        yield f"{what}: Nix cannot detect a changed tarball; {fix}"


def _variants(spec: MatrixFile) -> Iterator[Variant]:
    """Yield every variant, in the order of releases, groups, GPU architectures and CPU ISAs."""
    for name, release in spec.release.items():
        for group in release.group:
            for gpu_key in group.gpu or (None,):
                for cpu_key in group.cpu:
                    yield Variant(
                        release_name=name,
                        release=release,
                        group=group,
                        gpu_key=gpu_key,
                        gpu=spec.gpu[gpu_key] if gpu_key else None,
                        cpu_key=cpu_key,
                        cpu=spec.cpu[cpu_key],
                    )
