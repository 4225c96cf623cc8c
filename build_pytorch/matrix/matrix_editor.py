"""The only writer of matrix.toml: replaces single values and keeps the rest byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

from build_pytorch.base import file_plan
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Trail

Value = str | list[str]


def edited(text: str, values: Mapping[Trail, Value]) -> str:
    """Return the text with values replaced or added; comments, order and spacing stay.

    A table is added to a release that inherits it from another one. Raises KeyError for a release
    or another place that does not exist, MatrixError if the result is not consistent.
    """
    document: Any = tomlkit.parse(text)
    for trail, value in values.items():
        table = document
        for depth, step in enumerate(trail[:-1]):
            if depth == 2 and "like" in table and step not in table:  # noqa: PLR2004 - in a release
                table[step] = tomlkit.table()
            table = table[step]
        new = tomlkit.item(value)
        old = table.get(trail[-1]) if isinstance(trail[-1], str) else table[trail[-1]]
        for part in ("indent", "comment_ws", "comment", "trail"):
            if old is not None:
                setattr(new.trivia, part, getattr(old.trivia, part))
        table[trail[-1]] = new
    result = tomlkit.dumps(document)
    matrix_reader.parse(result)
    return result


def change(path: Path, old: str, new: str) -> Change:
    """Return the change of the matrix file at `path`."""
    action, reason = Action.REWRITE, "new values"
    if old == new:
        action, reason = Action.UNCHANGED, "as it is"
    return Change(path=path.name, action=action, reason=reason, old=old.encode(), new=new.encode())


def write(path: Path, old: str, new: str) -> None:
    """Replace the file atomically. Raises WriteError, also if it no longer holds `old`."""
    file_plan.apply(path.parent, [change(path, old, new)])
