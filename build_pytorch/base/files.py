"""Files: reading with a limit, atomic writing, and the lock of a checkout.

Files of a checkout are named by their path below its root. A symbolic link on the way to one is not
followed, so that nothing outside of the checkout is read, written or deleted by accident.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pkgutil
import stat
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path, PurePath
from typing import IO, Final

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, WriteError

TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not `.nix`, because Flox takes every `.nix` file for a package."""

LARGEST: Final = 64 << 20  #: bytes that are read of a file, if the caller gives no limit
LARGEST_LOG: Final = 1 << 29  #: bytes of the log of a build; PyTorch's has some MB
LARGEST_TEXT: Final = 1 << 20  #: bytes of a recipe or a matrix.toml; a recipe has seven thousand


def place_below(root: Path, name: str | PurePath) -> Path:
    """Return the path of a file below a folder.

    Raises BuildPytorchError for a link on the way to it, as all functions that take a root.
    """
    place = PurePath(name)
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise ValueError(f"{name}: not the name of a file below a folder")
    for folder in place.parents:
        if folder.name and (root / folder).is_symlink():
            what = "is a symbolic link and is not followed; put a folder in its place"
            raise BuildPytorchError(f"{root / folder}: {what}")
    return root / place


def open_below(root: Path, name: str | PurePath, mode: str = "rb") -> IO[bytes]:
    """Open a file below a folder; to write, the folders that lead to it are made.

    Raises OSError, also for a link or what is no regular file.
    """
    path = place_below(root, name)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a symbolic link", str(path))
    if mode == "rb":
        return open_regular(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open(mode, buffering=0)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read. Raises OSError, also for a FIFO, a device or a folder."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")


def read_below(root: Path, name: str | PurePath, limit: int = LARGEST) -> bytes:
    """Return the bytes of a file of a checkout. Raises OSError as `open_below`."""
    return _read(open_below(root, name), limit)


def read_named(path: Path, limit: int = LARGEST) -> bytes:
    """Return the bytes of a regular file; links are followed. Raises OSError."""
    return _read(open_regular(path), limit)


def _read(file: IO[bytes], limit: int) -> bytes:
    with file:
        if len(data := file.read(limit + 1)) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB", file.name)
    return data


def open_input(path: Path) -> BufferedReader:
    """Open what the user names to be read; `-` is standard input, and a pipe is fine."""
    return os.fdopen(os.dup(0), "rb") if str(path) == "-" else path.open("rb")


def read_input(path: Path, limit: int) -> tuple[bytes, str]:
    """Return the bytes of what the user names, and its name. Raises BuildPytorchError."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        return _read(open_input(path), limit), name
    except OSError as error:
        raise BuildPytorchError(f"{name}: cannot be read: {error.strerror}") from None


def own_text(package: str, name: str) -> str:
    """Return a table that is beside the modules of a package of ours."""
    return (pkgutil.get_data(package, name) or b"").decode()


def walk_below(root: Path, folder: str) -> list[str]:
    """Return the names below `root` of all files in a folder and its folders, in order.

    A link is a file and not followed, a temporary file of a killed run is left out. A missing
    folder is empty.
    """
    top = place_below(root, f"{folder}/*").parent
    found = [path for path in top.rglob("*") if path.is_symlink() or not path.is_dir()]
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
    file. A new file has the permissions of the old one; a link in its place is replaced and not
    followed. Missing folders are made. Raises OSError that names one of the files.
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
    for folder in filter(Path.exists, {path.parent for path in places}):
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _write_new(new: Path, data: bytes, *, like: Path) -> None:
    new.parent.mkdir(parents=True, exist_ok=True)
    new.unlink(missing_ok=True)  # of a killed process that had our process id
    with new.open("xb") as file:
        if like.is_file() and not like.is_symlink():
            os.fchmod(file.fileno(), like.stat().st_mode & 0o777)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_state(root: Path) -> None:
    """Create the state folder with a .gitignore that hides all of it from Git. Raises OSError."""
    ignore = f"{paths.STATE}/.gitignore"
    path = place_below(root, ignore)
    if not (path.exists() and path.stat().st_size):  # empty after a kill
        with open_below(root, ignore, "wb") as file:
            file.write(b"*\n")


@contextlib.contextmanager
def exclusive_lock(root: Path, name: str, activity: str) -> Iterator[None]:
    """Hold a lock file in the state folder; the kernel releases it when the process ends.

    Raises WriteError with the `activity` of the run that holds it, and BuildPytorchError.
    """
    with write_errors():
        make_state(root)
        lock = open_below(root, f"{paths.STATE}/{name}", "ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = f"another run {activity} here"
            raise WriteError(f"{root}: {what}; wait until it ends, then run again") from None
        yield
