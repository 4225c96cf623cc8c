"""The only writer of matrix.toml. What is not changed stays as it is, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

from build_pytorch.base import file_apply
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Trail

Value = str | list[str]


def edited(text: str, values: Mapping[Trail, Value]) -> str:
    """The text with some strings or lists of strings replaced, each of which is there already.

    Comments, order and spacing stay. Raises KeyError for a trail that leads nowhere, MatrixError
    where the result contradicts itself.
    """
    document: Any = tomlkit.parse(text)
    for trail, value in values.items():
        node = document
        for step in trail[:-1]:
            node = node[step]
        old = node[trail[-1]]
        new = tomlkit.item(value)
        new.trivia.indent, new.trivia.trail = old.trivia.indent, old.trivia.trail
        new.trivia.comment_ws, new.trivia.comment = old.trivia.comment_ws, old.trivia.comment
        node[trail[-1]] = new
    result = tomlkit.dumps(document)
    matrix_reader.parse(result)
    return result


def change(path: Path, old: str, new: str) -> Change:
    """The change of the matrix file at `path`, for a plan."""
    return Change(
        path=path.name,
        action=Action.UNCHANGED if old == new else Action.REWRITE,
        reason="as it is" if old == new else "new values",
        old=old.encode(),
        new=new.encode(),
    )


def write(path: Path, old: str, new: str) -> None:
    """Replace the file, atomically. Raises WriteError, also where it is no longer `old`."""
    file_apply.apply(path.parent, [change(path, old, new)])
