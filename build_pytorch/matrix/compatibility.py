"""Which machine code runs on which GPU and CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from typing import Final, Literal

from build_pytorch.matrix.tables import CpuIsa, CudaToolkit, GpuArchitecture
from build_pytorch.matrix.versions import numbers

Fit = Literal["exact", "compatible", "ptx"]
"""Machine code of this capability, of an older one of the same major, PTX for the driver."""
TEGRA: Final = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0"})
"""Capabilities of Jetson and DRIVE GPUs (Thor: 10.1 before CUDA 13, then 11.0). GB10 is none.

Source: NVIDIA, "CUDA GPU Compute Capability", legacy and Jetson tables; checked 2026-11.
"""


def sm_code(capability: str) -> str:
    """Return CUDA's name of a compute capability: `sm_120` for `12.0`."""
    return f"sm_{capability.replace('.', '')}"


def capability_of(code: str) -> str:
    """Return the capability of CUDA's name of code: `12.0a` for `sm_120a` and `compute_120a`."""
    found = re.search(r"_(\d+)(\d[af]?)$", code)
    return f"{found[1]}.{found[2]}" if found else ""


@functools.cache
def runs_on(built: str, device: str) -> Literal["exact", "compatible"] | None:
    """Return how machine code (SASS) for one compute capability runs on a GPU of another.

    "exact" for the same capability, "compatible" for an older one of the same major, None if it
    does not run. Capabilities are dotted, such as "8.6", and `built` may end in `a` or `f`.

    Source: CUDA C++ Programming Guide, "Binary Compatibility": it holds across minor revisions of
    desktop GPUs, not for Tegra and not between desktop and Tegra (checked 2026-11). "Feature Set
    Compiler Targets": code with `a` runs on the same capability alone, code with `f` on later minor
    versions too (checked 2026-11-22). Our recipes contain no PTX, so nothing else runs.
    """
    plain = built.rstrip("af")  # the capability of the GPU itself: 12.1 for code for 12.1a
    (built_major, built_minor), (major, minor) = numbers(plain), numbers(device)
    if plain != device and (built.endswith("a") or TEGRA & {plain, device}):
        return None
    if built_major != major or built_minor > minor:
        return None
    return "exact" if built_minor == minor else "compatible"


@functools.lru_cache(maxsize=4096)  # the page asks 187,000 times
def fit(code: tuple[str, ...], ptx: tuple[str, ...], capability: str) -> Fit | None:
    """Return what machine code and PTX of some capabilities are for a GPU of another one.

    PTX for the features of a GPU or a family (`9.0a`, `10.0f`) runs where such machine code does.
    """
    fits = {runs_on(built, capability) for built in code}
    if "exact" in fits:
        return "exact"
    if "compatible" in fits:
        return "compatible"
    for built in ptx:
        is_plain = built[-1].isdecimal()
        if numbers(built) <= numbers(capability) if is_plain else runs_on(built, capability):
            return "ptx"
    return None


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
