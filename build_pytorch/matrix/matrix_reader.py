"""The only reader of matrix.toml: text in, a consistent Matrix out, or one clear error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import consistency
from build_pytorch.matrix.model import Matrix, MatrixFile, Trail, Variant


def load(path: Path = paths.MATRIX) -> Matrix:
    """Read and cross-check a matrix file.

    Raises MatrixError with file, line, TOML path, what was found and what is allowed.
    """
    try:
        text = files.read_regular_file(path).decode("utf-8")
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise MatrixError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    if text.startswith("\ufeff"):
        raise MatrixError(f"{path.name}:1: begins with a byte order mark; save it without one")
    return parse(text, path.name)


def parse(text: str, name: str = "matrix.toml") -> Matrix:
    """Parse the text of a matrix file. `name` is the file that errors mention.

    Raises MatrixError as `load` does.
    """
    source = _Source(text, name)
    raw = source.parse()
    try:
        spec = msgspec.convert(raw, MatrixFile, strict=True)
    except msgspec.ValidationError as error:
        from build_pytorch.matrix.matrix_errors import explain

        trail, problem = explain(error, raw)
        source.fail(trail, problem)
    for trail, problem in consistency.contradictions(spec):
        source.fail(trail, problem)
    variants = tuple(_variants(spec))
    for trail, problem in consistency.collisions(spec, variants):
        source.fail(trail, problem)
    return Matrix(
        releases=spec.release,
        gpus=spec.gpu,
        cpus=spec.cpu,
        builders=spec.builder,
        variants=variants,
        warnings=tuple(_warnings(source, spec)),
        text=text,
    )


class _Source:
    """The text of the file, and the one way to say that something in it is wrong."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name

    def parse(self) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(self.text)
        except RecursionError:
            raise MatrixError(f"{self.name}: nested too deeply to be a matrix") from None
        except ValueError as error:  # TOMLDecodeError, and integers of thousands of digits
            place = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
            where = f":{place[1]}:{place[2]}" if place else ""
            what = str(error).replace(place[0], "") if place else str(error)
            raise MatrixError(f"{self.name}{where}: not valid TOML: {what}") from None

    def fail(self, trail: Trail, problem: str) -> NoReturn:
        """Raise MatrixError for the value at `trail`."""
        from build_pytorch.matrix.matrix_errors import dotted, line_of

        line = line_of(self.text, trail)
        raise MatrixError(f"{self.name}:{line}: {dotted(trail) or 'top level'}: {problem}")


def _warnings(source: _Source, spec: MatrixFile) -> Iterator[str]:
    for name, release in spec.release.items():
        if not release.nixpkgs.sha256:
            table = f"release.{name}.nixpkgs"
            line = source.text.partition(f"[{table}]")[0].count("\n") + 1
            yield (
                f"{source.name}:{line}: {table} has no sha256: Nix cannot tell a changed tarball "
                "from the right one; `nox -s prefetch -- --only nixpkgs` takes it"
            )


def _variants(spec: MatrixFile) -> Iterator[Variant]:
    """Every variant, in the order of releases, groups, GPU architectures and CPU ISAs."""
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
