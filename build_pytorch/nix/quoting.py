"""Values as Nix source text. Nix manual, "Language > Data Types > String" and "> Identifiers"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Value = str | bool | int | None | Sequence["Value"]

_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "$": "\\$", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)
_PLAIN: Final = re.compile(r"(?:[^\s'$](?:[^'$\n\r\t]*[^\s'$])?)?")
"""Text that means the same in every string with two quotes at each end, wherever it stands."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_'-]*")
_KEYWORDS: Final = frozenset(
    ["assert", "else", "if", "in", "inherit", "let", "or", "rec", "then", "with"]
)


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
            return f'"{value.translate(_ESCAPES)}"'
        case _:
            items = "".join(f"{literal(item)} " for item in value)
            return f"[ {items}]" if items else "[]"


def indented(text: str) -> str:
    """Return text for any place inside an indented string (between two quotes at each end).

    The escapes of indented strings depend on what precedes and follows them, and indentation is
    removed. Text that contains anything of this is therefore interpolated as a `"` string, in which
    single quotes are escaped as well: a pair would look like the end of the outer string.
    """
    if _PLAIN.fullmatch(text):
        return text
    escaped = literal(text).replace("'", "\\'")
    return f"${{{escaped}}}"


def indented_lines(text: str, spaces: int) -> str:
    """Return lines for an indented string, with its escapes and this indentation."""
    escaped = text.replace("''", "'''").replace("${", "''${")
    return "\n".join(" " * spaces + line if line else "" for line in escaped.splitlines())


def attribute(name: str) -> str:
    """Return an attribute name: as it is if it is an identifier, else as a string."""
    is_bare = _IDENTIFIER.fullmatch(name) and name not in _KEYWORDS
    return name if is_bare else literal(name)
