"""The code of a library by function, and whose it is.

Owners are bodies of code that may hold instructions above the CPU ISA of a variant, because they
check the CPU at run time; code_owners.toml lists them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.inspect.elf_file import ElfFile

Depth = Literal["files", "names", "exported"]
"""files: .symtab with FILE symbols, which name the source of each local function.
names: .symtab without them (strip -S, as Nix does). Most of ATen's kernels have internal linkage
and no capability in their names, but one copy for each capability; of other functions with
internal linkage the compiler flags are unknown.
exported: .dynsym only (strip). Code outside exported functions has no name."""


class Owner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of code_owners.toml, which explains the fields."""

    hints: tuple[str, ...]
    symbol: str
    file: str = "(?!)"
    is_block: bool = False


_TABLE: Final = Path(__file__).with_suffix(".toml")
OWNERS: Final = msgspec.toml.decode(_TABLE.read_bytes(), type=dict[str, Owner])
ATEN: Final = "ATen kernels"
COMMON: Final = "common code"
"""C++ without an owner: compiled with the variant's flags."""
FOREIGN: Final = "other C code"
"""A C or Fortran function without an owner."""
UNKNOWN: Final = "unattributed code"
NO_NAME: Final = "(no name)"

_BLOCKS: Final = {name for name, owner in OWNERS.items() if owner.is_block}
_MOST_BETWEEN: Final = 20
"""A kernel that only one capability has lies among others of its source file. All 25 functions
with AVX-512 that nothing else attributed in an AVX2 build of 2.6.0 did, in groups of up to 10."""

_RANKS: Final = {name: rank for rank, name in enumerate((*OWNERS, COMMON, FOREIGN))}
"""Of several symbols at one address the one with the lowest rank determines the owner."""
_MOST_FILE_NAME: Final = 255
_CLONE: Final = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv|clone|_omp_fn)\b.*$")
_KERNEL: Final = re.compile("2at6native|_GLOBAL__N_1")
"""ATen's namespace, or an anonymous one (Itanium C++ ABI, as gcc and clang mangle it)."""


class CodeRange(NamedTuple):
    """Code of one function, or code without a name. `name` is mangled, `offset` in the file."""

    start: int
    end: int
    offset: int
    owner: str
    name: str


class _Function(NamedTuple):
    start: int
    end: int
    owner: str
    name: str


def owner_of(symbol: str) -> str | None:
    """Return the owner of a function by its mangled name."""
    for name, owner in OWNERS.items():
        for hint in owner.hints:  # any() takes three times as long
            if hint in symbol and re.search(owner.symbol, symbol):
                return name
    return None


def code_ranges(elf: ElfFile) -> tuple[Depth, list[CodeRange]]:
    """Return what the symbols name, and all code divided at its functions, by address.

    Raises OSError. Memory: about 0.5 KiB for each function.
    """
    depth, functions = _functions(elf)
    ranges = []
    for section in elf.code():
        first, end = section.address, section.address + section.size
        inside = functions[bisect_left(functions, (first,)) : bisect_left(functions, (end,))]
        marks = [(first, UNKNOWN, NO_NAME)]
        for function, following in pairwise([*inside, _Function(end, end, "", "")]):
            marks.append((function.start, function.owner, function.name))
            if depth == "exported" and function.end < following.start:
                marks.append((function.end, UNKNOWN, NO_NAME))
        for (start, owner, name), (stop, *_) in pairwise([*marks, (end, "", "")]):
            if start < stop:
                offset = section.offset + start - first
                ranges.append(CodeRange(start, stop, offset, owner, name))
    return depth, ranges


def _functions(elf: ElfFile) -> tuple[Depth, list[_Function]]:
    """Return what the symbols name, and the functions by address."""
    found: dict[int, _Function] = {}
    internal: list[tuple[int, str]] = []
    has_files, source_owner = False, None
    for is_file, is_internal, start, size, name in elf.symbols():
        if is_file:
            has_files = True
            base = name[-_MOST_FILE_NAME:]
            source_owner = next((o for o in OWNERS if re.search(OWNERS[o].file, base)), None)
            continue
        owner = owner_of(name) or (source_owner if is_internal else None)
        if owner is None:
            owner = COMMON if name.startswith("_Z") else FOREIGN
            if is_internal and owner == COMMON:
                internal.append((start, name))
        function, before = _Function(start, start + size, owner, name), found.get(start)
        if before is not None:
            end = max(function.end, before.end)
            function = min(before, function, key=lambda row: _RANKS[row.owner])._replace(end=end)
        found[start] = function
    depth: Depth = "files" if has_files else "names" if elf.has_symtab else "exported"
    if depth == "names":
        copies = Counter(name for _, name in internal)
        for start, name in internal:
            if found[start].owner == COMMON:
                has_copies = copies[name] > 1 or copies[_CLONE.sub("", name)] > 1
                owner = ATEN if has_copies and _KERNEL.search(name) else UNKNOWN
                found[start] = found[start]._replace(owner=owner, name=name)
    functions = sorted(found.values())
    _assign_between(functions, FOREIGN, lambda owner, _: owner in _BLOCKS)
    if depth == "names":
        _assign_between(functions, UNKNOWN, lambda owner, n: owner == ATEN and n <= _MOST_BETWEEN)
    return depth, functions


def _assign_between(
    functions: list[_Function], owner: str, may_have: Callable[[str, int], bool]
) -> None:
    """Give another owner what one has between two functions of that other.

    `may_have`: whether it may have so many functions between two of its own.
    """
    before, first = "", 0
    for index, function in enumerate(functions):
        if function.owner == owner:
            continue
        if function.owner == before and may_have(before, index - first):
            for number in range(first, index):
                functions[number] = functions[number]._replace(owner=before)
        before, first = function.owner, index + 1
