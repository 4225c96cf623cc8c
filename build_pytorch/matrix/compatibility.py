"""Which machine code runs on which GPU and CPU."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final, Literal

from build_pytorch.base.versions import numbers, plain_capability
from build_pytorch.matrix.source_tables import CudaToolkit
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture

TEGRA: Final = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0"})
"""Capabilities of Jetson and DRIVE GPUs (Thor: 10.1 before CUDA 13, then 11.0). GB10 is none.

Source: NVIDIA, "CUDA GPU Compute Capability", legacy and Jetson tables; checked 2026-11.
"""


def sm_code(capability: str) -> str:
    """Return CUDA's name of a compute capability: `sm_120` for `12.0`."""
    return f"sm_{capability.replace('.', '')}"


@functools.cache
def runs_on(built: str, device: str) -> Literal["exact", "compatible"] | None:
    """Return how machine code (SASS) for one compute capability runs on a GPU of another.

    "exact" for the same capability, "compatible" for an older one of the same major, None if it
    does not run. Capabilities are dotted, such as "8.6", and `built` may end in `a` or `f`; raises
    ValueError for others.

    Source: CUDA C++ Programming Guide, "Binary Compatibility": it holds across minor revisions of
    desktop GPUs, not for Tegra and not between desktop and Tegra (checked 2026-11). "Feature Set
    Compiler Targets": code with `a` runs on the same capability alone, code with `f` on later minor
    versions too (checked 2026-11-22). Our recipes contain no PTX, so nothing else runs.
    """
    plain = plain_capability(built)
    (built_major, built_minor), (major, minor) = _parts(plain), _parts(device)
    if plain != device and (built.endswith("a") or TEGRA & {plain, device}):
        return None
    if built_major != major or built_minor > minor:
        return None
    return "exact" if built_minor == minor else "compatible"


def compiles(cuda: CudaToolkit | None, gpu: GpuArchitecture) -> bool:
    """Return whether a CUDA compiles for an architecture; none does not."""
    if cuda is None:
        return False
    last = gpu.last_cuda or cuda.version
    return numbers(gpu.first_cuda) <= numbers(cuda.version) <= numbers(last)


def cuda_window(gpu: GpuArchitecture) -> str:
    """Return the versions of CUDA that compile for an architecture, in words."""
    if gpu.last_cuda is None:
        return f"{gpu.first_cuda} or newer"
    return f"{gpu.first_cuda} to {gpu.last_cuda}"


def missing_cpu_flags(cpu: CpuIsa, available_flags: Collection[str]) -> tuple[str, ...]:
    """Return the flags of /proc/cpuinfo that an ISA requires and a CPU does not have."""
    return tuple(flag for flag in cpu.cpuinfo if flag not in available_flags)


def _parts(capability: str) -> tuple[int, int]:
    major, dot, minor = capability.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"not a dotted compute capability: {capability!r}")
    return int(major), int(minor)
