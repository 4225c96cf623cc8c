"""matrix.toml as text: the lines of its tables, and changes that keep the rest byte for byte.

Tables are found by a search for their headers, because no parser keeps lines.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from build_pytorch.base import paths
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix.field_types import Trail

Value = str | bool | list[str] | dict[str, str] | None
"""A value of matrix.toml; None removes the key."""
_HEADER: Final = re.compile(r"(?m)^[ \t]*(\[\[?)([^\]\n]+)\]")
_PLACE: Final = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)")


def syntax_error(text: str, message: str) -> tuple[int, str]:
    """Return the line of an error of tomllib, and what is wrong there."""
    place = _PLACE.search(message)
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    allowed = "[TABLE], and each KEY = VALUE once, with texts in quotes"
    return line, f"not valid TOML: {_PLACE.sub('', message)}; allowed: {allowed}"


# --- tables ---


@functools.lru_cache(maxsize=2)
def _tables(text: str) -> tuple[tuple[Trail, int, int], ...]:
    """Return the path of each table with the offsets of its header and after its last line."""
    headers = list(_HEADER.finditer(text))
    ends = [*(match.start() for match in headers), len(text)][1:]
    counts: Counter[str] = Counter()
    found = []
    for match, end in zip(headers, ends, strict=True):
        name = re.sub(r"[\s\"']", "", match[2])
        path: Trail = tuple(name.split("."))
        if match[1] == "[[":
            path = (*path, counts[name])
            counts[name] += 1
        found.append((path, match.start(), end))
    return tuple(found)


def line_of(text: str, trail: Trail) -> int:
    """Return the line of the nearest table header of a value, or 1."""
    above = [(len(path), at) for path, at, _ in _tables(text) if trail[: len(path)] == path]
    return text.count("\n", 0, max(above)[1]) + 1 if above else 1


def without_table(text: str, trail: Trail) -> str:
    """Return the text without a table, the tables in it, and the comment above each.

    Comments after its last value belong to what follows.
    """
    for path, start, end in reversed(_tables(text)):
        if path[: len(trail)] == trail:
            before = re.sub(r"(?m)(^#.*\n)+\Z", "", text[:start])
            after = re.search(r"(?m)(^(#.*)?\n)*\Z", text[start:end])
            text = before + (after[0].lstrip("\n") if after else "") + text[end:]
    return text


def with_table(text: str, header: Trail, values: Mapping[str, Any]) -> str:
    """Return the text with a table at the end, and without the one of its name.

    A number at the end of `header` adds an element to an array of tables.
    """
    if header[-1] != 0:
        text = with_values(without_table(text, header), {header: None})
    return f"{text.rstrip()}\n\n{block(header, values)}"


def block(header: Trail, values: Mapping[str, Any]) -> str:
    """Return a table and the tables in it, each below its header."""
    import tomlkit  # 20 ms, and only changes need it

    document: Any = values
    for step in reversed(header):
        document = [document] if step == 0 else {step: document}
    return tomlkit.dumps(document)


# --- values ---


def with_values(text: str, values: Mapping[Trail, Value]) -> str:
    """Return the text with values replaced or added; comments, order and spacing stay.

    A table is added to a release that inherits it from another one, and to known rows. Raises
    KeyError for a release that does not exist.
    """
    import tomlkit

    document: Any = tomlkit.parse(text)
    for trail, value in values.items():
        table = document
        inherits = trail[0] != "release"  # a known row, of which it replaces values
        for step in trail[:-1]:
            if inherits and step not in table:
                table[step] = tomlkit.table()
            table = table[step]
            inherits = inherits or "like" in table
        key: Any = trail[-1]
        if value is None:
            table.pop(key, None)
        elif isinstance(value, dict) and isinstance(table.get(key), tomlkit.items.Table):
            table[key].clear()  # of dotted keys
            table[key].update(value)
        elif isinstance(value, dict):
            table[key] = tomlkit.inline_table()
            table[key].update(value)
        else:
            table[key] = value
    return tomlkit.dumps(document)


def change(old: str, new: str) -> Change:
    """Return the change of matrix.toml from one text to another."""
    action = Action.UNCHANGED if old == new else Action.REWRITE
    texts = {"old": old.encode(), "new": new.encode()}
    return Change(path=paths.MATRIX, action=action, reason="new values", **texts)
