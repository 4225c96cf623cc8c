"""Changed values of a release, each with its reason, and a matrix.toml with them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import Pin
from build_pytorch.sources import pin_facts

LEFT_OUT: Final = "none"
"""In place of the table of a companion that a release would inherit."""


class MovedValue(Struct, frozen=True):
    """A changed value of matrix.toml."""

    value: Value
    reason: str


class MovedValues:
    """Changed values of a release; with `beside`, those of a new release that is like it.

    `values` has those of the release and of pins, `pins` the pins that are new or have new facts.
    """

    def __init__(self, matrix: Matrix, name: str, beside: str = "") -> None:
        self.matrix, self.name, self.beside = matrix, name, beside
        self.old = matrix.releases[name]
        self.values: dict[Trail, MovedValue] = {}
        self.pins: dict[str, Pin] = {}
        self.place: Trail = ("release", beside or name)

    def over(self) -> str:
        """Return the text of the matrix with the release moved. Raises MatrixError."""
        changes = {trail: moved.value for trail, moved in self.values.items()}
        text = self._with_new_pins(self.matrix.text)
        for trail in [trail for trail, value in changes.items() if value == LEFT_OUT]:
            text = matrix_editor.without_table(text, trail)
            if not self.old.like:
                del changes[trail]
        return matrix_editor.edited(text, changes)

    def with_pins(self, text: str) -> str:
        """Return a text of the matrix with new pins and new facts about those that it has."""
        facts = {trail: moved.value for trail, moved in self.values.items() if trail[0] == "pin"}
        return matrix_editor.with_values(self._with_new_pins(text), facts)

    def _with_new_pins(self, text: str) -> str:
        place: Trail = ("pin", list(self.matrix.pins)[-1])
        for key, pin in self.pins.items():
            if key in self.matrix.pins:
                text = pin_facts.written(text, key, pin)
            else:
                table = pin_facts.table(pin)
                text = matrix_editor.with_table(text, ("pin", key), table, place)
        return text

    def table(self) -> dict[str, Any]:
        """Return the table of the release beside the old one, without its groups."""
        own = matrix_reader.own_values(self.matrix.text, self.name)
        kept = ("torch", "companion", "nixpkgs", "cuda", "python", "names", "build")
        values: dict[str, Any] = {
            "like": own.get("like", self.name),
            "folder": f"releases/{self.beside}/.flox/pkgs",
            "catalog": self.beside,
            "purpose": f"not written yet; made from {self.name}",
            "support": "evaluated; no build recorded here",
            **({key: own[key] for key in kept if key in own} if "like" in own else {}),
        }
        for (kind, _, *parents, last), moved in self.values.items():
            if kind == "release":
                place = values
                for step in parents:
                    place = place.setdefault(str(step), {})
                place[str(last)] = moved.value
                if moved.value is None:
                    del place[str(last)]
        return values

    def reasons(self) -> Iterator[str]:
        """Yield each reason with the tables whose values change for it."""
        tables: dict[str, dict[str, None]] = {}
        for trail, moved in self.values.items():
            below = trail[len(self.place) :] if trail[0] == "release" else trail
            table = below if moved.value == LEFT_OUT else below[:-1]
            steps = [step for step in table if isinstance(step, str)] or below
            tables.setdefault(moved.reason, {})[".".join(map(str, steps))] = None
        for reason, names in tables.items():
            yield f"{reason}: {', '.join(names)}"

    def set(self, reason: str, table: Trail, **values: Value) -> None:
        """Set values of a table of the release, or of a pin."""
        place = table if table[:1] == ("pin",) else (*self.place, *table)
        for key, value in values.items():
            self.values[*place, key] = MovedValue(value, reason)
