"""On which GPUs a binary runs."""

from __future__ import annotations

from typing import Literal


def runs_on(built: str, device: str) -> Literal["exact", "compatible"] | None:
    """Whether a binary for one compute capability runs on a GPU of another, both as `12.0`.

    SASS runs on the same major with an equal or higher minor (CUDA C++ Programming Guide, "Binary
    Compatibility"). Our binaries hold no PTX, so nothing else runs.
    """
    if built == device:
        return "exact"
    built_major, built_minor = map(int, built.split("."))
    device_major, device_minor = map(int, device.split("."))
    return "compatible" if built_major == device_major and built_minor < device_minor else None
