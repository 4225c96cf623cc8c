"""Which ISA feature an x86-64 instruction needs, from the text of GNU objdump (AT&T syntax).

Source of the sets: Intel SDM volume 2 (the CPUID column of each instruction) and, for AMD's own,
AMD64 APM volume 6. Not told apart, because text cannot: an instruction that has a VEX and an EVEX
form and is EVEX-encoded without a mask, a broadcast, a 512-bit or a high register. Assemblers
choose VEX there. System instructions (xsave, rdrand, rdtscp, ...) are left out: compilers do not
emit them for ISA flags, and programs use them after asking cpuid.
"""

from __future__ import annotations

import functools
import re
from typing import Final

Features = frozenset[str]

_NONE: Final[Features] = frozenset()

_LEGACY: Final = {
    "sse3": "addsubp[sd]|haddp[sd]|hsubp[sd]|lddqu|movddup|movshdup|movsldup|fisttp(?:s|l|ll)?",
    "ssse3": "pabs[bwd]|palignr|ph(?:add|sub)(?:w|d|sw)|pmaddubsw|pmulhrsw|pshufb|psign[bwd]",
    "sse4.1": "blendv?p[sd]|dpp[sd]|extractps|insertps|movntdqa|mpsadbw|packusdw|pblendvb|pblendw"
    "|pcmpeqq|pextr[bdq]|phminposuw|pinsr[bdq]|pmaxs[bd]|pmaxu[wd]|pmins[bd]|pminu[wd]"
    "|pmov[sz]x(?:bw|bd|bq|wd|wq|dq)|pmuldq|pmulld|ptest|rounds[sd]|roundp[sd]",
    "sse4.2": "pcmp[ei]str[im][lq]?|pcmpgtq|crc32[bwlq]?",
    "popcnt": "popcnt[wlq]?",
    "lzcnt": "lzcnt[wlq]?",
    "bmi": "andn[lq]?|bextr[lq]?|blsi[lq]?|blsmsk[lq]?|blsr[lq]?",  # not tzcnt, which is `rep bsf`
    "bmi2": "bzhi[lq]?|mulx[lq]?|pdep[lq]?|pext[lq]?|rorx[lq]?|sarx[lq]?|shlx[lq]?|shrx[lq]?",
    "adx": "adcx[lq]?|adox[lq]?",
    "movbe": "movbe[wlq]?",
    "aes": "aes(?:dec|enc)(?:last)?|aesimc|aeskeygenassist",
    "pclmul": "pclmul[a-z]*qdq",
    "sha": "sha1[a-z0-9]+|sha256[a-z0-9]+",
    "gfni": "gf2p8[a-z]+",
    "sse4a": "extrq|insertq|movnts[sd]",
    "tbm": "blcfill|blci|blcic|blcmsk|blcs|blsfill|blsic|t1mskc|tzmsk",
    "amx_tile": "ldtilecfg|sttilecfg|tileloadd(?:t1)?|tilerelease|tilestored|tilezero",
    "amx_int8": "tdpb(?:ss|su|us|uu)d",
    "amx_bf16": "tdpbf16ps",
    "amx_fp16": "tdpfp16ps",
}
"""By mnemonic alone: neither VEX nor EVEX with a v in front."""

_MASK: Final = (
    r"k(?:mov|and|andn|or|xor|xnor|not|add|ortest|test|shiftl|shiftr)[bwdq]|kunpck(?:bw|wd|dq)"
)

INTERESTING: Final = re.compile(
    (
        r"\t((?:\{e?vex\} )?(?:v[a-z0-9_]+|"
        + "|".join((_MASK, "pextrw", *_LEGACY.values()))
        + r"))"
        r"(?![a-z0-9_])([^\n<#]*)"
    ).encode()
)
"""Finds mnemonic and operands of every instruction that may need more than baseline x86-64."""

_COMMON: Final = {
    "f16c": r"vcvtph2ps|vcvtps2ph",
    "fma": r"vfn?m(?:add|sub|addsub|subadd)(?:132|213|231)[ps][sd]",
    "aes": r"vaes.*",
    "pclmul": r"vpclmul.*",
    "gfni": r"vgf2p8.*",
    "vnni": r"vpdp(?:busd|wssd)s?",
    "ifma": r"vpmadd52[lh]uq",
}

