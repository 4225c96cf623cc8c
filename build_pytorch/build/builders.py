"""Remote builders: which platforms and features they add, and the file that Nix reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files, paths
from build_pytorch.base.errors import BuildPytorchError, WriteError
from build_pytorch.matrix.model import Matrix

FROM_MATRIX: Final = "matrix"
_FEATURES, _MANDATORY = 5, 6
"""Columns, counted from 0."""


class BuilderMachine(Struct, frozen=True):
    """A line of Nix's machines file, as far as a plan asks. Nix manual, "Remote builds".

    Without platforms it is for builds of the platform that hands them out.
    """

    uri: str
    platforms: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    mandatory: tuple[str, ...] = ()

    def takes(self, system: str, features: Sequence[str], host: str) -> bool:
        """Whether it may be handed a derivation, from a host of some platform."""
        return (
            system in (self.platforms or (host,))
            and set(features) <= {*self.features, *self.mandatory}
            and set(self.mandatory) <= set(features)
        )


class Builders(Struct, frozen=True):
    """Machines, and how Nix is told of them: the value of its option `builders`."""

    machines: tuple[BuilderMachine, ...]
    option: str
    host: str
    """The platform of the machine that hands builds out."""

    def find(self, system: str, features: Sequence[str]) -> BuilderMachine | None:
        """A machine that may be handed a derivation."""
        fitting = (m for m in self.machines if m.takes(system, features, self.host))
        return next(fitting, None)


def read(value: str, matrix: Matrix, root: Path, host: str, *, write: bool) -> Builders:
    """The builders that --builders names: a machines file, or `matrix` for those of matrix.toml.

    The latter are written to a file in the state folder, unless this is only a plan.
    Raises BuildPytorchError for a file that cannot be read or has no machine in it.
    """
    if value == FROM_MATRIX:
        if not matrix.builders:
            raise BuildPytorchError("matrix.toml: has no [[builder]]; add one, or name a file")
        text = "".join(f"{builder.line}\n" for builder in matrix.builders)
        path = root / paths.STATE / "machines"
        if write:
            _write(path, text)
        return Builders(_parsed(text, "matrix.toml"), f"@{path}", host)
    path = Path(value.removeprefix("@"))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise BuildPytorchError(f"--builders {value}: cannot be read: {why}") from None
    return Builders(_parsed(text, str(path)), f"@{path.resolve()}", host)


def _parsed(text: str, name: str) -> tuple[BuilderMachine, ...]:
    entries = [e.split() for line in text.splitlines() for e in line.partition("#")[0].split(";")]
    machines = [
        BuilderMachine(
            words[0], _listed(words, 1), _listed(words, _FEATURES), _listed(words, _MANDATORY)
        )
        for words in entries
        if words
    ]
    if not machines:
        raise BuildPytorchError(f"{name}: no builder in it; see docs/fleet.md")
    return tuple(machines)


def _listed(words: Sequence[str], column: int) -> tuple[str, ...]:
    """A column with commas; one that is missing or a dash is empty."""
    word = words[column] if column < len(words) else "-"
    return () if word == "-" else tuple(word.split(","))


def _write(path: Path, text: str) -> None:
    try:
        files.make_state(path.parent)
        files.write_atomically(path, text.encode())
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
