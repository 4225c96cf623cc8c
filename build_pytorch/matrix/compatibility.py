"""Which machine code runs on which GPU: the one rule, for whoever needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from build_pytorch.base.versions import digits


def sm_code(capability: str) -> str:
    """Return the name that CUDA compilers give a compute capability: `sm_120` for `12.0`."""
    return f"sm_{digits(capability)}"


def runs_on(built: str, device: str) -> Literal["exact", "compatible"] | None:
    """Whether machine code (SASS) built for one compute capability runs on a GPU of another.

    Both are dotted, such as "8.6". The rule is NVIDIA's for binary compatibility (CUDA C++
    Programming Guide): the same major, and a minor that is not above the GPU's. Our recipes ship
    no PTX, so nothing else runs. Whether it holds between Jetson parts and others is unverified.

    Returns "exact" for the same capability, "compatible" for an older one of the same major, None
    where it does not run. Raises ValueError for what is no dotted capability.
    """
    built_major, built_minor = _parts(built)
    major, minor = _parts(device)
    if (built_major, built_minor) == (major, minor):
        return "exact"
    return "compatible" if built_major == major and built_minor < minor else None


def missing_cpu_flags(wanted: Iterable[str], flags: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted flags of /proc/cpuinfo that a CPU with `flags` lacks, in their order."""
    present = set(flags)
    return tuple(flag for flag in wanted if flag not in present)


def _parts(capability: str) -> tuple[int, int]:
    major, dot, minor = capability.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"not a dotted compute capability: {capability!r}")
    return int(major), int(minor)
