"""Files: reading with a limit, atomic writing, and the lock of a checkout.

Files of a checkout are named by their path below its root. A symbolic link in place of one, or on
the way to it, is not followed: nothing outside of the checkout is read, written or deleted by
accident.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from io import BufferedReader, FileIO
from pathlib import Path, PurePath
from typing import IO, Final

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, WriteError

TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not `.nix`, because Flox takes every `.nix` file for a package."""

IGNORED: Final = {f"{paths.STATE}/.gitignore": b"*\n"}
"""What hides the state folder from Git."""

LARGEST: Final = 64 << 20  #: bytes that are read of a file, if the caller gives no limit
LARGEST_LOG: Final = 1 << 29  #: bytes of the log of a build; PyTorch's has some MB
LARGEST_TEXT: Final = 1 << 20  #: bytes of a recipe or a matrix.toml; a recipe has seven thousand


def place_below(root: Path, name: str | PurePath) -> Path:
    """Return the path of a file below a folder. Raises OSError for a link in it."""
    place = PurePath(name)
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise ValueError(f"{name}: not the name of a file below a folder")
    path = root / place
    for step in reversed((path, *path.parents[: len(place.parts) - 1])):
        if step.is_symlink():
            what = f"{step.relative_to(root)} is a symbolic link and is not followed"
            raise OSError(errno.ELOOP, what, str(step))
    return path


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read. Raises OSError, also for a FIFO, a device or a folder."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")


def open_state(root: Path, name: str | PurePath, mode: str) -> FileIO:
    """Open a file in the state folder, which is made, to write. Raises OSError."""
    path = place_below(root, name)
    if not any((root / ignore).exists() for ignore in IGNORED):
        write_all(root, IGNORED)
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileIO(path, mode)


def read_below(root: Path, name: str | PurePath, limit: int = LARGEST) -> bytes:
    """Return the bytes of a file of a checkout. Raises OSError."""
    return read_named(place_below(root, name), limit)


def read_named(path: Path, limit: int = LARGEST) -> bytes:
    """Return the bytes of a regular file; links are followed. Raises OSError."""
    return _read(open_regular(path), limit)


def _read(file: IO[bytes], limit: int) -> bytes:
    with file:
        if len(data := file.read(limit + 1)) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB", file.name)
    return data


def read_input(path: Path, limit: int) -> bytes:
    """Return the bytes of what the user names; a pipe is fine. Raises BuildPytorchError."""
    try:
        return _read(path.open("rb"), limit)
    except OSError as error:
        raise BuildPytorchError(f"{path}: cannot be read: {error.strerror}") from None


def walk_below(root: Path, folder: str) -> list[str]:
    """Return the names below `root` of all files in a folder and its folders, in order.

    A link is a file and not followed, a temporary file of a killed run is left out. A missing
    folder is empty. Raises OSError for a linked one.
    """
    paths_in = place_below(root, folder).rglob("*")
    found = [path for path in paths_in if path.is_symlink() or not path.is_dir()]
    return sorted(path.relative_to(root).as_posix() for path in found if path.suffix != TEMPORARY)


@contextlib.contextmanager
def write_errors(path: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a WriteError that names `path`, or else the file of the OSError."""
    try:
        yield
    except OSError as error:
        where = path or error.filename or "the disk"
        raise WriteError(f"{where}: cannot be written: {error.strerror}") from None


def write_all(root: Path, contents: Mapping[str, bytes | None]) -> None:
    """Replace files below `root`, each atomically, and none before all new data is on the disk.

    In the order of `contents`; None deletes a file. A kill at any moment leaves the old or the new
    file. A new file has the permissions of the old one. Missing folders are made. Raises OSError
    that names one of the files.
    """
    places = {place_below(root, name): data for name, data in contents.items()}
    written: dict[Path, Path] = {}
    path = root
    try:
        root.stat()
        for path, data in places.items():
            if data is not None:
                written[path] = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
                _write_new(written[path], data, like=path)
        for path in places:
            if path in written:
                written[path].replace(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        error.filename = str(path)  # a full disk names no file
        raise
    finally:
        for new in written.values():
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)


def _write_new(new: Path, data: bytes, *, like: Path) -> None:
    new.parent.mkdir(parents=True, exist_ok=True)
    new.unlink(missing_ok=True)  # of a killed process that had our process id
    with new.open("xb") as file:
        if like.is_file():
            os.fchmod(file.fileno(), like.stat().st_mode & 0o777)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def exclusive_lock(root: Path, name: str, activity: str) -> Iterator[None]:
    """Hold a lock file in the state folder; the kernel releases it when the process ends.

    Raises WriteError with the `activity` of the run that holds it.
    """
    with write_errors():
        lock = open_state(root, f"{paths.STATE}/{name}", "ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "wait until it ends, then run again"
            raise WriteError(f"{root}: another run {activity} here; {fix}") from None
        yield
