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
    parts, end = [], 0
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "comment":
            comment = match[0]
            parts += [text[end : match.start()], re.sub(r"[^\n]+", _spaces, comment)]
            end = match.end()
    return "".join([*parts, text[end:]])


def _spaces(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())


@functools.cache
def has_relative_path(text: str) -> bool:
    """Return whether an expression has a path that begins with a dot."""
    return re.search(r"(?<![\w.+/])\.{1,2}/", _TOKEN.sub("", text)) is not None
