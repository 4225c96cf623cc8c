"""The only writer of matrix.toml: replaces values, adds tables, keeps the rest byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit

from build_pytorch.base import file_plan
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix import matrix_reader, toml_lines
from build_pytorch.matrix.field_types import Trail

Value = str | bool | list[str] | dict[str, str] | None
"""A value of matrix.toml; None removes the key."""
_WIDTH: Final = 100
"""Maximum length of a line with a list; a longer list has a line for each element."""


def edited(text: str, values: Mapping[Trail, Value]) -> str:
    """Return the text with values replaced or added. Raises MatrixError if it is not consistent.

    Otherwise as `with_values`.
    """
    result = with_values(text, values)
    matrix_reader.parse(result)
    return result


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
    is_new = header[-1] == 0
    if not (is_new or toml_lines.has_header(text, header)) and _has(text, header):
        text = with_values(text, {header: None})
    return toml_lines.with_table(text, () if is_new else header, block(header, values))


def _has(text: str, trail: Trail) -> bool:
    """Return whether a text of a matrix has a key."""
    table: Any = tomlkit.parse(text)
    for step in trail:
        if step not in table:
            return False
        table = table[step]
    return True


def block(header: Trail, values: Mapping[str, Any]) -> str:
    """Return a table below its header."""
    parents = header[:-1] if header[-1] == 0 else header
    names = ".".join(_key(str(step)) for step in parents)
    title = f"[[{names}]]" if header[-1] == 0 else f"[{names}]"
    return "\n".join((title, *_lines(values))) + "\n"


def _lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the lines of a table; the keys of tables in it are dotted."""
    for key, value in values.items():
        name = f"{prefix}{_key(key)}"
        if isinstance(value, dict):
            yield from _lines(value, f"{name}.")
            continue
        line = f"{name} = {_value(value)}"
        if len(line) <= _WIDTH or not isinstance(value, list | tuple):
            yield line
        else:
            yield from (f"{name} = [", *(f"  {_value(each)}," for each in value), "]")


def _value(value: Any) -> str:  # noqa: ANN401 - any value of a matrix
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def change(path: Path, old: str, new: str) -> Change:
    """Return the change of the matrix file at `path`."""
    action, reason = Action.REWRITE, "new values"
    if old == new:
        action, reason = Action.UNCHANGED, "as it is"
    return Change(path=path.name, action=action, reason=reason, old=old.encode(), new=new.encode())


def write(path: Path, old: str, new: str) -> None:
    """Replace the file atomically. Raises WriteError, also if it no longer holds `old`."""
    file_plan.apply(path.parent, [change(path, old, new)])
