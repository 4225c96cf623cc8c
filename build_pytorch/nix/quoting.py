"""What we know of Nix as a language: how values are written, and where comments are."""

from __future__ import annotations

import re
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


_TOKEN = re.compile(
    r"""
    # What is not closed runs to the end of the text; looking for its end twice would take forever.
    (?P<comment>\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>"(?:[^"\\]++|\\.)*+(?:"|\Z)
      |''(?:[^']++|'''|''\$|''\\.|'(?!'))*+(?:''|\Z))
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(text: str) -> str:
    """A recipe with its Nix comments blanked; lines and columns stay where they are.

    Strings are kept whole, so a # inside one does not begin a comment.
    Nix manual, "Language > Syntax": # to the end of the line, /* to */.
    """

    def blank(match: re.Match[str]) -> str:
        if match["comment"] is None:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _TOKEN.sub(blank, text)
