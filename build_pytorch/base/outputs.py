"""What a command writes beside its result: files that the user names, and the state folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from build_pytorch.base import paths
from build_pytorch.base.errors import WriteError
from build_pytorch.base.files import open_below, read_below, write_all, write_errors


def write_output(path: Path, data: bytes, kind: str, is_earlier: Callable[[bytes], bool]) -> None:
    """Write a file that the user names, atomically: a new one, or an earlier one of its kind.

    `is_earlier` recognises the content of such a file. Raises WriteError.
    """
    with write_errors(path):
        with contextlib.suppress(FileNotFoundError):
            if not is_earlier(read_below(path.parent, path.name)):
                raise WriteError(f"{path}: not {kind}; it is not overwritten; name another file")
        try:
            write_all(path.parent, {path.name: data})
        except PermissionError:
            refused = "nothing may be written in its folder; name another one"
            raise WriteError(f"{path}: {refused}") from None


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
