"""Files: reading, atomic writing, locks, and the state folder.

A checkout may come from somebody else. Its files are opened below a descriptor of its root, folder
by folder, and no symbolic link on the way is followed. Only regular files are read or written, and
none that is larger than a limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from build_pytorch.base import paths
from build_pytorch.base.errors import LinkError, WriteError

TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not `.nix`, because Flox takes every `.nix` file for a package."""

LARGEST: Final = 64 << 20
"""Bytes that are read of a file, if the caller gives no limit."""
LARGEST_LOG: Final = 1 << 29  #: bytes of the log of a build; PyTorch's has some MB

LARGEST_TEXT: Final = 1 << 20
"""Bytes of a recipe or a matrix.toml. A generated recipe has seven thousand."""

_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""O_NONBLOCK: the open of a FIFO returns at once, and what was opened is checked then."""
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST: Final = 1000  #: characters in the path of a folder whose content is listed


def open_below(
    root: Path, name: str | PurePath, flags: int = os.O_RDONLY, *, make_folders: bool = False
) -> int:
    """Open a regular file below a folder and return its descriptor.

    Raises LinkError if a folder on the way is a symbolic link, and OSError, also if the file is a
    link, a FIFO, a device or a folder, or is to be written and has another name (hard link).
    """
    *folders, last = _parts(name)
    folder = _open_folder(root, folders, make=make_folders)
    try:
        descriptor = os.open(last, flags | _OPEN, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "is a symbolic link"
        error.filename = str(root / name)
        raise
    finally:
        os.close(folder)
    return _regular(descriptor, root / name, is_written=flags != os.O_RDONLY)


def read_below(root: Path, name: str | PurePath, limit: int = LARGEST) -> bytes:
    """Return the bytes of a file of a checkout. Raises LinkError and OSError as `open_below`."""
    return _read(open_below(root, name), root / name, limit)


def read_text_below(root: Path, name: str | PurePath) -> str:
    """Return a recipe or a page; bytes that are not UTF-8 are replaced. Raises as `read_below`."""
    return read_below(root, name).decode("utf-8", errors="replace")


def ends_below(root: Path, name: str | PurePath, most: int) -> tuple[bytes, bytes]:
    """Return the first line and the whole lines in the last bytes of a file, `most` of each.

    The first line is empty if it is among the last ones. Raises as `open_below`.
    """
    descriptor = open_below(root, name)
    try:
        start = max(0, os.fstat(descriptor).st_size - most)
        tail = os.pread(descriptor, most, start)
        if not start:
            return b"", tail
        head = os.pread(descriptor, most, 0)
    finally:
        os.close(descriptor)
    return head.partition(b"\n")[0], tail.partition(b"\n")[2]


def read_named(path: Path, limit: int = LARGEST, *, or_stdin: bool = False) -> bytes:
    """Return the bytes of a regular file that the user names. Raises OSError as `open_named`."""
    name = Path("standard input") if or_stdin and str(path) == "-" else path
    return _read(open_named(path, or_stdin=or_stdin), name, limit)


def open_named(path: Path, *, or_stdin: bool = False) -> int:
    """Open a regular file that the user names, for reading; links are followed. Raises OSError.

    With `or_stdin`, `-` is standard input, and `/dev/stdin` or `/dev/fd/N` may be a pipe.
    """
    if or_stdin and str(path) == "-":
        return os.dup(0)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if or_stdin and (str(path) == "/dev/stdin" or path.parent == Path("/dev/fd")):
        os.set_blocking(descriptor, True)
        return descriptor
    return _regular(descriptor, path)


def create_below(root: Path, name: str | PurePath) -> BinaryIO:
    """Create a new file and the folders that lead to it. Raises LinkError and OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.fdopen(open_below(root, name, flags, make_folders=True), "wb", buffering=0)


def walk_below(root: Path, folder: str) -> Iterator[str]:
    """Yield the names below `root` of all that is in a folder, except folders, in order.

    A link is yielded and not followed. A missing folder is empty. Raises LinkError and OSError.
    """
    pending = [folder]
    while pending:
        found = []
        for name, is_folder in _entries(root, pending.pop()):
            if is_folder and len(name) < _DEEPEST:
                found.append(name)
            else:
                yield name
        pending += reversed(found)


