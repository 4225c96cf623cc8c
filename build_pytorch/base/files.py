"""Files: reading, atomic writing, locks, and the state folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.errors import WriteError

TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not `.nix`, because Flox takes every `.nix` file for a package."""


def read_regular_file(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises OSError, also for a FIFO, device or directory."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


@contextlib.contextmanager
def write_errors(path: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a WriteError that names `path`, or else the file of the OSError."""
    try:
        yield
    except OSError as error:
        where = path or error.filename or "the disk"
        raise WriteError(f"{where}: cannot be written: {error.strerror}") from None


def write_beside(path: Path, data: bytes, *, mode_of: Path | None = None) -> Path:
    """Write data to a new file in the folder of `path`, sync it and return its path.

    The new file has the permissions of `mode_of` where that exists. On failure the new file is
    removed and the OSError names `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        temporary.unlink(missing_ok=True)  # of a killed process that had our process id
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            if mode_of:
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(file.fileno(), mode_of.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename = path  # a full disk names no file
        raise
    return temporary


def sync_folder(folder: Path) -> None:
    """Wait until the renamed and deleted entries of a folder are on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(
    path: Path, data: bytes, *, mode_of: Path | None = None, follow_link: bool = False
) -> None:
    """Replace `path` by a file with this data; a kill at any moment leaves the old or the new one.

    A symbolic link is replaced, unless `follow_link` is set: then the file that it names is
    replaced. `mode_of`: see `write_beside`. Raises WriteError.
    """
    with write_errors(path):
        target = Path(os.path.realpath(path)) if follow_link else path
        temporary = write_beside(target, data, mode_of=mode_of)
        try:
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def make_state(folder: Path) -> None:
    """Create the state folder with a .gitignore that hides all of it from Git. Raises OSError."""
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")


@contextlib.contextmanager
def exclusive_lock(root: Path, name: str, activity: str) -> Iterator[None]:
    """Hold a lock file in the state folder; the kernel releases it when the process ends.

    Raises WriteError with the `activity` and process id of the run that holds it.
    """
    folder = root / paths.STATE
    with write_errors(folder):
        make_state(folder)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise WriteError(
                f"{root}: another run {activity} here (process {owner or 'unknown'}); "
                "wait until it ends, then run again"
            ) from None
        with contextlib.suppress(OSError):  # a full disk; the process id is for the message only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
