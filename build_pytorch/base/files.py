"""Files: reading with a limit, and atomic writing.

Files of a checkout are named by their path below its root. A symbolic link on the way to one is not
followed, so that nothing outside of the checkout is read, written or deleted by accident. Only
regular files are read, and none that is larger than a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pkgutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from build_pytorch.base.errors import BuildPytorchError, LinkError, WriteError

TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not `.nix`, because Flox takes every `.nix` file for a package."""

LARGEST: Final = 64 << 20  #: bytes that are read of a file, if the caller gives no limit
LARGEST_LOG: Final = 1 << 29  #: bytes of the log of a build; PyTorch's has some MB
LARGEST_TEXT: Final = 1 << 20  #: bytes of a recipe or a matrix.toml; a recipe has seven thousand


def place_below(root: Path, name: str | PurePath) -> Path:
    """Return the path of a file below a folder. Raises LinkError for a link on the way to it."""
    return Path(_place_below(root, name))


def _place_below(root: Path, name: str | PurePath) -> str:
    """Do the same without a Path: reading thousands of files takes half as long."""
    folder, _, last = str(name).rpartition("/")
    if last in {"", ".", ".."} or ".." in folder.split("/") or str(name).startswith("/"):
        raise ValueError(f"{name}: not the name of a file below a folder")
    return f"{_folder_below(root, folder)}/{last}"


def _folder_below(root: Path, folder: str) -> str:
    """Return the path of a folder. Raises LinkError if it or one above it is a link."""
    place = str(root)
    for part in filter(None, folder.split("/")):
        place = f"{place}/{part}"
        if os.path.islink(place):  # noqa: PTH114 - for thousands of files
            fix = "put a folder in its place"
            raise LinkError(f"{place}: is a symbolic link and is not followed; {fix}")
    return place


def open_below(root: Path, name: str | PurePath, flags: int = os.O_RDONLY) -> int:
    """Open a regular file below a folder, or create it with the folders that lead to it.

    Raises LinkError as `place_below`, and OSError, also if the file is a link, a FIFO, a device or
    a folder.
    """
    path = _place_below(root, name)
    if flags & os.O_CREAT:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    return _open_regular(path, flags | os.O_NOFOLLOW)


def _open_regular(path: str | Path, flags: int) -> int:
    """Open a file. O_NONBLOCK: that of a FIFO returns at once."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "is a symbolic link"
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    what = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file"
    raise OSError(errno.EINVAL, what, str(path))


def read_below(root: Path, name: str | PurePath, limit: int = LARGEST) -> bytes:
    """Return the bytes of a file of a checkout. Raises LinkError and OSError as `open_below`."""
    return _read(open_below(root, name), f"{root}/{name}", limit)


def read_text_below(root: Path, name: str | PurePath) -> str:
    """Return a recipe or a page; bytes that are not UTF-8 are replaced. Raises as `read_below`."""
    return read_below(root, name).decode("utf-8", errors="replace")


def read_named(path: Path, limit: int = LARGEST, *, or_stdin: bool = False) -> bytes:
    """Return the bytes of a regular file that the user names. Raises OSError as `open_named`."""
    return _read(open_named(path, or_stdin=or_stdin), path, limit)


def read_input(path: Path, limit: int = LARGEST) -> bytes:
    """Return the bytes of a file that the user names, `-` for standard input.

    Raises BuildPytorchError.
    """
    try:
        return read_named(path, limit, or_stdin=True)
    except OSError as error:
        raise BuildPytorchError(f"{input_name(path)}: cannot be read: {error.strerror}") from None


def input_name(path: Path | str) -> str:
    """Return what messages call a file of `read_input`."""
    return "standard input" if str(path) == "-" else str(path)


def open_named(path: Path, *, or_stdin: bool = False) -> int:
    """Open a regular file that the user names, for reading; links are followed. Raises OSError.

    With `or_stdin`, `-` is standard input, and `/dev/stdin` or `/dev/fd/N` may be a pipe.
    """
    if or_stdin and str(path) == "-":
        return os.dup(0)
    if or_stdin and (str(path) == "/dev/stdin" or path.parent == Path("/dev/fd")):
        return os.open(path, os.O_RDONLY)
    return _open_regular(path, os.O_RDONLY)


def own_text(package: str, name: str) -> str:
    """Return a table that is beside the modules of a package of ours, which may be in a zip."""
    return (pkgutil.get_data(package, name) or b"").decode()


def create_below(root: Path, name: str | PurePath) -> BinaryIO:
    """Create a new file and the folders that lead to it. Raises LinkError and OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.fdopen(open_below(root, name, flags), "wb", buffering=0)


def walk_below(root: Path, folder: str) -> Iterator[str]:
    """Yield the names below `root` of all files in a folder and its folders, in order.

    A link is yielded and not followed, a temporary file of a killed run is left out. A missing
    folder is empty. Raises LinkError and OSError.
    """
    top = _folder_below(root, folder)
    if not Path(top).exists():
        return
    for entry in sorted(os.scandir(top), key=lambda entry: entry.name):
        name = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from walk_below(root, name)
        elif not name.endswith(TEMPORARY):
            yield name


def leftovers(root: Path, folder: str) -> list[str]:
    """Return the temporary files in a folder, as names below `root`. Raises as `walk_below`."""
    found = sorted(Path(_folder_below(root, folder)).glob(f".*{TEMPORARY}"))
    return [str(path.relative_to(root)) for path in found]


def _read(descriptor: int, path: str | Path, limit: int) -> bytes:
    """Read and close a descriptor. Raises OSError if it has more bytes than the limit."""
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > limit or len(data := file.read(limit + 1)) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB", str(path))
    return data


@contextlib.contextmanager
def write_errors(path: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a WriteError that names `path`, or else the file of the OSError."""
    try:
        yield
    except OSError as error:
        where = path or error.filename or "the disk"
        raise WriteError(f"{where}: cannot be written: {error.strerror}") from None


def write_all(root: Path, contents: Mapping[str, bytes | None], *, sync: bool = True) -> None:
    """Replace files below `root`, each atomically, and none before all new data is on the disk.

    In the order of `contents`; None deletes a file. A kill at any moment leaves the old or the new
    file. A new file has the permissions of the old one; a link in its place is replaced and not
    followed. Missing folders are made. Without `sync`, which takes 10 ms, a power failure may
    damage the files: for what can be made again. Raises LinkError, and OSError that names one of
    the files.
    """
    written: dict[Path, Path] = {}
    path = root
    try:
        root.stat()
        places = {place_below(root, name): data for name, data in contents.items()}
        for path, data in places.items():
            if data is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                written[path] = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
                _write_new(written[path], data, like=path, sync=sync)
        for path in places:
            if path in written:
                written[path].replace(path)
                del written[path]
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        error.filename = str(path)  # a full disk names no file
        raise
    finally:
        for new in written.values():
            with contextlib.suppress(OSError):
                new.unlink()
    for folder in filter(Path.exists, {path.parent for path in places} if sync else ()):
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _write_new(new: Path, data: bytes, *, like: Path, sync: bool) -> None:
    new.unlink(missing_ok=True)  # of a killed process that had our process id
    with new.open("xb") as file:
        with contextlib.suppress(FileNotFoundError):
            mode = like.lstat().st_mode
            if stat.S_ISREG(mode):
                os.fchmod(file.fileno(), mode & 0o777)
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
