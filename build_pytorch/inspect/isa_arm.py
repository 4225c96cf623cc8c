"""Which ISA feature an aarch64 instruction needs, from the text of GNU objdump.

Source of the sets: Arm Architecture Reference Manual (DDI 0487), the FEAT_ of each instruction.
Hints (pointer authentication of return addresses, branch targets) do nothing on CPUs that lack
them, and are left out.
"""

from __future__ import annotations

import functools
import re
from typing import Final

Features = frozenset[str]

_NONE: Final[Features] = frozenset()

_BY_NAME: Final = {
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

_VECTOR: Final = r"[^\n<]*?\b[zp][0-9][^\n<]*"
_HALF: Final = r"[^\n<]*(?:\bh[0-9]|\.[48]h)[^\n<]*"

INTERESTING: Final = re.compile(
    rf"\t(?=((?:{'|'.join(_BY_NAME.values())})(?=[\t\n])|[a-z][a-z0-9]*(?=\t{_VECTOR})"
    rf"|(?:f[a-z0-9]+|[su]cvtf)(?=\t{_HALF}))([^\n<]*))".encode()
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


def classify(mnemonic: str, operands: str) -> Features:
    """The features that an instruction needs beyond baseline ARMv8-A.

    Takes mnemonic and operands as objdump prints them.
    """
    is_vector = re.search(r"\b(?:z[0-9]+\.|z[0-9]+[,}]|p[0-9]+[./,])", operands) is not None
    is_half = re.search(r"\bh[0-9]|\.[48]h", operands) is not None
    is_predicated = re.search(r"\bp[0-9]+/", operands) is not None
    return _classified(mnemonic, is_vector, is_half, is_predicated)


@functools.cache
def _classified(name: str, is_vector: bool, is_half: bool, is_predicated: bool) -> Features:
    if is_vector:
        found = _by_name(name) & {"bf16", "i8mm", "sme"}
        is_new = _SVE2.fullmatch(name) or (_UNPREDICATED_SVE2.fullmatch(name) and not is_predicated)
        return found | {"sve2" if is_new else "sve"}
    found = _by_name(name)
    if found == {"sve"} and re.fullmatch("whileg[et]|whileh[is]", name):
        return frozenset({"sve2"})
    if is_half and not found & {"bf16", "fp16fml"} and _needs_half(name):
        return found | {"fp16"}
    return found


def _needs_half(name: str) -> bool:
    is_float = name.startswith("f") or name in {"scvtf", "ucvtf"}
    return is_float and not _HALF_BASELINE.fullmatch(name)


def _by_name(name: str) -> Features:
    return frozenset(f for f, pattern in _BY_NAME.items() if re.fullmatch(pattern, name))


_V8_1: Final = ("lse", "crc", "rdma")
_V8_3: Final = (*_V8_1, "fcma", "jscvt", "rcpc")
_V8_4: Final = (*_V8_3, "dotprod")
_V8_5: Final = (*_V8_4, "frint")

_MARCH: Final = {
    "armv8-a": (),
    "armv8.1-a": _V8_1,
    "armv8.2-a": _V8_1,
    "armv8.3-a": _V8_3,
    "armv8.4-a": _V8_4,
    "armv8.5-a": _V8_5,
    "armv8.6-a": (*_V8_5, "bf16", "i8mm"),
    "armv9-a": (*_V8_5, "sve2", "fp16fml"),
}

IMPLIED: Final = {
    "sve2": ("sve",),
    "sve": ("fp16", "fcma"),
    "fp16fml": ("fp16",),
    "crypto": ("aes", "sha2"),
}
"""What gcc enables together with a feature (GCC manual, AArch64; tested against a real gcc)."""

_KNOWN: Final = {*_BY_NAME, *IMPLIED, "fp16"}


def named_by(flag: str) -> tuple[str, ...] | None:
    """The features that one compiler flag names, or None for a flag that we do not know."""
    if not flag.startswith("-march="):
        return None
    architecture, *extensions = flag.removeprefix("-march=").split("+")
    known = architecture in _MARCH and _KNOWN.issuperset(extensions)
    return (*_MARCH[architecture], *extensions) if known else None