_VEX: Final = {
    "avx_vnni_int8": r"vpdpb(?:ss|su|uu)ds?",
    "avx_vnni_int16": r"vpdpw(?:su|us|uu)ds?",
    "avx_ne_convert": r"vbcstne.*|vcvtnee.*|vcvtneo.*|vcvtneps2bf16[xy]?",
    "fma4": r"vfn?m(?:add|sub|addsub|subadd)[ps][sd]",
    "xop": r"vpcom[a-z]+|vprot[bwdq]|vpsha[bwdq]|vpshl[bwdq]|vpcmov|vpperm|vpmac.*|vpmadcs.*"
    r"|vfrcz.*|vph(?:add|sub)(?:[bw][dq]|u[bw][dq]|dq|udq|bw|ubw)|vpermil2p[sd]",
    "avx2": r"vpbroadcast[bwdq]|vbroadcasti128|vinserti128|vextracti128|vperm2i128|vpermd|vpermq"
    r"|vpermp[sd]|vpblendd|vps[lr]lv[dq]|vpsravd|vp?gather.*|vpmaskmov[dq]",
}

_AVX2_IF_YMM: Final = re.compile(
    r"vp(?:abs|add|align|and|avg|blend|cmp|h|m|or|s|unpck|ack|xor).*|vmovntdqa|vmpsadbw"
)
"""Integer instructions: AVX has them with 128 bits, AVX2 with 256."""

_STILL_AVX: Final = re.compile(r"vpermil.*|vptest|vmaskmov.*|vpcmp[ei]str.*")

_EVEX: Final = {
    "avx512_bf16": r"vcvtne2ps2bf16|vcvtneps2bf16[xy]?|vdpbf16ps",
    "avx512_fp16": r"v\w*(?:ph|sh)x?|vcvtt?(?:ph|sh)2\w+|vmovw|vcvts[hd]2s[hd]"
    r"|vf\w*c(?:madd|mul)c?[ps]h|vcvtu?si2sh[lq]?|vcvtu?(?:dq|qq|w)2ph[xyz]?|vcvtp[sd]2phx?[xyz]?|vfpclassph[xyz]",
    "avx512cd": r"vpconflict[dq]|vplzcnt[dq]|vpbroadcastm(?:b2q|w2d)",
    "avx512vbmi": r"vpermb|vperm[it]2b|vpmultishiftqb",
    "avx512vbmi2": r"vp(?:compress|expand)[bw]|vpsh[lr]dv?[wdq]",
    "avx512bitalg": r"vpopcnt[bw]|vpshufbitqmb",
    "avx512vpopcntdq": r"vpopcnt[dq]",
    "avx512vp2intersect": r"vp2intersect[dq]",
    "avx512er": r"vexp2p[sd]|vr(?:cp|sqrt)28[ps][sd]",
    "avx512pf": r"vp?(?:gather|scatter)pf.*",
    "avx5124fmaps": r"v4fn?madd[ps]s",
    "avx5124vnniw": r"vp4dpwssds?",
    "avx512bw": r"vpadd(?:u?s)?[bw]|vpsub(?:u?s)?[bw]|vpmul(?:hrs|hu?|l)w|vpmadd(?:ubsw|wd)"
    r"|vpavg[bw]|vp(?:max|min)[su][bw]|vpack[su]s(?:dw|wb)|vpunpck[hl](?:bw|wd)|vpshuf(?:b|hw|lw)"
    r"|vps(?:ll|rl|ra)v?w|vps[lr]ldq|vpalignr|vpabs[bw]|vdbpsadbw|vpsadbw|vpblendm[bw]"
    r"|vpbroadcast[bw]|vpcmp(?:eq|n?lt|n?le|neq|gt|ge|false|true)?u?[bw]|vpmovu?s?wb"
    r"|vpmov[sz]xbw|vpmovm2[bw]|vpmov[bw]2m|vptestn?m[bw]|vpermw|vperm[it]2w|vmovdqu(?:8|16)"
    r"|vpextr[bw]|vpinsr[bw]",
    "avx512dq": r"vandn?p[sd]|vx?orp[sd]|vbroadcast[fi](?:32x2|64x2|32x8)"
    r"|vcvtt?p[sd]2u?qq|vcvtu?qq2p[sd][xyz]?|v(?:extract|insert)[fi](?:64x2|32x8)"
    r"|vfpclass[ps][sd][xyz]?|vpmullq|vrange[ps][sd]|vreduce[ps][sd]|vpmovm2[dq]|vpmov[dq]2m"
    r"|vpextr[dq]|vpinsr[dq]",
}

