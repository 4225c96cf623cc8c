"""CPU features: which ones compiler flags allow, and which ones an instruction needs.

x86-64: iced-x86 names the CPUID features of each instruction; features have its names in lower
case. aarch64: from the text of GNU objdump; the sets are the FEAT_ of each instruction in the Arm
Architecture Reference Manual (DDI 0487), without hints, which CPUs that lack them ignore. The
tables are in cpu_features.toml.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.tables import CpuIsa

try:
    from iced_x86 import Code, CpuidFeature, EncodingKind, Instruction, OpCodeOperandKind
except ImportError:  # no wheel for ARM on macOS
    raise ToolError("iced-x86: not installed; pip install iced-x86 (it may need Rust)") from None

Features = frozenset[str]

_ENABLES_NOTHING: Final = re.compile(
    r"(?!-m).*|-m(?:no-.+|tune=.+|cmodel=.+|64|fpmath=.+|abi=.+|prefer-vector-width=.+"
    r"|tls-dialect=.+|branch-protection=.+|outline-atomics|omit-leaf-frame-pointer|stackrealign"
    r"|indirect-branch.*|function-return=.+|fentry|harden-sls=.+)"
)
"""Compiler flags that enable no instructions (GCC manual, x86 options and AArch64 options)."""


class InstructionSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The instruction set of a platform: a table of cpu_features.toml."""

    machine: int
    tiers: dict[str, str]
    replacing: str
    tiers_of_each: tuple[str, ...] = ()
    flags: dict[str, tuple[str, ...]]
    implied: dict[str, tuple[str, ...]]
    mnemonics: dict[str, tuple[str, ...]] = {}
    vector_mnemonics: dict[str, tuple[str, ...]] = {}

    def features_of(self, flag: str) -> tuple[str, ...] | None:
        """Return the features that a compiler flag names, None for an unknown flag."""
        if _ENABLES_NOTHING.fullmatch(flag):
            return ()
        base, *extensions = flag.split("+")
        if base in self.flags and {*self.mnemonics, *self.implied, "fp16"}.issuperset(extensions):
            return (*self.flags[base], *extensions)
        # -mavx512bf16, -msse4.1, -mamx-tile name a feature.
        feature = _X86_FEATURES.get(re.sub("(?!^)[-._]", "", flag))
        return (feature,) if feature else None


class IsaFeatures(Struct, frozen=True, kw_only=True):
    """What the flags of a CPU ISA mean for the code that is compiled with them."""

    table: InstructionSet
    named: tuple[str, ...]
    """The features that the flags name."""
    allowed: Features
    """Every feature that the compiler may use."""
    replacing: re.Pattern[str]
    """Features whose instructions replace older ones."""
    tier: str
    """The highest family of features that is allowed, such as AVX-512; empty: none."""
    family: Features
    """The allowed features of that family."""


INSTRUCTION_SETS: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, InstructionSet]
)
_ARM: Final = INSTRUCTION_SETS["aarch64-linux"]

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
_X86_FEATURES: Final = {f"-m{name.replace('_', '')}": name for name in _CPUID.values()}
_IMPLY_AVX512F: Final = re.compile("avx512_.*|avx512(?:dq|bw|cd)")
_TZCNT: Final = {getattr(Code, f"TZCNT_R{bits}_RM{bits}") for bits in (16, 32, 64)}
"""CPUs without BMI run it as bsf, and gcc emits it for baseline x86-64."""


_XMM: Final = {
    number
    for name, number in vars(OpCodeOperandKind).items()
    if isinstance(number, int) and name.startswith("XMM")
}


@functools.cache
def x86_features(code: int) -> tuple[Features, bool]:
    """Return the features beyond baseline x86-64 (SSE2) that an instruction needs.

    And whether a compiler with -mavx emits another one instead: it is SSE without a VEX prefix.
    `code` is iced-x86's Code. AVX512F is left out where another feature implies it.
    """
    instruction = Instruction()
    instruction.code = code  # type: ignore[assignment] # typed as an enum, an int at run time
    found = {_CPUID[number] for number in instruction.cpuid_features() if number in _CPUID}
    if code in _TZCNT:
        found.clear()
    if any(map(_IMPLY_AVX512F.fullmatch, found)):
        found.discard("avx512f")
    encoded = instruction.op_code()
    is_legacy = encoded.encoding == EncodingKind.LEGACY
    return frozenset(found), is_legacy and not _XMM.isdisjoint(encoded.op_kinds())


