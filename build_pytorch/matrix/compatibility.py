"""Which machine code runs on which GPU and CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable
from typing import Final, Literal

from build_pytorch.base.versions import numbers
from build_pytorch.matrix.tables import CpuIsa, CudaToolkit, GpuArchitecture

Fit = Literal["exact", "compatible", "ptx"]
"""Machine code of this capability, of an older one of the same major, PTX for the driver."""
TEGRA: Final = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0"})
"""Capabilities of Jetson and DRIVE GPUs (Thor: 10.1 before CUDA 13, then 11.0). GB10 is none.

Source: NVIDIA, "CUDA GPU Compute Capability", legacy and Jetson tables; checked 2026-11.
"""
_ARCHITECTURES: Final = {
    "x86-64-v3": "avx2 bmi2 f16c fma",
    "x86-64-v4": "avx2 fma avx512f avx512bw avx512cd avx512dq avx512vl",
    "armv9-a": "sve sve2",
}
_EXTENSIONS: Final = {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    **{f"avx512{it}": f"avx512_{it}" for it in ("vnni", "bf16", "fp16", "bitalg", "vbmi2")},
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    **{f"amx-{it}": f"amx_{it}" for it in ("tile", "bf16", "int8")},
    "fp16": "fphp asimdhp",
    "dotprod": "asimddp",
    "sve2": "sve sve2",
}
"""Extensions that Linux spells in another way than gcc, x86 and ARM, and those of architectures.

Source: gcc manual, x86 and AArch64 options; Linux, arch/x86/kernel/cpu and elf_hwcaps (2026-11).
"""
_SAME: Final = re.compile("avx|avx2|fma|f16c|bmi2|avx512[a-z]+|sve|bf16|i8mm")


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
    does not run. Capabilities are dotted, such as "8.6", and `built` may end in `a` or `f`; raises
    ValueError for others.

    Source: CUDA C++ Programming Guide, "Binary Compatibility": it holds across minor revisions of
    desktop GPUs, not for Tegra and not between desktop and Tegra (checked 2026-11). "Feature Set
    Compiler Targets": code with `a` runs on the same capability alone, code with `f` on later minor
    versions too (checked 2026-11-22). Our recipes contain no PTX, so nothing else runs.
    """
    plain = built.rstrip("af")  # the capability of the GPU itself: 12.1 for code for 12.1a
    (built_major, built_minor), (major, minor) = _parts(plain), _parts(device)
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


def required_cpu_flags(flags: Iterable[str]) -> list[str]:
    """Return the flags of /proc/cpuinfo that machine flags such as -mavx512bf16 need, each once.

    Flags that need none, such as -mtune and -mno-avx2, and unknown ones count as none.
    """
    found: dict[str, None] = {}
    for flag in flags:
        architecture, *extensions = flag.removeprefix("-m").removeprefix("arch=").split("+")
        needed = _ARCHITECTURES.get(architecture, "")
        for name in extensions if flag.startswith("-march=") else [architecture]:
            needed += " " + (_EXTENSIONS.get(name) or name * bool(_SAME.fullmatch(name)))
        found |= dict.fromkeys(needed.split())
    return list(found)


def _parts(capability: str) -> tuple[int, int]:
    major, dot, minor = capability.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"not a dotted compute capability: {capability!r}")
    return int(major), int(minor)
