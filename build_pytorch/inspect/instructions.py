"""Machine code: enough instructions of the variant's CPU ISA, and none above it in common code.

x86-64 is decoded by iced-x86, function by function: libtorch_cpu.so 2.15.0 (287 MB of code, 61
million instructions) takes 16 s of CPU time and 0.3 GiB; objdump and patterns for its text took
95 s and 1.1 GiB. aarch64 is disassembled by objdump and read line by line.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Any, Final

from iced_x86 import Decoder

from build_pytorch.base import process
from build_pytorch.base.console import counted
from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import code_owners, cpu_features, fatbin
from build_pytorch.inspect.code_owners import COMMON, FOREIGN, NO_NAME, UNKNOWN, CodeRange
from build_pytorch.inspect.cpu_features import Features, isa_features
from build_pytorch.inspect.elf_file import ElfFile, read_elf
from build_pytorch.inspect.part import TORCH, PartResult, Progress, Target
from build_pytorch.matrix.source_tables import KnownCompanion
from build_pytorch.matrix.tables import CpuIsa

_ONE_IN: Final = 10_000
"""Code compiled for an ISA uses it in more than one of so many functions. The official x86-64
wheel of 2.13.0, compiled without, has AVX in one common function of 232,365: a template that was
compiled in a kernel too, and the linker kept that copy."""

_UNDECIDED_ONE_IN: Final = {COMMON: 0, UNKNOWN: 10_000, FOREIGN: 1_000}
"""Up to one of so many functions may be above the ISA although nothing shows a check of the CPU.
The official x86-64 wheel of 2.13.0, which is good, has 14 functions of unattributed code and 156
of C above AVX2 after `strip -S`, of 347,768: one in 24,800 and one in 2,200."""

_VECTOR_FUNCTIONS: Final = 300
"""A library with so many common functions with the ISA's instructions has some of its highest
family; see tiers_of_each in cpu_features.toml."""
_MAIN: Final = TORCH.main[0]
_STANDARD_LIBRARY: Final = re.compile("_Z(?:GTt)?N?K?(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv1)")
"""Some compilers link parts of libstdc++ into each library, without our flags: 372 functions of
libtorch.so in the official wheel, which has no other code."""
_SECONDS: Final = 1800.0
"""Time limit of objdump; libtorch_cpu.so for aarch64 takes 48 s on two cores."""
_MEMORY: Final = 16 << 30
"""Limit of its address space; the same library takes 0.29 GiB."""
_SHOWN: Final = 5
_KEPT: Final = 2000
"""Functions above the ISA that are kept by name; all are counted."""
_WIDTH: Final = 100

_FIXES: Final = {
    COMMON: "this code runs on any CPU and ends with SIGILL on one of the variant's ISA: look at "
    "the flags in the recipe, or at the library it comes from",
    FOREIGN: "C code with flags of its own: find its library, and whether it checks the CPU first; "
    "if it does, add it to build_pytorch/inspect/code_owners.toml",
    UNKNOWN: "the library is stripped, and nothing names the flags of this code: inspect files "
    "that are not, or run `invoke smoke` on a CPU of this ISA",
}


class Scan:
    """The instructions of one library, counted by owner and by the features they need."""

    def __init__(self, elf: ElfFile, cpu: CpuIsa) -> None:
        self.name = elf.path.name
        self.isa = isa_features(cpu)
        self.has_device_code = elf.named(fatbin.SECTION) is not None
        self.code_bytes = sum(section.size for section in elf.code())
        self.depth, self.ranges = code_owners.code_ranges(elf)
        owners = [code.owner for code in self.ranges if code.name != NO_NAME]
        self.functions, self.common_functions = len(owners), owners.count(COMMON)
        self.instructions, self.seconds = 0, 0.0
        self.found: dict[str, Counter[Features]] = {}
        self.above: list[tuple[int, CodeRange, list[str]]] = []
        """Instructions above the ISA, the function that contains them, and their features."""
        self.functions_above: Counter[str] = Counter()
        self.holders: Counter[str] = Counter()
        """How many common functions contain a feature."""
        self.newer = self.older = 0
        """Common functions with instructions that replace older ones, and with the older ones."""

    def add(self, code: CodeRange, counts: Counter[Features], has_older: bool) -> None:
        """Count the instructions of one function that need more than the baseline."""
        features = frozenset[str]().union(*counts)
        if code.owner == COMMON:
            self.holders.update(features)
            if not _STANDARD_LIBRARY.match(code.name):
                is_newer = any(map(self.isa.replacing.fullmatch, features))
                self.newer += is_newer
                self.older += has_older and not is_newer
        if counts:
            self.found.setdefault(code.owner, Counter()).update(counts)
        high = [features for features in counts if not features <= self.isa.allowed]
        if high:
            self.functions_above[code.owner] += 1
            if len(self.above) < _KEPT:
                number = sum(counts[features] for features in high)
                self.above.append((number, code, sorted(frozenset[str]().union(*high))))

    def figures(self) -> dict[str, Any]:
        """Return the counts for the report."""
        return {
            "symbols": self.depth,
            "code_bytes": self.code_bytes,
            "instructions": self.instructions,
            "seconds": round(self.seconds, 1),
            "functions": self.functions,
            "common_functions": self.common_functions,
            "common_functions_with_newer_instructions": self.newer,
            "common_functions_with_replaced_instructions": self.older,
            "code": {
                owner: {
                    "functions_above": self.functions_above[owner],
                    "features": {"+".join(sorted(f)): n for f, n in counts.most_common()},
                }
                for owner, counts in sorted(self.found.items())
            },
        }


def scan(elf: ElfFile, cpu: CpuIsa, progress: Progress) -> Scan:
    """Count the instructions of a library above the baseline, and above a CPU ISA.

    Raises ToolError, BuildPytorchError for an unknown compiler flag.
    """
    begin, shown = monotonic(), -1
    result = Scan(elf, cpu)
    decode = _decoded_x86 if cpu.platform == "x86_64-linux" else _disassembled_arm
    for code, instructions, counts, has_older in decode(elf, result.ranges):
        result.instructions += instructions
        if counts or has_older:
            result.add(code, counts, has_older)
        if (done := (code.offset - result.ranges[0].offset) // 1_000_000) > shown:
            shown, total = done, result.code_bytes // 1_000_000
            progress(f"disassembling {result.name}, MB of code", done, total)
    result.seconds = monotonic() - begin
    return result


Counted = Iterator[tuple[CodeRange, int, Counter[Features], bool]]
"""A range of code, its instructions, how many of them need which features, and whether it has
instructions that a compiler with the features would have replaced."""


def _decoded_x86(elf: ElfFile, ranges: Sequence[CodeRange]) -> Counted:
    code_of = attrgetter("code")
    with elf.path.open("rb") as file:
        for code in ranges:
            data = os.pread(file.fileno(), code.end - code.start, code.offset)
            codes = Counter(map(code_of, Decoder(64, data)))
            counts, has_older = Counter[Features](), False
            for number, times in codes.items():
                features, is_older = cpu_features.x86_features(number)
                has_older |= is_older
                if features:
                    counts[features] += times
            yield code, codes.total(), counts, has_older


def _disassembled_arm(elf: ElfFile, ranges: Sequence[CodeRange]) -> Counted:
    if not ranges:
        return
    argv = [_objdump(elf.path), "-d", "--no-show-raw-insn", str(elf.path)]
    starts = [code.start for code in ranges]
    code, instructions, counts, has_older = ranges[0], 0, Counter[Features](), False
    with process.piped(argv, timeout=_SECONDS, memory=_MEMORY) as out:
        for line in out:
            instructions += b":\t" in line
            if (match := cpu_features.ARM_INSTRUCTION.match(line)) is None:
                continue
            address = int(match[1], 16)
            if not code.start <= address < code.end:
                yield code, instructions, counts, has_older
                code = ranges[max(0, bisect_right(starts, address) - 1)]
                instructions, counts, has_older = 0, Counter(), False
            if cpu_features.REPLACED_ARM.fullmatch(match[2]):
                has_older = True
            elif features := cpu_features.arm_features(match[2], match[3]):
                counts[features] += 1
    yield code, instructions, counts, has_older


def _objdump(library: Path) -> str:
    """Return an objdump on PATH that reads aarch64. Raises ToolError."""
    for name in ("aarch64-linux-gnu-objdump", "objdump"):
        if process.which(name):
            said = process.capture([name, "-f", str(library)], check=False)
            if said.code == 0 and "UNKNOWN" not in said.stdout:
                return name
    raise ToolError(
        f"no objdump here reads {library.name} of aarch64-linux; install GNU binutils for it "
        "(Debian: apt-get install binutils-aarch64-linux-gnu)"
    )


def check_instructions(target: Target, result: PartResult, progress: Progress) -> None:
    """Disassemble every library and compare the instructions with the CPU ISA."""
    cpu = target.variant.cpu
    files = [read_elf(library) for library in target.libraries()]
    result.passed = [elf.path.name for elf in files]
    machine = isa_features(cpu).table.machine
    for elf in files:
        if elf.machine != machine:
            found = f"an ELF file for machine {elf.machine}"
            result.error(elf.path.name, found, f"{machine}, which is {cpu.platform}")
    if result.findings:
        return
    scans = [scan(elf, cpu, progress) for elf in files]
    result.figures = {library.name: library.figures() for library in scans}
    expected = f"nothing above {cpu.title} except in code that checks the CPU first"
    undecided = []
    for library in scans:
        for owner in filter(library.functions_above.get, _FIXES):
            above = library.functions_above[owner]
            # Code without a name is in spans of any size, so their number says nothing.
            is_span = owner == UNKNOWN and library.depth == "exported"
            number = counted(above, "span" if is_span else "function")
            listing = _listing([row for row in library.above if row[1].owner == owner])
            found = f"{number} of {owner} with instructions above it: {listing}"
            report = result.error if owner == COMMON else result.warning
            report(library.name, found, expected, _FIXES[owner])
            if is_span or above * _UNDECIDED_ONE_IN[owner] > library.functions:
                share = number if is_span else f"{number} of {library.functions}"
                undecided.append(f"{library.name}: {share} above the ISA in {owner}")
    result.reason = "; ".join(undecided)
    _check_flags_arrived(target, scans, result)


def _listing(above: list[tuple[int, CodeRange, list[str]]]) -> str:
    """Return the functions with the most such instructions, demangled if c++filt is installed."""
    most = sorted(above, key=lambda row: -row[0])[:_SHOWN]
    names = [code.name for _, code, _ in most]
    if process.which("c++filt"):
        said = process.start(["c++filt"], stdin="\n".join(names)).finish(30).stdout.splitlines()
        names = said if len(said) == len(names) else names
    names = [name if len(name) <= _WIDTH else f"{name[: _WIDTH - 3]}..." for name in names]
    shown = [
        f"{name} ({', '.join(features)}: {number})"
        for name, (number, _, features) in zip(names, most, strict=True)
    ]
    return "; ".join(shown + ([f"and {len(above) - _SHOWN} more"] if len(above) > _SHOWN else []))


def _check_flags_arrived(target: Target, scans: Sequence[Scan], result: PartResult) -> None:
    """Find libraries whose code lacks instructions that the flags allow."""
    cpu, product = target.variant.cpu, target.product
    isa, expected = isa_features(cpu), f"code that was compiled with {' '.join(cpu.flags)}"
    for library in scans:
        if found := _not_compiled_for(library, product):
            fix = "the flags did not reach the compiler: look at CXXFLAGS in the build log"
            result.error(library.name, found, expected, fix)
    fix = "no action, if another variant with the same flags has the same result"
    present = set[str]().union(*(library.holders for library in scans))
    absent = [feature for feature in isa.named if feature not in present]
    if product is TORCH and absent and present & isa.family:
        found = f"no {', '.join(absent)} in the code compiled with the variant's flags"
        rare = "some; compilers rarely emit them without intrinsics, so this is only a warning"
        result.warning(_MAIN, found, rare, fix)
    for library in scans if isa.tier in isa.table.tiers_of_each else ():
        is_compiled = library.name != _MAIN and not library.has_device_code
        has_none = library.newer >= _VECTOR_FUNCTIONS and isa.family.isdisjoint(library.holders)
        if is_compiled and has_none:
            found = f"no {isa.tier} instructions in {library.newer} functions with vector registers"
            result.warning(library.name, found, expected, fix)


def _not_compiled_for(library: Scan, product: KnownCompanion) -> str:
    """Return what shows that the flags did not reach the code of a library, or "".

    A library may have little or no code that the flags change (libshm.so, libtorch.so). Host code
    of .cu files never gets the flags, and NCCL and MAGMA, which are linked statically, have their
    own; so of a library with device code only the total absence counts: in PyTorch, whose libraries
    are large, of one in 10,000 functions.
    """
    isa, functions = library.isa, library.common_functions
    of = f"of {functions} of {product.title}'s common code"
    most = max((library.holders[feature] for feature in isa.family), default=0)
    if library.name == _MAIN and isa.family and most * _ONE_IN < max(functions, 1):
        return f"{isa.tier} instructions in {counted(most, 'function')} {of}"
    if not any(map(isa.replacing.fullmatch, isa.allowed)):
        return ""
    if not library.has_device_code:
        is_wrong = library.older > library.newer
    elif product is TORCH:
        is_wrong = functions >= _ONE_IN and library.newer * _ONE_IN < functions
    else:
        is_wrong = library.older > 0 and not library.newer
    found = f"instructions that these flags replace in {counted(library.older, 'function')} {of}"
    return f"{found}, new ones in {library.newer}" if is_wrong else ""
