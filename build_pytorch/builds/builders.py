"""Remote builders: which platforms and features they add, and the file that Nix reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch import paths
from build_pytorch.errors import BuildPytorchError, WriteError
from build_pytorch.model import Matrix

FROM_MATRIX: Final = "matrix"
_FEATURES: Final = 5


class Machine(Struct, frozen=True):
    """A line of Nix's machines file, as far as a plan asks. Nix manual, "Remote builds"."""

    uri: str
    platforms: tuple[str, ...]
    features: tuple[str, ...] = ()

    def takes(self, system: str, features: Sequence[str]) -> bool:
        """Whether it may be handed a derivation."""
        return system in self.platforms and set(features) <= set(self.features)


class Builders(Struct, frozen=True):
    """Machines, and how Nix is told of them: the value of its option `builders`."""

    machines: tuple[Machine, ...]
    option: str


def read(value: str, matrix: Matrix, root: Path, *, write: bool) -> Builders:
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
        return Builders(_parsed(text, "matrix.toml"), f"@{path}")
    path = Path(value.removeprefix("@"))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise BuildPytorchError(f"--builders {value}: cannot be read: {why}") from None
    return Builders(_parsed(text, str(path)), f"@{path.resolve()}")


def _parsed(text: str, name: str) -> tuple[Machine, ...]:
    machines = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) == 1:
            raise BuildPytorchError(f"{name}:{number}: {words[0]}: no platform; add aarch64-linux")
        features = words[_FEATURES] if len(words) > _FEATURES else "-"
        machines.append(
            Machine(
                words[0],
                tuple(words[1].split(",")),
                () if features == "-" else tuple(features.split(",")),
            )
        )
    if not machines:
        raise BuildPytorchError(f"{name}: no builder in it; see docs/fleet.md")
    return tuple(machines)


def _write(path: Path, text: str) -> None:
    try:
        paths.make_state(path.parent)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
