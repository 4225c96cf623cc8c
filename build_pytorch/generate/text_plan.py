"""Plans of generated texts: each is compared with the file in its place."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from build_pytorch.base import digest, files, git
from build_pytorch.base.errors import ToolError
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.matrix.tables import Cleanup

_LARGEST: Final = 4 << 20
"""Bytes of a file in the place of a generated one; the largest, the page, has 0.12 million."""


class Tree:
    """The files below a root; each is read once. `force` lets plans overwrite hand-written ones."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root, self.force = root, force
        self._contents: dict[str, bytes | None] = {}

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing. Raises OSError."""
        if path not in self._contents:
            content = None
            with contextlib.suppress(FileNotFoundError):
                content = files.read_below(self.root, path, _LARGEST)
            self._contents[path] = content
        return self._contents[path]

    def is_modified(self, path: str) -> bool:
        """Return whether the commit in Git lacks the file's present content.

        Without Git: true in a checkout, false elsewhere.
        """
        options = ("--porcelain", "--ignored", "--ignore-submodules=all")
        try:
            return bool(git.top(self.root) and git.run(self.root, "status", *options, "--", path))
        except ToolError:
            return True


def plan_text(tree: Tree, path: str, text: str | None, entry: Cleanup | None = None) -> Change:
    """Plan a file that is generated whole and carries a digest, or the removal of one.

    What has an intact digest is replaced. A hand-edited or hand-written file is refused, unless the
    tree is forced or an entry of a clean-up list says what becomes of it.
    """
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error)
    new = None if text is None else text.encode()
    current = (old or b"").decode(errors="replace")
    if old == new:
        action, reason = Action.UNCHANGED, "as generated"
    elif old is None:
        action, reason = Action.CREATE, "missing"
    elif is_intact := digest.is_intact(current):
        action, reason = Action.REWRITE, "out of date"
    else:
        action, reason = _of_a_person(tree, path, entry, is_edited=is_intact is False)
    if new is None and action is Action.REWRITE:
        action = Action.DELETE
    if action is Action.REFUSED:
        reason += f"; --force {'deletes' if new is None else 'overwrites'} it"
    return Change(path=path, action=action, reason=reason, old=old, new=new)


def _of_a_person(
    tree: Tree, path: str, entry: Cleanup | None, *, is_edited: bool
) -> tuple[Action, str]:
    """Return what becomes of a hand-edited or hand-written file, and why."""
    origin = "edited by hand" if is_edited else "written by hand"
    if tree.force:
        return Action.REWRITE, f"forced: {origin}"
    if is_edited or entry is None:
        return Action.REFUSED, origin
    if entry.action == "keep":
        return Action.KEPT, f"{origin}: {entry.reason}"
    if tree.is_modified(path):
        return Action.REFUSED, "not committed in Git as it is"
    return Action.REWRITE, entry.reason


def unreadable(path: str, error: OSError) -> Change:
    """Refuse to change a path that exists but is not a readable file."""
    reason = f"cannot be read: {error.strerror}; remove it by hand"
    return Change(path=path, action=Action.REFUSED, reason=reason)