_MASK_WIDTH: Final = {"w": "avx512f", "b": "avx512dq", "d": "avx512bw", "q": "avx512bw"}

_SCALAR: Final = re.compile(
    r"v(?!p|broadcast|dbp)\w*(?:ss|sd|sh)|vu?comis[sdh]|vcvtt?s[sdh]2u?si[lq]?"
    r"|vcvtu?si2s[sdh][lq]?|vmov[dqw]|vmov[lh]p[sd]|vmov(?:lh|hl)ps|vpextr[bwdq]|vpinsr[bwdq]"
    r"|vextractps|vinsertps"
)
"""One element: the EVEX form needs no AVX512VL."""

_ONLY_EVEX: Final = re.compile(
    r"v\w*(?:32x2|64x2|32x4|64x4|32x8)|vmovdq[au](?:8|16|32|64)|vptern.*|vperm[it]2.*|vrndscale.*"
    r"|vgetexp.*|vgetmant.*|vscalef.*|vfixupimm.*|v(?:rcp|rsqrt)14.*|valign[dq]|vpr[ol][lr]v?[dq]"
    r"|vpsrav?q|vp(?:max|min)[su]q|vpabsq|vpmov(?:s|us)?(?:qb|qw|qd|db|dw)|vp?compress.*"
    r"|vp?expand.*|vpx?orn?[dq]|vpandn?[dq]|vp?scatter.*|vcvt\w*(?:qq|ud|us).*|vpmullq|vblendmp[sd]"
    r"|vpblendm.*|vshuf[fi].*|vpdp(?:busd|wssd)s?|vpmadd52.*|vfpclass.*|vrange.*|vreduce.*|v4.*"
)
"""No VEX form. objdump marks the VEX forms of vpdpbusd and its like with {vex}."""

_EVEX_FEATURES: Final = ("avx512_fp16", "avx512cd", "avx512vbmi", "avx512vbmi2", "avx512bitalg")
_HIGH: Final = re.compile(r"[xy]mm(?:1[6-9]|2[0-9]|3[01])|\{|%k[0-7]|zmm")
_NARROWING: Final = re.compile(r"vcvtt?(?:pd|u?qq)2(?:ps|u?dq)")
_FROM_GENERAL: Final = re.compile(r"\s*%[er]")


def _compiled(table: dict[str, str]) -> list[tuple[str, re.Pattern[str]]]:
    return [(feature, re.compile(pattern)) for feature, pattern in table.items()]


_RULES: Final = {
    name: _compiled(table)
    for name, table in {"legacy": _LEGACY, "common": _COMMON, "vex": _VEX, "evex": _EVEX}.items()
}


def classify(mnemonic: str, operands: str) -> Features:
    """The features that an instruction needs beyond baseline x86-64 (SSE2).

    Takes mnemonic and operands as objdump prints them, a {vex} or {evex} before the mnemonic.
    """
    has_evex_operand = _HIGH.search(operands) is not None
    width = next((width for width in "zy" if f"{width}mm" in operands), "x")
    if mnemonic.startswith(("vcvt", "vpb", "vb", "pextrw")):
        if mnemonic == "pextrw":  # the form that writes to memory came with SSE4.1
            return frozenset({"sse4.1"}) if "(" in operands else _NONE
        if _NARROWING.fullmatch(mnemonic) and "xmm" not in operands and width == "y":
            # What fills 256 bits was read from 512, a broadcast or not.
            width, has_evex_operand = "z", True
        elif mnemonic.startswith("vpbroadcast") and _FROM_GENERAL.match(operands):
            has_evex_operand = True
        elif mnemonic.startswith("vbroadcasts") and "(" not in operands and not has_evex_operand:
            return frozenset({"avx2"})  # from a register; AVX has those from memory
    return _classified(mnemonic, width, has_evex_operand)


