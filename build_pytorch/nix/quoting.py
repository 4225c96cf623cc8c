"""Quoting of values for Nix source text."""

from __future__ import annotations

from collections.abc import Sequence

Value = str | bool | int | None | Sequence["Value"]


def literal(value: Value) -> str:
    """A value as Nix writes it. Strings come out inert: nothing in them is interpolated."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
            return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
        case _:
            items = "".join(f"{literal(item)} " for item in value)
            return f"[ {items}]" if items else "[]"


def indented(text: str) -> str:
    """Text for the inside of an indented string (between two quotes each), made inert there.

    The caller ends it with a line break: a quote right before the closing two would join them.
    """
    return text.replace("''", "'''").replace("${", "''${")
