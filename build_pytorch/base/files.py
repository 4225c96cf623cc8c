"""Files: reading, atomic writing, locks, and the state folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
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


def write_atomically(
    path: Path, data: bytes, *, follow_link: bool = False, sync: bool = True
) -> None:
    """Replace a file; a kill at any moment leaves the old or the new one. Raises WriteError.

    A symbolic link is replaced, unless `follow_link` is set: then the file that it names is.
    Without `sync`, which takes 10 ms, a power failure may damage the file: for caches that notice.
    """
    with write_errors(path):
        write_all({Path(os.path.realpath(path)) if follow_link else path: data}, sync=sync)


def write_all(contents: Mapping[Path, bytes], *, sync: bool = True) -> None:
    """Replace files, each atomically, and none before the new data of all is on the disk.

    A new file has the permissions of the old one. Raises OSError that names one of the files.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, data in contents.items():
            temporary[path] = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
            try:
                _write_new(temporary[path], data, like=path, sync=sync)
            except OSError as error:
                error.filename = path  # a full disk names no file
                raise
        for path in contents:
            temporary[path].replace(path)
            del temporary[path]
    finally:
        for leftover in temporary.values():
            with contextlib.suppress(OSError):
                leftover.unlink()
    for folder in {path.parent for path in contents} if sync else ():
        sync_folder(folder)


def _write_new(path: Path, data: bytes, *, like: Path, sync: bool) -> None:
    path.unlink(missing_ok=True)  # of a killed process that had our process id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(file.fileno(), like.stat().st_mode & 0o777)
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the renamed and deleted entries of a folder are on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
