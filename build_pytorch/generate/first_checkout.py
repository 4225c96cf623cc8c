"""A new checkout: the files of this one that it needs to stand on its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from build_pytorch.base import files, paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action, Change, Tree

_FOLDERS: Final = ("templates", "build_pytorch", "docs", ".flox/env")
_FILES: Final = (paths.MATRIX.name, "tasks.py", "noxfile.py", "pyproject.toml", ".flox/env.json")
_MAY_DIFFER: Final = (paths.README, "LICENSE", ".gitignore", ".gitattributes")
"""Files that a new repository often has. They are left alone."""


def plan(tree: Tree, generated: Collection[str]) -> list[Change]:
    """Plan the files of a new checkout, except `generated` ones, which the phases write.

    Raises BuildPytorchError if the tree has another file where one of them belongs.
    """
    changes = [_planned(tree, path) for path in _needed() if path not in generated]
    if others := [change.path for change in changes if change.action is Action.REFUSED]:
        found = f"{', '.join(others[:3])}{' and others' if others[3:] else ''}"
        raise BuildPytorchError(
            f"--init: {tree.root} has other files of these names: {found}; name an empty folder, "
            "or leave --init out if it is a checkout"
        )
    return changes


def _needed() -> Iterator[str]:
    root = paths.PROJECT
    for name in (*_FILES, *_MAY_DIFFER):
        if (root / name).exists():
            yield name
    for folder in _FOLDERS:
        for path in files.walk_below(root, folder):
            if "__pycache__" not in path and not path.endswith(files.TEMPORARY):
                yield path


def _planned(tree: Tree, path: str) -> Change:
    new = files.read_below(paths.PROJECT, path)
    try:
        old = tree.read(path)
    except OSError:
        return Change(path=path, action=Action.REFUSED, reason="cannot be read")
    if old is None:
        return Change(path=path, action=Action.CREATE, reason="for a new checkout", new=new)
    action, reason = Action.REFUSED, "another file"
    if old == new:
        action, reason = Action.UNCHANGED, "as here"
    elif path in _MAY_DIFFER:
        action, reason = Action.KEPT, "exists already"
    return Change(path=path, action=action, reason=reason, old=old, new=old)
