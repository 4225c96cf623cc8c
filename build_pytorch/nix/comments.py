"""Comments in Nix source text."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    # An unclosed token runs to the end of the text; a second search for its end would take forever.
    (?P<comment>\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>"(?:[^"\\]++|\\.)*+(?:"|\Z)
      |''(?:[^']++|'''|''\$|''\\.|'(?!'))*+(?:''|\Z))
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(text: str) -> str:
    """Return Nix source text with its comments blanked; lines and columns do not change.

    Strings are kept, so that a # inside a string does not begin a comment.
    Source: Nix manual, "Language > Syntax": # to the end of the line, /* to */.
    """

    def blank(match: re.Match[str]) -> str:
        if match["comment"] is None:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _TOKEN.sub(blank, text)
