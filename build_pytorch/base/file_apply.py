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
        _replace_all({root / c.path: c.new for c in writes if c.new is not None})
        for change in writes:
            if change.new is None:
                (root / change.path).unlink(missing_ok=True)
        for folder in {(root / change.path).parent for change in writes}:
            files.sync_folder(folder)


def _replace_all(contents: dict[Path, bytes]) -> None:
    temporary: dict[Path, Path] = {}
    try:
        for path, data in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path] = files.write_beside(path, data, mode_of=path)
        for path in contents:
            temporary[path].replace(path)
            del temporary[path]
    finally:
        for leftover in temporary.values():
            leftover.unlink(missing_ok=True)
