"""matrix.toml as text: the lines of its tables, and changes that keep the rest byte for byte.

Tables are found by a search for their headers, because no parser keeps lines.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit

from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix.field_types import Trail

Value = str | bool | list[str] | dict[str, str] | None
"""A value of matrix.toml; None removes the key."""
_WIDTH: Final = 100
"""Maximum length of a line with a list; a longer list has a line for each element."""
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


def syntax_error(text: str, message: str) -> tuple[int, str]:
    """Return the line of an error of tomllib, and what is wrong there."""
    place = _PLACE.search(message)
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    known = (meaning for pattern, meaning in _MEANINGS.items() if re.search(pattern, message))
    return line, f"not valid TOML: {next(known, _PLACE.sub('', message))}"


# --- tables ---


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


def with_table(text: str, header: Trail, values: Mapping[str, Any]) -> str:
    """Return the text with a table in place of the one of its name, or at the end.

    One of dotted keys gets a header. A number at the end of `header` adds an element to an array of
    tables.
    """
    if header[-1] != 0 and (span := _span(text, header)):
        start, end = span
        comment = re.search(r"(?m)\n(^#.*\n)*\Z", text[start:end])
        new = text[:start] + block(header, values) + (comment[0] if comment else "") + text[end:]
        return new if text[end:] else f"{new.rstrip()}\n"
    if header[-1] != 0:
        text = with_values(text, {header: None})
    return f"{text.rstrip()}\n\n{block(header, values)}"


def block(header: Trail, values: Mapping[str, Any]) -> str:
    """Return a table below its header; the keys of tables in it are dotted."""
    name = tomlkit.key([step for step in header if isinstance(step, str)]).as_string()
    title = f"[[{name}]]" if header[-1] == 0 else f"[{name}]"
    return "\n".join((title, *_lines(values))) + "\n"


def _lines(values: Mapping[str, Any], *above: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _lines(value, *above, name)
            continue
        item: Any = tomlkit.item(value)
        line = f"{tomlkit.key((*above, name)).as_string()} = "
        if isinstance(value, list | tuple) and len(line + item.as_string()) > _WIDTH:
            item.multiline(multiline=True)
        yield line + item.as_string()


# --- values ---


def with_values(text: str, values: Mapping[Trail, Value]) -> str:
    """Return the text with values replaced or added; comments, order and spacing stay.

    A table is added to a release that inherits it from another one, and to known rows. Raises
    KeyError for a release that does not exist.
    """
    if not values:
        return text
    document: Any = tomlkit.parse(text)
    for trail, value in values.items():
        table = document
        inherits = trail[0] != "release"  # a known row, of which it replaces values
        for step in trail[:-1]:
            if inherits and step not in table:
                table[step] = tomlkit.table()
            table = table[step]
            inherits = inherits or "like" in table
        if value is None:
            table.pop(trail[-1], None)
            continue
        new = tomlkit.item(value)
        if isinstance(value, dict):
            new = tomlkit.inline_table()
            new.update(value)
        old = table.get(trail[-1]) if isinstance(trail[-1], str) else table[trail[-1]]
        if isinstance(old, tomlkit.items.Table) and isinstance(value, dict):  # of dotted keys
            old.clear()
            old.update(value)
            continue
        for part in ("indent", "comment_ws", "comment", "trail"):
            if old is not None:
                setattr(new.trivia, part, getattr(old.trivia, part))
        table[trail[-1]] = new
    return tomlkit.dumps(document)


def change(path: Path, old: str, new: str) -> Change:
    """Return the change of the matrix file at `path`."""
    action, reason = Action.REWRITE, "new values"
    if old == new:
        action, reason = Action.UNCHANGED, "as it is"
    return Change(path=path.name, action=action, reason=reason, old=old.encode(), new=new.encode())