def leftovers(root: Path, folder: str) -> list[str]:
    """Return the temporary files in a folder, as names below `root`. Raises as `walk_below`."""
    return [
        name
        for name, is_folder in _entries(root, folder)
        if name.rpartition("/")[2].startswith(".") and name.endswith(TEMPORARY) and not is_folder
    ]


def remove_below(root: Path, names: Sequence[str], *, sync: bool = True) -> None:
    """Delete files, where they exist. Raises LinkError and OSError."""
    with contextlib.ExitStack() as opened:
        folders = _Folders(root, opened)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                folder, last = folders.of(name)
                os.unlink(last, dir_fd=folder)
        if sync:
            folders.sync()


def _parts(name: str | PurePath) -> tuple[str, ...]:
    parts = PurePath(name).parts
    if not parts or ".." in parts or PurePath(name).is_absolute():
        raise ValueError(f"{name}: not the name of a file below a folder")
    return parts


def _open_folder(root: Path, parts: Sequence[str], *, make: bool = False) -> int:
    """Open a folder below `root`, which may itself be a link, since the user named it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, part in enumerate(parts, 1):
        above = descriptor
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
            descriptor = os.open(part, _OPEN_FOLDER, dir_fd=above)
        except OSError as error:
            path = root.joinpath(*parts[:number])
            if path.is_symlink():
                fix = "put a folder in its place"
                raise LinkError(f"{path}: is a symbolic link and is not followed; {fix}") from None
            error.filename = str(path)
            raise
        finally:
            os.close(above)
    return descriptor


def _entries(root: Path, folder: str) -> list[tuple[str, bool]]:
    """Return the names below `root` of all in a folder, and whether each is a folder."""
    try:
        descriptor = _open_folder(root, PurePath(folder).parts)
    except FileNotFoundError:
        return []
    prefix = f"{folder}/" if folder else ""
    try:
        with os.scandir(descriptor) as entries:
            return sorted((prefix + e.name, e.is_dir(follow_symlinks=False)) for e in entries)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, path: Path, *, is_written: bool = False) -> int:
    """Return a descriptor of a regular file. Closes another one and raises OSError."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and not (is_written and status.st_nlink > 1):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    is_regular = stat.S_ISREG(status.st_mode)
    reason = "has another name as well (hard link)" if is_regular else "not a regular file"
    raise OSError(errno.EINVAL, reason, str(path))


def _read(descriptor: int, path: Path, limit: int) -> bytes:
    """Read and close a descriptor. Raises OSError if it has more bytes than the limit."""
    chunks: list[bytes] = []
    total, expected = 0, os.fstat(descriptor).st_size
    try:
        while max(total, expected) <= limit:
            chunk = os.read(descriptor, max(expected - total, 0) + (1 << 16))
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            total += len(chunk)
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB", str(path))


class _Folders:
    """Descriptors of the folders below a root, each opened once and closed by `stack`."""

    def __init__(self, root: Path, stack: contextlib.ExitStack, *, make: bool = False) -> None:
        self._root = root
        self._stack = stack
        self._make = make
        self._opened: dict[tuple[str, ...], int] = {}

    def of(self, name: str) -> tuple[int, str]:
        """Return the descriptor of the folder of a file, and the file's name in it."""
        *folders, last = _parts(name)
        key = tuple(folders)
        if key not in self._opened:
            self._opened[key] = _open_folder(self._root, key, make=self._make)
            self._stack.callback(os.close, self._opened[key])
        return self._opened[key], last

    def sync(self) -> None:
        """Wait until the renamed and deleted entries of the folders are on the disk."""
        for folder in self._opened.values():
            os.fsync(folder)


