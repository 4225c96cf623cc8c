"""Nix source text: its comments and its strings."""

from __future__ import annotations

import functools
import re

_TOKEN = re.compile(
    r"""
    # No token that begins fails to end: an unclosed one runs to the end of the text. So nothing is
    # tried twice, without possessive quantifiers, which Python 3.11.0 to 3.11.4 get wrong
    # (https://github.com/python/cpython/issues/106052).
    (?P<comment>\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>"(?:[^"\\]+|\\.)*(?:"|\\?\Z)
      |''(?:[^']+|'''|''\$|''\\.|'(?!'))*(?:''|\Z))
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(text: str) -> str:
    """Return Nix source text with its comments blanked; lines and columns do not change.

    Strings are kept, so that a # inside a string does not begin a comment.
    Source: Nix manual, "Language > Syntax": # to the end of the line, /* to */.
    """

    def blanked(token: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", token[0]) if token["comment"] else token[0]

    return _TOKEN.sub(blanked, text)


@functools.cache
def has_relative_path(text: str) -> bool:
    """Return whether an expression has a path that begins with a dot."""
    return re.search(r"(?<![\w.+/])\.{1,2}/", _TOKEN.sub("", text)) is not None
