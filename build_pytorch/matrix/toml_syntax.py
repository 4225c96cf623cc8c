"""Errors of tomllib in our words: what is wrong, and what to do."""

from __future__ import annotations

import re
from typing import Final

from build_pytorch.matrix.toml_lines import loose_quote

_PLACE: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)")
_TWICE: Final = "set twice, first in line {first}; keep one of them"
_QUOTE: Final = "the text is not closed; add the missing quote at its end"
_SYNTAX: Final = "allowed: KEY = VALUE, [TABLE] or # and a comment"
_MEANINGS: Final = {
    # The messages of tomllib in Python 3.11 to 3.14.
    r"Unterminated string|(Illegal|invalid) character '\\n'|Expected [\"']{2,}": _QUOTE,
    "Cannot (declare|overwrite|mutate)|Duplicate inline": _TWICE,
    "Expected '='": f"found a key without a value; {_SYNTAX}",
    r"Invalid value \(at end": "the file ends inside a value; add what is missing, such as ]",
    "Invalid value": "found no value; put a text into quotes, or add the value",
    "Unclosed array": "the list is not closed; add the missing comma or ]",
    "Unclosed inline": "the table is not closed; add the missing comma or }",
    "Expected ']": "the header of the table is not closed; add the missing ]",
    "Expected newline": "found more after the value; quote a text, begin each key on a line",
    "Invalid (statement|initial)": f"found no key; {_SYNTAX}",
    r"Unescaped|Invalid hex|Escaped": (
        "found a backslash that begins no escape sequence; write two of them"
    ),
    "(Illegal|invalid) character": "found a character that TOML does not allow here; remove it",
    "Invalid date": "found a date that does not exist; put a text into quotes",
    "recursion": "nested too deeply to be a matrix; remove brackets",
}


def explain(text: str, message: str) -> tuple[int, str]:
    """Return the offset of an error of tomllib, and what is wrong there.

    With `{first}` in the explanation, the error is a key that is set for the second time.
    """
    place = _PLACE.search(message)
    offset = len(text)
    if place and place[1]:
        lines = text.split("\n")[: int(place[1]) - 1]
        offset = sum(len(line) + 1 for line in lines) + int(place[2]) - 1
    known = (meaning for pattern, meaning in _MEANINGS.items() if re.search(pattern, message))
    what = next(known, message)
    return loose_quote(text) if what is _QUOTE else offset, f"not valid TOML: {what}"
