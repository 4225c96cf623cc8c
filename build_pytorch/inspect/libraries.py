"""Built libraries: whether they are complete, and the owner of each range of their code.

Owners are bodies of code that may hold instructions above the CPU ISA of a variant, because they
check the CPU at run time; code_owners.toml lists them.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import ElfFile, read_elf
from build_pytorch.inspect.part import Findings, PartRun, error
from build_pytorch.nix import store

Depth = Literal["files", "names", "exported"]
"""files: .symtab with FILE symbols, which name the source of each local function.
names: .symtab without them (strip -S, as Nix does). Most of ATen's kernels have internal linkage
and no capability in their names, but one copy for each capability; of other functions with
internal linkage the compiler flags are unknown.
exported: .dynsym only (strip). Code outside exported functions has no name."""


def look(run: PartRun) -> Findings:
    """Find the libraries that are not complete ELF files. Only headers are read."""
    run.progress("libraries", 0, 0)
    libraries, folder = run.target.libraries(), run.target.folder
    run.subjects += [library.name for library in libraries]
    product = run.target.product
    if not product.main_of(folder):
        found = f"not in {folder}, nor in the closure"
        yield error(product.main[0], found, f"{product.title}'s library")
    for library in libraries:
        place = os.path.realpath(library)
        if run.target.artefact and not place.startswith(f"{store.folder()}/"):
            found = f"a link that leads out of the Nix store: {place}"
            yield error(library.name, found, "a file of the result")
            continue
        try:
            read_elf(library)
        except ToolError as fault:
            found = f"not a complete ELF file: {fault}"
            yield error(library.name, found, "a shared library of 64 bits, little-endian")


class Owner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body of code that selects its functions at run time: a table of code_owners.toml."""

    hints: tuple[str, ...]
    symbol: str
    file: str = "(?!)"
    is_block: bool = False


_TABLE: Final = Path(__file__).with_name("code_owners.toml")
OWNERS: Final = msgspec.toml.decode(_TABLE.read_bytes(), type=dict[str, Owner])
ATEN: Final = "ATen kernels"
COMMON: Final = "common code"
"""C++ without an owner: compiled with the variant's flags."""
FOREIGN: Final = "other C code"
"""A C or Fortran function without an owner."""
UNKNOWN: Final = "unattributed code"
NO_NAME: Final = "(no name)"

_RANKS: Final = {name: rank for rank, name in enumerate((*OWNERS, COMMON, FOREIGN))}
"""Of several symbols at one address the one with the lowest rank determines the owner."""
_BLOCKS: Final = {name for name, owner in OWNERS.items() if owner.is_block}
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
        rows = functions[bisect_left(functions, (first,)) : bisect_left(functions, (end,))]
        marks = [(first, UNKNOWN, NO_NAME)]
        for index, (start, last, owner, name) in enumerate(rows):
            marks.append((start, owner, name))
            following = rows[index + 1][0] if index + 1 < len(rows) else end
            if depth == "exported" and last < following:
                marks.append((last, UNKNOWN, NO_NAME))
        for (start, owner, name), (stop, *_) in pairwise([*marks, (end, "", "")]):
            if start < stop:
                offset = section.offset + start - first
                ranges.append(CodeRange(start, stop, offset, owner, name))
    return depth, ranges


def _functions(elf: ElfFile) -> tuple[Depth, list[tuple[int, int, str, str]]]:
    """Return what the symbols name, and start, end, owner and name of each function, by address."""
    found: dict[int, tuple[int, int, str, str]] = {}
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
        row = (start, start + size, owner, name)
        if (before := found.get(start)) is not None:
            best = min(before, row, key=lambda r: _RANKS[r[2]])
            row = (start, max(row[1], before[1]), *best[2:])
        found[start] = row
    depth: Depth = "files" if has_files else "exported"
    if not has_files and elf.has_symtab:
        depth = "names"
        copies = Counter(name for _, name in internal)
        for start, name in internal:
            if found[start][2] == COMMON:
                has_copies = copies[name] > 1 or copies[_CLONE.sub("", name)] > 1
                owner = ATEN if has_copies and _KERNEL.search(name) else UNKNOWN
                found[start] = (*found[start][:2], owner, name)
    return depth, _with_blocks(sorted(found.values()))


def _with_blocks(rows: list[tuple[int, int, str, str]]) -> list[tuple[int, int, str, str]]:
    """Assign the C functions between two functions of a block to its owner."""
    before, first = "", 0
    for index, row in enumerate(rows):
        if row[2] == FOREIGN:
            continue
        if row[2] == before and before in _BLOCKS:
            for number in range(first, index):
                rows[number] = (*rows[number][:2], before, rows[number][3])
        before, first = row[2], index + 1
    return rows