# --- aarch64 ---

_BY_NAME: Final = {
    feature: re.compile("|".join(patterns))
    for feature, patterns in (_ARM.mnemonics | _ARM.vector_mnemonics).items()
}
ARM_INSTRUCTION: Final = re.compile(
    r" *([0-9a-f]+):\t(?=("
    rf"(?:{'|'.join(_BY_NAME[feature].pattern for feature in _ARM.mnemonics)})(?=[\t\n])"
    r"|(?:ld|st)[al]?x[rp][bh]?(?=\t)|bl?(?=\t[^\n<]*<__aarch64_(?:cas|swp|ld))"
    r"|[a-z][a-z0-9]*(?=\t[^\n<]*?\b[zp][0-9][^\n<]*)"
    r"|(?:f[a-z0-9]+|[su]cvtf)(?=\t[^\n<]*(?:\bh[0-9]|\.[48]h)[^\n<]*))([^\n<]*))".encode()
)
"""Address, mnemonic and operands, of instructions that may need more than baseline ARMv8-A."""
REPLACED_ARM: Final = re.compile(rb"(?:ld|st)[al]?x[rp][bh]?|bl?")
"""Of these mnemonics those that a compiler with ARMv8.1 does not emit: atomic operations as loops,
or as calls of libgcc."""
_HALF_BASELINE: Final = re.compile(r"fcvt[nl]?2?")
"""Conversions of half precision that ARMv8.0 has."""


@functools.cache
def _matching_arm_features(mnemonic: str) -> Features:
    return frozenset(name for name, pattern in _BY_NAME.items() if pattern.fullmatch(mnemonic))


@functools.lru_cache(maxsize=1 << 16)
def arm_features(mnemonic: bytes, text: bytes) -> Features:
    """Return the features beyond baseline ARMv8-A that an instruction needs.

    Takes mnemonic and operands as objdump prints them.
    """
    name, operands = mnemonic.decode(), text.decode("ascii", "replace")
    matching = _matching_arm_features(name)
    found = matching.intersection(_ARM.mnemonics)
    if re.search(r"\b(?:z[0-9]+\.|z[0-9]+[,}]|p[0-9]+[./,])", operands):
        is_unpredicated = re.search(r"\bp[0-9]+/", operands) is None
        is_new = "sve2" in matching or (is_unpredicated and "sve2_without_predicate" in matching)
        return found & {"bf16", "i8mm", "sme"} | {"sve2" if is_new else "sve"}
    if found == {"sve"} and "sve2" in matching:  # whilegt
        return frozenset({"sve2"})
    is_float = name.startswith("f") or name in {"scvtf", "ucvtf"}
    is_half = is_float and re.search(r"\bh[0-9]|\.[48]h", operands)
    if is_half and not found & {"bf16", "fp16fml"} and not _HALF_BASELINE.fullmatch(name):
        return found | {"fp16"}
    return found


@functools.cache
def isa_features(cpu: CpuIsa) -> IsaFeatures:
    """Return what the flags of a CPU ISA mean. Raises BuildPytorchError for an unknown flag."""
    table = INSTRUCTION_SETS[cpu.platform]
    named: list[str] = []
    for flag in cpu.flags:
        features = table.features_of(flag)
        if features is None:
            raise BuildPytorchError(
                f"matrix.toml: {cpu.title}: what {flag} allows is not known to the inspection; "
                "add it to build_pytorch/inspect/cpu_features.toml"
            )
        named += features
    allowed = list(dict.fromkeys(named))
    for feature in allowed:  # grows in the loop
        allowed += [new for new in table.implied.get(feature, ()) if new not in allowed]
    families = {
        tier: frozenset(name for name in allowed if re.fullmatch(pattern, name))
        for tier, pattern in table.tiers.items()
    }
    tier = next(filter(families.get, families), "")
    return IsaFeatures(
        table=table,
        named=tuple(dict.fromkeys(named)),
        allowed=frozenset(allowed),
        replacing=re.compile(table.replacing),
        tier=tier,
        family=families.get(tier, frozenset()),
    )


def enables_more(flag: str, cpu: CpuIsa) -> bool:
    """Whether a compiler flag enables instructions above a CPU ISA, or is unknown."""
    names = INSTRUCTION_SETS[cpu.platform].features_of(flag)
    is_above = names is None or not isa_features(cpu).allowed.issuperset(names)
    return flag not in cpu.flags and (is_above or flag.startswith("-march="))
