"""Tables of a TOML text, found by a search for their headers: no parser keeps lines."""

from __future__ import annotations

import functools
import re
from typing import Final

from build_pytorch.matrix.field_types import Trail

_HEADER: Final = re.compile(r"(?m)^[ \t]*\[\[?([^\]\n]+)\]")
_PLACE: Final = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)")
_MEANINGS: Final = {
    r"Unterminated string|(Illegal|invalid) character '\\n'|Expected [\"']{2,}": (
        "the text is not closed; add the missing quote at its end"
    ),
    "Cannot (declare|overwrite|mutate)|Duplicate inline": "set twice; keep one of them",
    "Invalid value": "found no value; put a text into quotes, or add the value",
    "Expected '='|Invalid (statement|initial)": "allowed: KEY = VALUE, [TABLE] or # and a comment",
}
"""What messages of tomllib in Python 3.11 to 3.14 mean, where they do not say what to do."""


@functools.lru_cache(maxsize=2)
def _tables(text: str) -> tuple[tuple[str, int, int], ...]:
    """Return the name of each table with the offsets of its header and after its last line."""
    found = [(re.sub(r"[\s\"']", "", match[1]), match.start()) for match in _HEADER.finditer(text)]
    ends = [*(start for _, start in found), len(text)][1:]
    return tuple((*each, end) for each, end in zip(found, ends, strict=True))


def _span(text: str, trail: Trail) -> tuple[int, int] | None:
    """Return the offsets of a table's header and of its end, or None without a header.

    An index selects one of several tables of the same name.
    """
    name = ".".join(step for step in trail if isinstance(step, str))
    spans = [(start, end) for header, start, end in _tables(text) if header == name]
    index = trail[-1] if isinstance(trail[-1], int) else 0
    return spans[index] if index < len(spans) else None


def has_header(text: str, trail: Trail) -> bool:
    """Return whether a table has a header: one of dotted keys has none."""
    return _span(text, trail) is not None


def line_of(text: str, trail: Trail) -> int:
    """Return the line of the nearest table header of a value, or 1."""
    for length in range(len(trail), 0, -1):
        if span := _span(text, trail[:length]):
            return text.count("\n", 0, span[0]) + 1
    return 1


def without_table(text: str, trail: Trail) -> str:
    """Return the text without a table, the tables in it, and the comment above each.

    Comments after its last value belong to what follows.
    """
    name = ".".join(map(str, trail))
    for header, start, end in reversed(_tables(text)):
        if header == name or header.startswith(f"{name}."):
            before = re.sub(r"(?m)(^#.*\n)+\Z", "", text[:start])
            after = re.search(r"(?m)(^(#.*)?\n)*\Z", text[start:end])
            text = before + (after[0].lstrip("\n") if after else "") + text[end:]
    return text


def with_table(text: str, trail: Trail, block: str) -> str:
    """Return the text with a block in place of a table; at its end if the table is missing."""
    if trail and (span := _span(text, trail)):
        start, end = span
        comment = re.search(r"(?m)\n(^#.*\n)*\Z", text[start:end])
        new = text[:start] + block + (comment[0] if comment else "") + text[end:]
        return new if text[end:] else f"{new.rstrip()}\n"
    return f"{text.rstrip()}\n\n{block}"


def syntax_error(text: str, message: str) -> tuple[int, str]:
    """Return the line of an error of tomllib, and what is wrong there."""
    place = _PLACE.search(message)
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    known = (meaning for pattern, meaning in _MEANINGS.items() if re.search(pattern, message))
    return line, f"not valid TOML: {next(known, _PLACE.sub('', message))}"
