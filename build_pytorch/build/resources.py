"""What this machine has for builds: memory, CPUs, disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

GIB: Final = 1 << 30

_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory() -> float:
    """GiB of memory that builds may fill: the machine's, or the container's if that is less."""
    import psutil

    total: int = psutil.virtual_memory().total
    for limit in _CGROUP_LIMITS:
        try:
            total = min(total, int(limit.read_text()))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return total / GIB


def free_memory() -> float:
    """GiB of memory that nobody uses now, or that only keeps files at hand."""
    import psutil

    available: int = psutil.virtual_memory().available
    return min(available / GIB, memory())


def cpus() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_disk(path: Path) -> float:
    """Free space in GiB where a path is or would be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free / GIB


def process_memory(pid: int) -> int:
    """Bytes that a process and all it started hold; 0 where that is not known."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)
    except psutil.Error:
        return 0
