"""What a command writes beside its result: files that the user names, and the state folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from build_pytorch.base import paths
from build_pytorch.base.errors import WriteError
from build_pytorch.base.files import open_below, read_below, write_all, write_errors


def check_output(path: Path, kind: str, is_earlier: Callable[[bytes], bool]) -> None:
    """Raise WriteError unless `write_output` may write a file that the user names.

    It may be new, or hold an earlier output of the same kind, which `is_earlier` recognises, or be
    `/dev/stdout` or `/dev/null`. Links and other files are refused.
    """
    if path in _STREAMS:
        return
    refused = "refusing to overwrite it; name another file"
    if path.name in {"", ".."} or (path.is_dir() and not path.is_symlink()):
        raise WriteError(f"{path}: is a folder; name a file")
    with write_errors(path):
        path.parent.stat()
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, "nothing may be written in its folder; name another one")
    try:
        old = read_below(path.parent, path.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise WriteError(f"{path}: {error.strerror}; {refused}") from None
    if not is_earlier(old):
        raise WriteError(f"{path}: not {kind}; {refused}")


def write_output(path: Path, data: bytes, kind: str, is_earlier: Callable[[bytes], bool]) -> None:
    """Write a file that the user names, atomically. Raises WriteError, also as `check_output`."""
    check_output(path, kind, is_earlier)
    with write_errors(path):
        if path in _STREAMS:
            with _STREAMS[path]() as file:
                file.write(data)
        else:
            write_all(path.parent, {path.name: data})


_STREAMS: Final[Mapping[Path, Callable[[], BinaryIO]]] = {
    Path("/dev/stdout"): lambda: os.fdopen(os.dup(1), "wb"),
    Path(os.devnull): lambda: os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"),
}
"""Devices that an output may name, and how they are opened: a file behind stdout is not cut off."""


def make_state(root: Path) -> None:
    """Create the state folder with a .gitignore that hides all of it from Git.

    Raises LinkError and OSError.
    """
    ignore = f"{paths.STATE}/.gitignore"
    if not os.path.lexists(root / ignore):
        write_all(root, {ignore: b"*\n"}, sync=False)


@contextlib.contextmanager
def exclusive_lock(root: Path, name: str, activity: str) -> Iterator[None]:
    """Hold a lock file in the state folder; the kernel releases it when the process ends.

    Raises WriteError with the `activity` and process id of the run that holds it, and LinkError.
    """
    with write_errors():
        make_state(root)
        descriptor = open_below(root, f"{paths.STATE}/{name}", os.O_RDWR | os.O_CREAT)
    with os.fdopen(descriptor, "rb+", buffering=0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = lock.read(20).decode(errors="replace").strip() or "unknown"
            raise WriteError(
                f"{root}: another run {activity} here (process {owner}); "
                "wait until it ends, then run again"
            ) from None
        with contextlib.suppress(OSError):  # a full disk; the process id is for the message only
            lock.truncate(0)
            lock.write(str(os.getpid()).encode())
        yield