@functools.cache
def _classified(mnemonic: str, width: str, has_evex_operand: bool) -> Features:
    prefix, _, name = mnemonic.rpartition(" ")
    if name[0] == "k" and re.fullmatch(_MASK, name):
        last = {"kaddw": "b", "ktestw": "b", "kunpckbw": "w"}.get(name, name[-1])
        return frozenset({_MASK_WIDTH[last]})
    if name[0] != "v":
        return _first("legacy", name) or _NONE
    is_evex = prefix != "{vex}" and (prefix == "{evex}" or has_evex_operand or _is_only_evex(name))
    return _evex(name, width) if is_evex else _vex(name, width)


def _is_only_evex(name: str) -> bool:
    if _first("vex", name) or _first("common", name) == frozenset({"f16c"}):
        return False
    found = _first("evex", name) or _NONE
    return bool(found & set(_EVEX_FEATURES)) or _ONLY_EVEX.fullmatch(name) is not None


def _vex(name: str, width: str) -> Features:
    if found := _first("common", name):
        (feature,) = found
        special = {"vnni": "avx_vnni", "ifma": "avx_ifma"}
        if feature in special:
            return frozenset({special[feature]})
        if width == "y" and feature in {"aes", "pclmul"}:
            return frozenset({{"aes": "vaes", "pclmul": "vpclmulqdq"}[feature]})
        return found | {"avx"} if feature in {"aes", "pclmul", "gfni"} else found
    if found := _first("vex", name):
        return found
    if width == "y" and _AVX2_IF_YMM.fullmatch(name) and not _STILL_AVX.fullmatch(name):
        return frozenset({"avx2"})
    return frozenset({"avx"})


def _evex(name: str, width: str) -> Features:
    is_scalar = _SCALAR.fullmatch(name) is not None
    length = _NONE if width == "z" or is_scalar else frozenset({"avx512vl"})
    special = {
        "vnni": {"avx512_vnni"},
        "ifma": {"avx512ifma"},
        "aes": {"avx512f", "vaes"},
        "pclmul": {"avx512f", "vpclmulqdq"},
        "gfni": {"avx512f", "gfni"},
    }
    for feature in _first("common", name) or ():
        return length | special.get(feature, {"avx512f"})
    return length | (_first("evex", name) or {"avx512f"})


def _first(table: str, name: str) -> Features | None:
    """The first feature of a table whose pattern is the mnemonic."""
    for feature, pattern in _RULES[table]:
        if pattern.fullmatch(name):
            return frozenset({feature})
    return None


_SSE: Final = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")

IMPLIED: Final = {
    "sse4.2": _SSE[:-2],
    "avx": _SSE,
    "avx2": ("avx",),
    "fma": ("avx",),
    "f16c": ("avx",),
    # gcc takes fma and f16c for parts of AVX-512 (its patterns say TARGET_F16C || TARGET_AVX512VL),
    # every CPU with AVX-512 has both, and assemblers encode their short forms with VEX.
    "avx512f": ("avx2", "fma", "f16c"),
    **dict.fromkeys(("avx512dq", "avx512bw", "avx512vl", "avx512cd"), ("avx512f",)),
    **dict.fromkeys(("avx512_vnni", "avx512ifma", "avx512vpopcntdq"), ("avx512f",)),
    **dict.fromkeys(
        ("avx512_bf16", "avx512vbmi", "avx512vbmi2", "avx512bitalg"), ("avx512bw", "avx512f")
    ),
    "avx512_fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "avx_vnni": ("avx2",),
}
"""What gcc enables together with a feature (GCC manual, x86 options; tested against a real gcc)."""

_FLAG_NAMES: Final = {
    "avx512bf16": "avx512_bf16",
    "avx512vnni": "avx512_vnni",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "sse4": "sse4.2",
}

_LEVELS: Final = {
    "x86-64": (),
    "x86-64-v2": _SSE,
    "x86-64-v3": ("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"),
}
_LEVEL_4: Final = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_MARCH: Final = {**_LEVELS, "x86-64-v4": (*_LEVELS["x86-64-v3"], *_LEVEL_4)}
_KNOWN: Final = {*_LEGACY, *IMPLIED, *_EVEX, *(n for names in IMPLIED.values() for n in names)}


def named_by(flag: str) -> tuple[str, ...] | None:
    """The features that one compiler flag names, or None for a flag that we do not know."""
    if flag.startswith("-march="):
        return _MARCH.get(flag.removeprefix("-march="))
    name = _FLAG_NAMES.get(flag.removeprefix("-m"), flag.removeprefix("-m"))
    return (name,) if flag.startswith("-m") and name in _KNOWN else None
