"""Whether the machine code is for the variant's CPU ISA: enough of it, and nothing above it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from build_pytorch.base import process
from build_pytorch.base.console import counted
from build_pytorch.inspect import disassembly, isa, symbols
from build_pytorch.inspect.inspection import Part, Proof, Target, Tell
from build_pytorch.inspect.owners import OWNERS
from build_pytorch.inspect.symbols import COMMON, FOREIGN, UNKNOWN
from build_pytorch.verify.check import Finding

_ONE_IN: Final = 10_000
"""Code that was compiled for an ISA shows it in more than one of so many functions. The official
x86-64 wheel of 2.13.0, compiled without, has AVX in one common function of 232,365: a template
that was compiled in a kernel as well, of which the linker kept the wrong copy."""

_OPEN_ONE_IN: Final = {UNKNOWN: 10_000, FOREIGN: 1_000}
"""Of so many functions of a library one may be above the ISA without that anybody can tell whether
it asks the CPU first. The official x86-64 wheel of 2.13.0, which is good, has 14 functions of
unattributed code and 156 of C above AVX2 after `strip -S`, of 347,768: one in 24,800 and one in
2,200. About twice that is let pass, as a warning."""

_SHOWN: Final = 5
_NAMES: Final = {COMMON: "common code", FOREIGN: "other C code", UNKNOWN: "unattributed code"}


def look(part: Part, target: Target, tell: Tell) -> Proof:
    """Disassemble every library and compare what it needs with what the ISA has."""
    cpu = target.variant.cpu
    libraries = target.libraries()
    wrong = [
        library for library in libraries if _machine(library) != isa.ISAS[cpu.platform].machine
    ]
    if wrong:
        problems = [
            Finding(
                path=library.name,
                found=f"an ELF file for machine {_machine(library)}",
                expected=f"{isa.ISAS[cpu.platform].machine}, which is {cpu.platform}",
            )
            for library in wrong
        ]
        return part.proof([library.name for library in libraries], problems, {})
    rules = isa.Rules(isa.ISAS[cpu.platform], isa.allowed(cpu))
    objdump = isa.objdump_for(cpu.platform, target.folder / "libtorch_cpu.so")
    meter = _Meter(libraries, tell)
    scans = []
    for library in libraries:
        meter.begin(library)
        scans.append(disassembly.scan(library, objdump, rules, meter.tell))
    problems = [*_above(cpu.title, scans), *_missing(target, scans)]
    names = [library.name for library in libraries]
    return part.proof(names, problems, _figures(scans), "; ".join(_undecided(scans)))


class _Meter:
    """How much of the code of all libraries is done."""

    def __init__(self, libraries: Sequence[Path], tell: Tell) -> None:
        spans = {library: symbols.code(library) for library in libraries}
        self._total = sum(span.end - span.start for span in spans.values() if span)
        self._done = 0
        self._name = ""
        self._tell = tell

    def begin(self, library: Path) -> None:
        """Go on to the next library."""
        self._name = library.name
        self.tell(0)

    def tell(self, more: int) -> None:
        """Take so many more bytes of code for done."""
        self._done += more
        what = f"disassembling {self._name}, MB of code"
        self._tell(what, self._done // 1_000_000, self._total // 1_000_000)


def _machine(library: Path) -> int:
    """e_machine in the header of an ELF file (System V ABI)."""
    with library.open("rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little")


def _above(title: str, scans: list[disassembly.Scan]) -> Iterator[Finding]:
    for scan in scans:
        for owner, what in _NAMES.items():
            if number := scan.tally.functions_above[owner]:
                is_nameless = owner == UNKNOWN and scan.depth == "exported"
                noun = "span" if is_nameless else "function"
                yield Finding(
                    path=scan.library.name,
                    found=f"{counted(number, noun)} of {what} with instructions above it: "
                    + _listing([above for above in scan.tally.above if above.owner == owner]),
                    expected=f"nothing above {title} but in code that asks the CPU first",
                    severity="error" if owner == COMMON else "warning",
                    fix=_MENDS[owner],
                )


def _undecided(scans: list[disassembly.Scan]) -> Iterator[str]:
    """What is above the ISA in so much code of unknown owners that nothing is proved.

    A span without a name can be of any size, so that a library with exported names alone may have
    none of them.
    """
    for scan in scans:
        for owner, one_in in _OPEN_ONE_IN.items():
            number = scan.tally.functions_above[owner]
            is_nameless = owner == UNKNOWN and scan.depth == "exported"
            if number and (is_nameless or number * one_in > scan.functions):
                noun = "span" if is_nameless else "function"
                of = "" if is_nameless else f" of {scan.functions}"
                yield (
                    f"{scan.library.name}: {counted(number, noun)}{of} above the ISA in "
                    f"{_NAMES[owner]}: neither proved nor disproved"
                )


_MENDS: Final = {
    COMMON: "these run on any CPU and end with SIGILL on one of the variant's ISA: look at the "
    "flags in the recipe, or which library they come from",
    FOREIGN: "C code that brings flags of its own: find the library it belongs to, and whether it "
    "asks the CPU first; if it does, add it to build_pytorch/prove/owners.py",
    UNKNOWN: "the library is stripped, and nothing in it tells what this was compiled with: prove "
    "files that are not, or run `invoke smoke` on a CPU of this ISA",
}


def _listing(above: list[disassembly.Above]) -> str:
    """The functions with the most such instructions, readable where c++filt is there."""
    most = sorted(above, key=lambda each: -each.instructions)[:_SHOWN]
    names = [each.function for each in most]
    if process.which("c++filt") and names:
        readable = process.start(["c++filt"], stdin="\n".join(names)).finish(30).stdout.splitlines()
        names = readable if len(readable) == len(names) else names
    shown = [
        f"{_short(name)} ({', '.join(each.features)}: {each.instructions})"
        for name, each in zip(names, most, strict=True)
    ]
    more = len(above) - len(most)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _short(name: str, width: int = 100) -> str:
    return name if len(name) <= width else f"{name[: width - 3]}..."


def _missing(target: Target, scans: list[disassembly.Scan]) -> Iterator[Finding]:
    """What the flags promise and the code compiled with them does not hold."""
    cpu = target.variant.cpu
    tier, family = isa.wanted(cpu)
    tally = disassembly.merged(scans)
    functions = sum(scan.common_functions for scan in scans)
    holding = max((tally.holders[COMMON, feature] for feature in family), default=0)
    if family and holding * _ONE_IN < max(functions, 1):
        share = f"{counted(holding, 'function')} of {functions}"
        yield Finding(
            path="libtorch_cpu.so",
            found=f"{tier} instructions in {share} of PyTorch's common code",
            expected=f"code that was compiled with {' '.join(cpu.flags)}",
            fix="the flags did not reach the compiler: look at CXXFLAGS in the build log",
        )
        return
    absent = [
        feature for feature in dict.fromkeys(isa.named(cpu)) if not tally.holders[COMMON, feature]
    ]
    if absent:
        yield Finding(
            path="libtorch_cpu.so",
            found=f"no {', '.join(absent)} in the code compiled with the variant's flags",
            expected="some; compilers use it for little but intrinsics, so this proves nothing",
            severity="warning",
            fix="nothing, where another variant with the same flags looks the same",
        )


def _figures(scans: list[disassembly.Scan]) -> dict[str, Any]:
    return {
        scan.library.name: {
            "symbols": scan.depth,
            "code_bytes": scan.size,
            "instructions": scan.tally.instructions,
            "seconds": round(scan.seconds, 1),
            "functions": scan.functions,
            "common_functions": scan.common_functions,
            "code": {
                _name(owner): {
                    "functions_above": scan.tally.functions_above[owner],
                    "features": _by_feature(scan, owner),
                }
                for owner in sorted(scan.tally.found)
            },
        }
        for scan in scans
    }


def _name(owner: int) -> str:
    return OWNERS[owner].name if owner < COMMON else _NAMES[owner]


def _by_feature(scan: disassembly.Scan, owner: int) -> dict[str, int]:
    """Instructions by the features that they need together."""
    counts = scan.tally.found[owner]
    return {"+".join(sorted(features)): number for features, number in counts.most_common()}
