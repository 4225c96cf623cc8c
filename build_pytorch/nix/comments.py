"""Comments in Nix source text, found without a parser."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    # An unclosed comment or string runs to the end of the text, so that no match backtracks.
    (?P<comment>\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>"(?:[^"\\]++|\\.)*+(?:"|\Z)
      |''(?:[^']++|'''|''\$|''\\.|'(?!'))*+(?:''|\Z))
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(text: str) -> str:
    """Return Nix source text with spaces in place of its comments; lines and columns stay.

    A comment is `#` to the end of the line or `/*` to `*/`, outside of strings. Nix manual,
    "Language > Syntax".
    """
    return _TOKEN.sub(
        lambda token: re.sub(r"[^\n]", " ", token[0]) if token["comment"] else token[0], text
    )
