"""Where comments are in Nix source text."""

from __future__ import annotations

import re

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
