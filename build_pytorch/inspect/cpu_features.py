"""CPU features: which ones compiler flags allow, and which ones an instruction needs.

x86-64: iced-x86 names the CPUID features of each instruction; features have its names in lower
case. aarch64: from the text of GNU objdump; the sets are the FEAT_ of each instruction in the Arm
Architecture Reference Manual (DDI 0487), without hints, which CPUs that lack them ignore.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import CpuIsa

try:
    from iced_x86 import Code, CpuidFeature, Instruction
except ImportError:  # no wheel for ARM on macOS
    raise ToolError("iced-x86: not installed; pip install iced-x86 (it may need Rust)") from None

Features = frozenset[str]
_NONE: Final[Features] = frozenset()

# --- x86-64 ---

_COMPILER_FEATURE: Final = re.compile(
    "SSE3|SSSE3|SSE4.*|POPCNT|LZCNT|BMI[12]|ADX|MOVBE|AES|PCLMULQDQ|SHA.*|GFNI|TBM|FMA4?|F16C|XOP"
    "|V?AES|VPCLMULQDQ|AVX.*|AMX.*"
)
"""Features that ISA flags enable. System instructions (xsave, rdrand, ...) are not among them:
programs use those after a check of CPUID."""
_CPUID: Final = {
    number: name.lower()
    for name, number in vars(CpuidFeature).items()
    if isinstance(number, int) and _COMPILER_FEATURE.fullmatch(name)
}
_IMPLY_AVX512F: Final = re.compile("avx512_.*|avx512(?:dq|bw|cd)")
_TZCNT: Final = {getattr(Code, f"TZCNT_R{bits}_RM{bits}") for bits in (16, 32, 64)}
"""CPUs without BMI run it as bsf, and gcc emits it for baseline x86-64."""


@functools.cache
def x86_features(code: int) -> Features:
    """Return the features beyond baseline x86-64 (SSE2) that an instruction needs.

    `code` is iced-x86's Code. AVX512F is left out where another feature implies it.
    """
    instruction = Instruction()
    instruction.code = code  # type: ignore[assignment] # typed as an enum, an int at run time
    if code in _TZCNT:
        return _NONE
    found = {_CPUID[number] for number in instruction.cpuid_features() if number in _CPUID}
    if any(_IMPLY_AVX512F.fullmatch(name) for name in found):
        found.discard("avx512f")
    return frozenset(found)


_X86_IMPLIED: Final = {
    "sse4_2": ("sse3", "ssse3", "sse4_1"),
    "avx": ("sse4_2", "popcnt"),
    **dict.fromkeys(("avx2", "fma", "f16c"), ("avx",)),
    # gcc treats fma and f16c as parts of AVX-512 (its patterns test TARGET_F16C ||
    # TARGET_AVX512VL), every CPU with AVX-512 has both, and their short forms are VEX-encoded.
    "avx512f": ("avx2", "fma", "f16c"),
    **dict.fromkeys(("avx512dq", "avx512bw", "avx512vl", "avx512cd"), ("avx512f",)),
    **dict.fromkeys(("avx512_vnni", "avx512_ifma", "avx512_vpopcntdq"), ("avx512f",)),
    **dict.fromkeys(("avx512_bf16", "avx512_vbmi", "avx512_vbmi2"), ("avx512bw",)),
    "avx512_bitalg": ("avx512bw",),
    "avx512_fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "avx_vnni": ("avx2",),
}
"""What gcc enables together with a feature (GCC manual, x86 options; tested with gcc)."""

_X86_FLAGS: Final = {
    **{f"-m{name.replace('_', '')}": (name,) for name in _CPUID.values()},
    "-mbmi": ("bmi1",),
    "-mpclmul": ("pclmulqdq",),
    "-msse4": ("sse4_2",),
    "-march=x86-64": (),
    "-march=x86-64-v2": ("sse4_2", "popcnt"),
    "-march=x86-64-v3": (_V3 := ("avx2", "fma", "f16c", "bmi1", "bmi2", "lzcnt", "movbe")),
    "-march=x86-64-v4": (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def _named_by_x86_flag(flag: str) -> tuple[str, ...] | None:
    if not flag.startswith("-march="):  # -mavx512bf16, -msse4.1, -mamx-tile
        flag = f"-{flag[1:].translate(str.maketrans('', '', '.-_'))}"
    return _X86_FLAGS.get(flag)


# --- aarch64 ---

_ARM_BY_NAME: Final = {
    "lse": r"(?:cas|swp)(?:a|l|al)?[bh]?|casp(?:a|l|al)?"
    r"|(?:ld|st)(?:add|clr|eor|set|smax|smin|umax|umin)(?:a|l|al)?[bh]?",
    "crc": r"crc32c?[bhwx]",
    "rdma": r"sqrdml[as]h",
    "dotprod": r"[su]dot",
    "fp16fml": r"fml[as]l2?",
    "fcma": r"fcmla|fcadd",
    "jscvt": r"fjcvtzs",
    "rcpc": r"ldapr[bh]?|ldapurs?[bhw]?|stlur[bh]?",
    "frint": r"frint(?:32|64)[xz]",
    "i8mm": r"[su]mmla|usmmla|usdot|sudot",
    "bf16": r"bfdot|bfmmla|bfmlal[bt]|bfcvtn?2?|bfcvtnt",
    "aes": r"aes(?:d|e|imc|mc)|pmull2?",
    "sha2": r"sha1[chmp]|sha1su[01]|sha256[a-z0-9]+",
    "sha3": r"sha512[a-z0-9]+|eor3|rax1|xar|bcax",
    "sve": r"cnt[bhwdp]|(?:inc|dec)[bhwd]"
    r"|[su]q(?:inc|dec)[bhwd]|addvl|addpl|rdvl|rdffr|wrffr|setffr"
    r"|ptrues?|pfalse|whil[a-z]+|ctermeq|ctermne",
    "sme": r"smstart|smstop|rdsvl|addsvl|addspl|[su]mop[as]|fmop[as]|bfmop[as]",
    "mops": r"(?:cpy|set)f?[pme](?:[a-z]+)?",
}

ARM_INSTRUCTION: Final = re.compile(
    rf"\t(?=((?:{'|'.join(_ARM_BY_NAME.values())})(?=[\t\n])"
    r"|[a-z][a-z0-9]*(?=\t[^\n<]*?\b[zp][0-9][^\n<]*)"
    r"|(?:f[a-z0-9]+|[su]cvtf)(?=\t[^\n<]*(?:\bh[0-9]|\.[48]h)[^\n<]*))([^\n<]*))".encode()
)
"""Finds mnemonic and operands of every instruction that may need more than baseline ARMv8-A."""

_HALF_BASELINE: Final = re.compile(r"fcvt[nl]?2?")
"""Conversions of half precision that ARMv8.0 has."""

_SVE2: Final = re.compile(
    r"[su]aba|[su]abal[bt]|[su]abdl[bt]|[su](?:add|sub)[lw][bt]|s(?:add|sub)lbt|ssubltb"
    r"|r?(?:add|sub)hn[bt]|(?:adc|sbc)l[bt]|bcax|bsl[12]?n?|nbsl|eor3|eor(?:bt|tb)|xar|bdep|bext"
    r"|bgrp|cadd|sqcadd|cdot|cmla|sqrdcmlah|fcvtlt|fcvtx?nt|fcvtx|flogb|fml[as]l[bt]|histcnt|histseg"
    r"|match|nmatch|pmul|pmull[bt]|r?shrn[bt]|[su]qr?shru?n[bt]|sqr?shru?n[bt]|sqshlu"
    r"|[su]r?hadd|[su]hsubr?|sqabs|sqneg|sqdml[as]l(?:b|t|bt)|sqr?dmulh|sqrdml[as]h|sqdmull[bt]"
    r"|[su]q?rshlr?|[su]qshlr?|[su]rshr|[su]r?sra|sli|sri|[su]ml[as]l[bt]|[su]mull[bt]|[su]qxtu?n[bt]"
    r"|suqadd|usqadd|[su]shll[bt]|tbx|urecpe|ursqrte|faddp|fmaxn?m?p|fminn?m?p|addp|[su]maxp|[su]minp"
    r"|[su]adalp|whileg[et]|whileh[is]|while(?:rw|wr)|ldnt1s[bhw]|aes[a-z]+|sm4ek?[y]?|rax1"
)
_UNPREDICATED_SVE2: Final = re.compile(r"mul|[su]mulh|mla|mls")
"""SVE has them with a predicate only."""


@functools.lru_cache(maxsize=1 << 16)
def arm_features(mnemonic: bytes, text: bytes) -> Features:
    """Return the features beyond baseline ARMv8-A that an instruction needs.

    Takes mnemonic and operands as objdump prints them.
    """
    operands = text.decode("ascii", "replace")
    is_vector = re.search(r"\b(?:z[0-9]+\.|z[0-9]+[,}]|p[0-9]+[./,])", operands) is not None
    is_half = re.search(r"\bh[0-9]|\.[48]h", operands) is not None
    is_unpredicated = re.search(r"\bp[0-9]+/", operands) is None
    return _arm_features(mnemonic.decode(), is_vector, is_half, is_unpredicated)


@functools.cache
def _arm_features(name: str, is_vector: bool, is_half: bool, is_unpredicated: bool) -> Features:
    found = frozenset(f for f, pattern in _ARM_BY_NAME.items() if re.fullmatch(pattern, name))
    if is_vector:
        is_new = _SVE2.fullmatch(name) or (is_unpredicated and _UNPREDICATED_SVE2.fullmatch(name))
        return found & {"bf16", "i8mm", "sme"} | {"sve2" if is_new else "sve"}
    if found == {"sve"} and re.fullmatch("whileg[et]|whileh[is]", name):
        return frozenset({"sve2"})
    is_float = name.startswith("f") or name in {"scvtf", "ucvtf"}
    if is_half and is_float and not found & {"bf16", "fp16fml"}:
        return found if _HALF_BASELINE.fullmatch(name) else found | {"fp16"}
    return found


_V8_1: Final = ("lse", "crc", "rdma")
_V8_3: Final = (*_V8_1, "fcma", "jscvt", "rcpc")
_V8_5: Final = (*_V8_3, "dotprod", "frint")
_ARM_MARCH: Final = {
    "armv8-a": (),
    "armv8.1-a": _V8_1,
    "armv8.2-a": _V8_1,
    "armv8.3-a": _V8_3,
    "armv8.4-a": (*_V8_3, "dotprod"),
    "armv8.5-a": _V8_5,
    "armv8.6-a": (*_V8_5, "bf16", "i8mm"),
    "armv9-a": (*_V8_5, "sve2", "fp16fml"),
}
_ARM_IMPLIED: Final = {
    "sve2": ("sve",),
    "sve": ("fp16", "fcma"),
    "fp16fml": ("fp16",),
    "crypto": ("aes", "sha2"),
}
"""What gcc enables together with a feature (GCC manual, AArch64 options; tested with gcc)."""


def _named_by_arm_flag(flag: str) -> tuple[str, ...] | None:
    architecture, *extensions = flag.removeprefix("-march=").split("+")
    known = {*_ARM_BY_NAME, *_ARM_IMPLIED, "fp16"}
    if flag.startswith("-march=") and architecture in _ARM_MARCH and known.issuperset(extensions):
        return (*_ARM_MARCH[architecture], *extensions)
    return None


# --- both ---


class InstructionSet(Struct, frozen=True, kw_only=True):
    """The instruction set of a platform.

    `named_by` returns the features that a compiler flag names, None for an unknown flag. `tiers`
    are families of features, highest first: code for a CPU ISA contains instructions of the
    highest family that its flags allow.
    """

    machine: int
    """e_machine of ELF files (System V ABI)."""
    named_by: Callable[[str], tuple[str, ...] | None]
    implied: dict[str, tuple[str, ...]]
    tiers: dict[str, str]


INSTRUCTION_SETS: Final = {
    "x86_64-linux": InstructionSet(
        machine=62,
        named_by=_named_by_x86_flag,
        implied=_X86_IMPLIED,
        tiers={"AVX-512": "avx512.*", "AVX": "avx2?|fma|f16c", "SSE": "s?sse.*|popcnt"},
    ),
    "aarch64-linux": InstructionSet(
        machine=183,
        named_by=_named_by_arm_flag,
        implied=_ARM_IMPLIED,
        tiers={"SVE": "sve.*", "ARMv8.1 and newer": "lse|crc|rdma|fp16.*|dotprod"},
    ),
}


def named_features(cpu: CpuIsa) -> tuple[str, ...]:
    """Return the features that the flags of a CPU ISA name, in their order.

    Raises BuildPytorchError for an unknown flag.
    """
    features: list[str] = []
    for flag in cpu.flags:
        names = INSTRUCTION_SETS[cpu.platform].named_by(flag)
        if names is None:
            raise BuildPytorchError(
                f"matrix.toml: {cpu.title}: what {flag} allows is not known to the inspection; "
                "add it to build_pytorch/inspect/cpu_features.py"
            )
        features += names
    return tuple(features)


def allowed_features(cpu: CpuIsa) -> Features:
    """Return every feature that the flags allow the compiler to use. Raises BuildPytorchError."""
    found: set[str] = set()
    waiting = list(named_features(cpu))
    while waiting:
        feature = waiting.pop()
        if feature not in found:
            found.add(feature)
            waiting += INSTRUCTION_SETS[cpu.platform].implied.get(feature, ())
    return frozenset(found)


def highest_tier(cpu: CpuIsa) -> tuple[str, Features]:
    """Return the highest family of features that a CPU ISA has, and its name."""
    features = allowed_features(cpu)
    for name, pattern in INSTRUCTION_SETS[cpu.platform].tiers.items():
        if family := frozenset(f for f in features if re.fullmatch(pattern, f)):
            return name, family
    return "", _NONE
