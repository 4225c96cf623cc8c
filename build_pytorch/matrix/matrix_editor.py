"""The only writer of matrix.toml: replaces values, adds tables, keeps the rest byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit

from build_pytorch.base import file_plan
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix import toml_lines
from build_pytorch.matrix.field_types import Trail

Value = str | bool | list[str] | dict[str, str] | None
"""A value of matrix.toml; None removes the key."""
_WIDTH: Final = 100
"""Maximum length of a line with a list; a longer list has a line for each element."""


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


def with_table(text: str, header: Trail, values: Mapping[str, Any]) -> str:
    """Return the text with a table in place of the one of its name, or at the end.

    One of dotted keys gets a header. A number at the end of `header` adds an element to an array of
    tables.
    """
    if header[-1] == 0:
        return toml_lines.with_table(text, (), block(header, values))
    if not toml_lines.has_header(text, header):
        text = with_values(text, {header: None})
    return toml_lines.with_table(text, header, block(header, values))


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


def change(path: Path, old: str, new: str) -> Change:
    """Return the change of the matrix file at `path`."""
    action, reason = Action.REWRITE, "new values"
    if old == new:
        action, reason = Action.UNCHANGED, "as it is"
    return Change(path=path.name, action=action, reason=reason, old=old.encode(), new=new.encode())


def write(path: Path, old: str, new: str) -> None:
    """Replace the file atomically. Raises WriteError, also if it no longer holds `old`."""
    file_plan.apply(path.parent, [change(path, old, new)])