@contextlib.contextmanager
def write_errors(path: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a WriteError that names `path`, or else the file of the OSError."""
    try:
        yield
    except OSError as error:
        where = path or error.filename or "the disk"
        raise WriteError(f"{where}: cannot be written: {error.strerror}") from None


def write_all(
    root: Path, contents: Mapping[str, bytes], *, sync: bool = True, make_folders: bool = False
) -> None:
    """Replace files below `root`, each atomically, and none before all new data is on the disk.

    A kill at any moment leaves the old or the new file. A new file has the permissions of the old
    one; a link in its place is replaced and not followed. Without `sync`, which takes 10 ms, a
    power failure may damage the files: for caches that notice. Raises LinkError, and OSError that
    names one of the files.
    """
    temporary: dict[str, tuple[int, str, str]] = {}
    with contextlib.ExitStack() as opened:
        folders = _Folders(root, opened, make=make_folders)
        try:
            for name, data in contents.items():
                try:
                    folder, last = folders.of(name)
                    new = f".{last}.{os.getpid()}{TEMPORARY}"
                    temporary[name] = (folder, new, last)
                    _write_new(folder, new, data, like=last, sync=sync)
                except OSError as error:
                    error.filename = str(root / name)  # a full disk names no file
                    raise
            for name in contents:
                folder, new, last = temporary[name]
                try:
                    os.replace(new, last, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError as error:
                    error.filename = str(root / name)
                    raise
                del temporary[name]
        finally:
            for folder, new, _ in temporary.values():
                with contextlib.suppress(OSError):
                    os.unlink(new, dir_fd=folder)
        if sync:
            folders.sync()


def check_output(path: Path, kind: str, is_earlier: Callable[[bytes], bool]) -> None:
    """Raise WriteError unless `write_output` may write a file that the user names.

    It may be new, or hold an earlier output of the same kind, which `is_earlier` recognises. A
    symbolic link, a FIFO, a device or any other file is refused. `/dev/stdout` and `/dev/null` are
    allowed.
    """
    if path in _STREAMS:
        return
    refused = "refusing to overwrite it; name another file"
    if path.name in {"", ".."} or (path.is_dir() and not path.is_symlink()):
        raise WriteError(f"{path}: is a folder; name a file")
    try:
        os.lstat(path)
    except FileNotFoundError:
        with write_errors(path):
            path.parent.stat()
        return
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        old = read_below(path.parent, path.name)
    except OSError as error:
        raise WriteError(f"{path}: {error.strerror}; {refused}") from None
    if not is_earlier(old):
        raise WriteError(f"{path}: not {kind}; {refused}")


def write_output(path: Path, data: bytes, kind: str, is_earlier: Callable[[bytes], bool]) -> None:
    """Write a file that the user names, atomically. Raises WriteError, also as `check_output`."""
    check_output(path, kind, is_earlier)
    with write_errors(path):
        if stream := _STREAMS.get(path):
            with stream() as file:
                file.write(data)
        else:
            write_all(path.parent, {path.name: data})


_STREAMS: Final[Mapping[Path, Callable[[], BinaryIO]]] = {
    Path("/dev/stdout"): lambda: os.fdopen(os.dup(1), "wb"),
    Path(os.devnull): lambda: os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"),
}
"""Devices that an output may name, and how they are opened: a file behind stdout is not cut off."""


def _write_new(folder: int, name: str, data: bytes, *, like: str, sync: bool) -> None:
    with contextlib.suppress(FileNotFoundError):  # of a killed process that had our process id
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(like, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.fchmod(file.fileno(), mode & 0o777)
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def make_state(root: Path) -> None:
    """Create the state folder with a .gitignore that hides all of it from Git.

    Raises LinkError and OSError.
    """
    ignore = f"{paths.STATE}/.gitignore"
    if not os.path.lexists(root / ignore):
        write_all(root, {ignore: b"*\n"}, sync=False, make_folders=True)


@contextlib.contextmanager
def exclusive_lock(root: Path, name: str, activity: str) -> Iterator[None]:
    """Hold a lock file in the state folder; the kernel releases it when the process ends.

    Raises WriteError with the `activity` and process id of the run that holds it, and LinkError.
    """
    with write_errors():
        make_state(root)
        descriptor = open_below(root, f"{paths.STATE}/{name}", os.O_RDWR | os.O_CREAT)
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
