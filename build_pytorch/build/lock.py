"""The lock of runs that build or publish."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from build_pytorch.base import files


def only_run(root: Path) -> AbstractContextManager[None]:
    """Hold the lock of one checkout. Raises WriteError if another run holds it.

    Two runs would fill the memory that each counts on, and publish the same variant twice.
    """
    return files.exclusive_lock(root, "builds.lock", "builds or publishes")
