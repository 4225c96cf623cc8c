"""Nix source text: values in it, its comments and paths, and hashes in its notations.

Nix manual, "Language > Data Types > String" and "> Identifiers".
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Final

Value = str | bool | int | None | Sequence["Value"] | Mapping[str, "Value"]

_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "$": "\\$", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)
_PLAIN: Final = re.compile(r"(?:[^\s'$](?:[^'$\n\r\t]*[^\s'$])?)?")
"""Text that means the same in every string with two quotes at each end, wherever it stands."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_'-]*")
_KEYWORDS: Final = frozenset(
    ["assert", "else", "if", "in", "inherit", "let", "or", "rec", "then", "with"]
)

_BASE32: Final = "0123456789abcdfghijklmnpqrsvwxyz"
"""Without e, o, u and t; the last byte comes first (Nix source, libutil/hash.cc)."""

_TO_PYTHON: Final = str.maketrans(_BASE32, "0123456789abcdefghijklmnopqrstuv")


_TOKEN = re.compile(
    r"""
    # No token that begins fails to end: an unclosed one runs to the end of the text. So nothing is
    # tried twice, without possessive quantifiers, which Python 3.11.0 to 3.11.4 get wrong
    # (https://github.com/python/cpython/issues/106052).
    \#[^\n]*|/\*.*?(?:\*/|\Z)
    |"(?:[^"\\]+|\\.)*(?:"|\\?\Z)
    |''(?:[^']+|'''|''\$|''\\.|'(?!'))*(?:''|\Z)
    """,
    re.VERBOSE | re.DOTALL,
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
        case Mapping():
            items = "".join(
                f"{attribute(name)} = {literal(item)}; " for name, item in value.items()
            )
            return f"{{ {items}}}"
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


def to_sri(text: str) -> str | None:
    """Return a SHA-256 hash in any notation as SRI, or None if the text is not one."""
    body = re.sub(r"^sha256[-:]", "", text.strip().strip("'\""))
    if re.fullmatch(r"[0-9a-f]{64}", body):
        raw = bytes.fromhex(body)
    elif re.fullmatch(f"[{_BASE32}]{{52}}", body):
        number = int(body.translate(_TO_PYTHON), 32)
        if number.bit_length() > 256:  # noqa: PLR2004 - 52 digits hold four bits more than a hash
            return None
        raw = number.to_bytes(32, "little")
    elif re.fullmatch(r"[A-Za-z0-9+/]{43}=", body):
        raw = base64.b64decode(body)
    else:
        return None
    return f"sha256-{base64.b64encode(raw).decode()}"


def without_comments(text: str) -> str:
    """Return Nix source text with its comments blanked; lines and columns do not change.

    Strings are kept, so that a # inside a string does not begin a comment.
    Source: Nix manual, "Language > Syntax": # to the end of the line, /* to */.
    """

    def blanked(token: re.Match[str]) -> str:
        lines = token[0].split("\n")
        return "\n".join(" " * len(line) for line in lines) if lines[0][0] in "#/" else token[0]

    return _TOKEN.sub(blanked, text)


@functools.cache
def has_relative_path(text: str) -> bool:
    """Return whether an expression has a path that begins with a dot."""
    return re.search(r"(?<![\w.+/])\.{1,2}/", _TOKEN.sub("", text)) is not None
