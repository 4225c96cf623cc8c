"""Apply a plan: the only code that writes recipes and docs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from build_pytorch.base import files
from build_pytorch.base.errors import WriteError
from build_pytorch.base.file_plan import Change, Tree


def apply(root: Path, changes: Iterable[Change]) -> None:
    """Write and delete what the changes say. Refused, kept and unknown files are left alone.

    Each file is replaced atomically, and no file is replaced before all new data is on the disk.
    Raises WriteError before anything has changed if the disk is full or read-only, another run
    is writing, or a file differs from what the plan read.
    """
    planned = list(changes)
    writes = [change for change in planned if change.action.writes]
    # Temporary files of killed runs. No run needs them while this one holds the lock.
    leftovers = [
        path
        for folder in {(root / change.path).parent for change in planned}
        for path in folder.glob(f".*{files.TEMPORARY}")
    ]
    if not (writes or leftovers):
        return
    with files.write_errors(), files.exclusive_lock(root, "lock", "is writing"):
        for change in writes:
            if Tree(root).read(change.path) != change.old:
                raise WriteError(f"{change.path}: changed while the plan was made; run again")
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        contents = {root / change.path: change.new for change in writes if change.new is not None}
        for path in contents:
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write_all(contents)
        deleted = [root / change.path for change in writes if change.new is None]
        for path in deleted:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in deleted}:
            files.sync_folder(folder)
