"""One run that builds or publishes at a time in one checkout.

Two would fill the memory that each counts on, and publish the same thing twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from build_pytorch.base import paths
from build_pytorch.base.errors import WriteError


@contextlib.contextmanager
def only_run(root: Path) -> Iterator[None]:
    """Hold the lock. The kernel drops it when we end, however. Raises WriteError."""
    folder = root / paths.STATE
    try:
        paths.make_state(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(folder / "builds.lock", flags, 0o666)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read().strip() or "unknown"
            raise WriteError(
                f"{root}: another run builds or publishes here (process {owner}); "
                "wait for it, or work in another checkout"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
