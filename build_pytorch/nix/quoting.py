"""Values as Nix source text."""

from __future__ import annotations

from collections.abc import Sequence

Value = str | bool | int | None | Sequence["Value"]


def literal(value: Value) -> str:
    """Return a value as Nix source text; nothing in a string is interpolated."""
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
    """Return text escaped for an indented string (between two quotes each).

    The text must end with a line break: a quote before the closing quotes would join them.
    """
    return text.replace("''", "'''").replace("${", "''${")
