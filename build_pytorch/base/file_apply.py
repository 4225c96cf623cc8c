"""Carrying out a plan: the only code that writes recipes and docs.

Every file is written to the side, synced and renamed, so that a kill at any moment leaves it
whole; and nothing is renamed before everything new lies on the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.errors import WriteError
from build_pytorch.base.file_plan import Change, Tree

_TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not .nix, or Flox would take one for a package."""


def apply(root: Path, changes: Iterable[Change]) -> None:
    """Carry out what a plan says. Refused, kept and unknown files are left alone.

    Raises WriteError before anything has changed where the disk is full or read-only, where
    another run is writing, or where a file is no longer what the plan saw.
    """
    planned = list(changes)
    writes = [change for change in planned if change.action.writes]
    leftovers = _leftovers({(root / change.path).parent for change in planned})
    if not (writes or leftovers):
        return
    with _lock(root), _as_write_error():
        for change in writes:
            if Tree(root).read(change.path) != change.old:
                raise WriteError(f"{change.path}: changed while the plan was made; run again")
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        _write_all({root / c.path: c.new for c in writes if c.new is not None})
        for change in writes:
            if change.new is None:
                (root / change.path).unlink(missing_ok=True)
        for folder in {(root / change.path).parent for change in writes}:
            _sync_folder(folder)


def is_temporary(name: str) -> bool:
    """Whether a file name is one of our half-written files."""
    return name.endswith(_TEMPORARY)


def _write_all(files: dict[Path, bytes]) -> None:
    """Write every file to the side, then rename them all into place."""
    temporary: dict[Path, Path] = {}
    try:
        for target, data in files.items():
            temporary[target] = target.with_name(f".{target.name}{_TEMPORARY}")
            _write(temporary[target], data, like=target)
        for target in files:
            os.replace(temporary[target], target)  # noqa: PTH105 - tests kill us right here
            del temporary[target]
    finally:
        for leftover in temporary.values():
            leftover.unlink(missing_ok=True)


def _write(path: Path, data: bytes, *, like: Path) -> None:
    """Write a new file and wait until it lies on the disk; the mode is that of the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), like.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = like  # a full disk names no file, and nobody knows the temporary one
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _leftovers(folders: Iterable[Path]) -> list[Path]:
    """Half-written files of runs that were killed. With the lock held, no run needs them."""
    return [path for folder in folders for path in folder.glob(f".*{_TEMPORARY}")]


@contextlib.contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Keep other runs off this root. The kernel drops the lock when the process ends, however."""
    folder = root / paths.STATE
    with _as_write_error():
        paths.make_state(folder)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriteError(
                f"{root}: another run is writing here; wait until it ends, then run again"
            ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_write_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or "the disk"
        raise WriteError(
            f"{where}: cannot be written: {error.strerror}; fix that and run again"
        ) from None
