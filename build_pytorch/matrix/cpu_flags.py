"""Which flags of /proc/cpuinfo a CPU must have to run what gcc compiles with its machine flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_SPELLED: Final = {
    "bmi": ("bmi1",),
    "lzcnt": ("abm",),
    "sse4.1": ("sse4_1",),
    "sse4.2": ("sse4_2",),
    "avx512vnni": ("avx512_vnni",),
    "avx512bf16": ("avx512_bf16",),
    "avx512fp16": ("avx512_fp16",),
    "avx512vbmi2": ("avx512_vbmi2",),
    "avx512bitalg": ("avx512_bitalg",),
    "avx512vpopcntdq": ("avx512_vpopcntdq",),
    "avxvnni": ("avx_vnni",),
    "amx-tile": ("amx_tile",),
    "amx-bf16": ("amx_bf16",),
    "amx-int8": ("amx_int8",),
}
"""Extensions of x86-64 that Linux spells in another way than gcc (arch/x86/kernel/cpu)."""
_SAME: Final = re.compile("avx|avx2|fma|f16c|bmi2|avx512[a-z]+")
_ARM: Final = {
    "fp16": ("fphp", "asimdhp"),
    "dotprod": ("asimddp",),
    "sve": ("sve",),
    "sve2": ("sve", "sve2"),
    "bf16": ("bf16",),
    "i8mm": ("i8mm",),
}
_ARCH: Final = {
    "x86-64-v3": ("avx2", "bmi2", "f16c", "fma"),
    "x86-64-v4": ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "armv9-a": ("sve", "sve2"),
}
"""Source of these tables: gcc manual, x86 and AArch64 options; Linux, elf_hwcaps (2026-11)."""


def required(flags: Iterable[str]) -> list[str]:
    """Return the flags of /proc/cpuinfo that machine flags such as -mavx512bf16 need, each once.

    Flags that need none, such as -mtune and -mno-avx2, and unknown ones count as none.
    """
    return list(dict.fromkeys(found for flag in flags for found in _required(flag)))


def _required(flag: str) -> Iterator[str]:
    name = flag.removeprefix("-m")
    if name.startswith("arch="):
        base, *extensions = name.removeprefix("arch=").split("+")
        yield from _ARCH.get(base, ())
        for extension in extensions:
            yield from _ARM.get(extension, ())
    elif _SAME.fullmatch(name) or name in _SPELLED:
        yield from _SPELLED.get(name, (name,))
