"""Which machine code runs on which GPU and CPU."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from build_pytorch.matrix.model import CpuIsa


def sm_code(capability: str) -> str:
    """Return CUDA's name of a compute capability: `sm_120` for `12.0`."""
    return f"sm_{capability.replace('.', '')}"


def runs_on(built: str, device: str) -> Literal["exact", "compatible"] | None:
    """Return how machine code (SASS) for one compute capability runs on a GPU of another.

    "exact" for the same capability, "compatible" for an older one of the same major, None if it
    does not run. Capabilities are dotted, such as "8.6"; raises ValueError for others.

    Source: CUDA C++ Programming Guide, binary compatibility. Our recipes contain no PTX, so
    nothing else runs. Unverified between Jetson and other GPUs.
    """
    (built_major, built_minor), (major, minor) = _parts(built), _parts(device)
    if built_major != major or built_minor > minor:
        return None
    return "exact" if built_minor == minor else "compatible"


def missing_cpu_flags(cpu: CpuIsa, available_flags: Collection[str]) -> tuple[str, ...]:
    """Return the flags of /proc/cpuinfo that an ISA requires and a CPU does not have."""
    return tuple(flag for flag in cpu.cpuinfo if flag not in available_flags)


def _parts(capability: str) -> tuple[int, int]:
    major, dot, minor = capability.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"not a dotted compute capability: {capability!r}")
    return int(major), int(minor)
