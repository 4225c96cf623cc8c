"""Planned changes of files: how they are printed and applied.

`apply` is the only code that writes recipes and docs.
"""

from __future__ import annotations

import contextlib
import difflib
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct

from build_pytorch.base import files, paths
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import WriteError


class Action(StrEnum):
    """The decision for a file."""

    CREATE = "create"
    REWRITE = "rewrite"
    DELETE = "delete"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    REFUSED = "refused"
    UNKNOWN = "unknown"

    @property
    def writes(self) -> bool:
        """Whether the action changes the disk."""
        return self in {Action.CREATE, Action.REWRITE, Action.DELETE}


class Change(Struct, frozen=True, kw_only=True):
    """The decision for one file, whose path is relative to the root.

    `old` and `new` are the content before and after, None for no file.
    """

    path: str
    action: Action
    reason: str
    old: bytes | None = None
    new: bytes | None = None

    def diff(self) -> str:
        """Return the change as a unified diff; empty for none."""
        old, new = (
            (data or b"").decode(errors="replace").splitlines() for data in (self.old, self.new)
        )
        source = "/dev/null" if self.old is None else f"a/{self.path}"
        target = "/dev/null" if self.new is None else f"b/{self.path}"
        return "\n".join(difflib.unified_diff(old, new, source, target, lineterm=""))


def apply(root: Path, changes: Sequence[Change]) -> None:
    """Write and delete what the changes say. Refused, kept and unknown files are left alone.

    Each file is replaced atomically, and no file is replaced before all new data is on the disk.
    Raises WriteError before anything has changed if the disk is full or read-only, another run
    is writing, or a file differs from what the plan read.
    """
    writes = [change for change in changes if change.action.writes]
    # Temporary files of killed runs. No run needs them while this one holds the lock.
    places = {PurePath(change.path).with_name(files.TEMPORARY) for change in changes}
    folders = {files.place_below(root, place).parent for place in places}
    found = (path for folder in folders for path in folder.glob(f".*{files.TEMPORARY}"))
    leftovers = [path.relative_to(root).as_posix() for path in found]
    if not (writes or leftovers):
        return
    with files.write_errors(), files.exclusive_lock(root, "lock", "is writing"):
        for change in writes:
            old = None
            with contextlib.suppress(FileNotFoundError):
                old = files.read_below(root, change.path)
            if old != change.old:
                raise WriteError(f"{change.path}: changed while the plan was made; run again")
        # The matrix is the last: until then, the command that changes it can be run again.
        writes.sort(key=lambda change: (change.path == paths.MATRIX, change.new is None))
        contents = {change.path: change.new for change in writes}
        files.write_all(root, dict.fromkeys(leftovers) | contents)


_COLOURS: Final[dict[str, str]] = {
    Action.CREATE: "green",
    Action.REWRITE: "yellow",
    Action.DELETE: "red",
    Action.REFUSED: "red",
    Action.UNKNOWN: "yellow",
}


def print_plan(
    screen: Screen, changes: Sequence[Change], *, verbose: bool = False, suffix: str = ""
) -> None:
    """Print what does not stay as it is, and the totals; if verbose, each file on its own.

    What is deleted or refused always is.
    """
    rows = [
        (change.action.value, change.path, change.reason)
        for change in changes
        if change.action is not Action.UNCHANGED
    ]
    screen.plan(rows, _COLOURS, verbose=verbose, alone={Action.DELETE, Action.REFUSED})
    counts = Counter(change.action for change in changes)
    parts = ", ".join(f"{counts[action]} {action}" for action in Action if action in counts)
    screen.line(f"Total: {parts or 'nothing to do'}{suffix}")
