"""ISA features: which ones compiler flags allow, and which ones an instruction needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.inspect import isa_arm, isa_x86
from build_pytorch.matrix.model import CpuIsa

Features = frozenset[str]


class Isa(Struct, frozen=True, kw_only=True):
    """How the instructions of a platform are told apart.

    `interesting` finds mnemonic and operands (groups 1 and 2) of whatever is not baseline.
    `tiers` are families of features, highest first: code for an ISA holds instructions of the
    highest family that its flags allow.
    """

    machine: int
    """e_machine of ELF files (System V ABI)."""
    interesting: re.Pattern[bytes]
    classify: Callable[[str, str], Features]
    named_by: Callable[[str], tuple[str, ...] | None]
    implied: dict[str, tuple[str, ...]]
    tiers: tuple[tuple[str, re.Pattern[str]], ...]


class Rules(Struct, frozen=True):
    """What instructions of a platform are allowed."""

    isa: Isa
    allowed: Features


ISAS: Final = {
    "x86_64-linux": Isa(
        machine=62,
        interesting=isa_x86.INTERESTING,
        classify=isa_x86.classify,
        named_by=isa_x86.named_by,
        implied=isa_x86.IMPLIED,
        tiers=(
            ("AVX-512", re.compile("avx512.*")),
            ("AVX", re.compile("avx2?|fma|f16c")),
            ("SSE", re.compile("s?sse.*|popcnt")),
        ),
    ),
    "aarch64-linux": Isa(
        machine=183,
        interesting=isa_arm.INTERESTING,
        classify=isa_arm.classify,
        named_by=isa_arm.named_by,
        implied=isa_arm.IMPLIED,
        tiers=(
            ("SVE", re.compile("sve.*")),
            ("ARMv8.1 and newer", re.compile("lse|crc|rdma|fp16.*|dotprod")),
        ),
    ),
}


def objdump_for(platform: str, library: Path) -> str:
    """An objdump on PATH that reads a library of a platform. Raises ToolError."""
    target = f"{platform.removesuffix('-linux')}-linux-gnu"
    for name in (f"{target}-objdump", "objdump"):
        if process.which(name):
            said = process.capture([name, "-f", str(library)], check=False)
            if said.code == 0 and "UNKNOWN" not in said.stdout:
                return name
    package = f"binutils-{target.replace('_', '-')}"
    raise ToolError(
        f"no objdump here reads {library.name} of {platform}; install GNU binutils for it "
        f"(Debian: apt-get install {package})"
    )


def allowed(cpu: CpuIsa) -> Features:
    """Every feature that the flags of a CPU ISA let the compiler use.

    Raises BuildPytorchError for a flag that the classifier does not know.
    """
    isa = ISAS[cpu.platform]
    found: set[str] = set()
    waiting = list(named(cpu))
    while waiting:
        feature = waiting.pop()
        if feature not in found:
            found.add(feature)
            waiting += isa.implied.get(feature, ())
    return frozenset(found)


def named(cpu: CpuIsa) -> tuple[str, ...]:
    """The features that the flags themselves name, in their order.

    Raises BuildPytorchError for a flag that the classifier does not know.
    """
    features: list[str] = []
    for flag in cpu.flags:
        names = ISAS[cpu.platform].named_by(flag)
        if names is None:
            raise BuildPytorchError(
                f"matrix.toml: {cpu.title}: what {flag} allows is not known to the scan; "
                "add it to build_pytorch/prove/isa_x86.py or isa_arm.py"
            )
        features += names
    return tuple(features)


def wanted(cpu: CpuIsa) -> tuple[str, Features]:
    """The highest family of features that the ISA has, with its name; code must hold some of it."""
    features = allowed(cpu)
    for name, pattern in ISAS[cpu.platform].tiers:
        if family := frozenset(f for f in features if pattern.fullmatch(f)):
            return name, family
    return "", frozenset()
