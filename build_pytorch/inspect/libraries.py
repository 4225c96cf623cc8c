"""ELF facts of built libraries: completeness, sections, and the owner of each range of code.

Owners are bodies of code that may hold instructions above the CPU ISA of a variant, because they
check the CPU at run time; code_owners.toml lists them.

ELF is read with struct: the 546,122 symbols of libtorch_cpu.so 2.15.0 take 0.3 s of CPU time,
with pyelftools 13 s, with LIEF 83 s and 0.9 GiB of memory.
"""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.part import Findings, PartRun, error, has_libtorch

# The fields that are used, of ELF64, little-endian, as of both platforms (System V ABI, chapters
# 4 and 5): machine, place of the segments and of the sections, size of a row and number of rows of
# the segments, of the sections, index of the section with names; offset and size; see Section.
_HEADER: Final = Layout("<18xH12xQQ6xHHHHH")
_SEGMENT: Final = Layout("<8xQ16xQ16x")
_SECTION: Final = Layout("<4xIQQQQI20x")
_SYMBOL: Final = Layout("<IBBHQQ")
_MAGIC: Final = b"\x7fELF\x02\x01"
_PROGBITS, _SYMTAB, _NOBITS, _DYNSYM = 1, 2, 8, 11
_EXECUTABLE: Final = 4
_NOTYPE, _FUNC, _FILE, _IFUNC = 0, 2, 4, 10

Depth = Literal["files", "names", "exported"]
"""files: .symtab with FILE symbols, which name the source of each local function.
names: .symtab without them (strip -S, as Nix does). Most of ATen's kernels have internal linkage
and no capability in their names, but one copy for each capability; of other functions with
internal linkage the compiler flags are unknown.
exported: .dynsym only (strip). Code outside exported functions has no name."""


class Section(NamedTuple):
    """A row of the section header table."""

    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class ElfFile(Struct, frozen=True):
    """The headers of an ELF file."""

    path: Path
    machine: int
    sections: tuple[Section, ...]
    section_names: bytes

    def code(self) -> list[Section]:
        """Return the sections that hold instructions, by address."""
        found = (s for s in self.sections if s.type == _PROGBITS and s.flags & _EXECUTABLE)
        return sorted((s for s in found if s.size), key=attrgetter("address"))


def read_elf(path: Path) -> ElfFile:
    """Read the headers of an ELF file and check that nothing they refer to is cut off.

    Raises ToolError with the reason if it is not a complete 64-bit little-endian ELF file.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a FIFO would wait for a writer
            raise ToolError("not a regular file")
        with path.open("rb") as file:
            return _read_headers(path, file, status.st_size)
    except OSError as fault:
        raise ToolError(fault.strerror or "cannot be read") from None


def _read_headers(path: Path, file: BinaryIO, size: int) -> ElfFile:
    head = file.read(_HEADER.size)
    if not head.startswith(_MAGIC):
        raise ToolError("it begins with other bytes" if head else "it is empty")
    if len(head) < _HEADER.size:
        raise ToolError("its header is cut off")
    machine, *places, segment_row, segments, section_row, count, index = _HEADER.unpack(head)

    def table(layout: Layout, at: int, count: int, row_size: int) -> list[tuple[int, ...]]:
        if count and (row_size != layout.size or at + count * layout.size > size):
            raise ToolError("its tables are cut off")
        file.seek(at if count else 0)
        return list(layout.iter_unpack(file.read(count * layout.size)))

    ranges = table(_SEGMENT, places[0], segments, segment_row)
    sections = tuple(Section(*row) for row in table(_SECTION, places[1], count, section_row))
    ranges += [(section.offset, section.size) for section in sections if section.type != _NOBITS]
    if (needed := max(map(sum, ranges), default=0)) > size:
        raise ToolError(f"{size} bytes of {needed}")
    names = _content(file, sections[index]) if index < len(sections) else b""
    return ElfFile(path, machine, sections, names)


def _content(file: BinaryIO, section: Section) -> bytes:
    if section.type == _NOBITS:
        return b""
    file.seek(section.offset)
    return file.read(section.size)


def look(run: PartRun) -> Findings:
    """Find the libraries that are not complete ELF files. Only headers are read."""
    run.progress("libraries", 0, 0)
    libraries, folder = run.target.libraries(), run.target.folder
    run.subjects += [library.name for library in libraries]
    if not has_libtorch(folder):
        found = f"not in {folder}, nor in the closure"
        yield error("libtorch_cpu.so", found, "PyTorch's library")
    for library in libraries:
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
        rows = [row for row in functions if first <= row[0] < end]
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
    for kind, is_internal, start, size, name in _symbols(elf):
        if kind == _FILE:
            has_files = True
            source_owner = next((o for o in OWNERS if re.search(OWNERS[o].file, name)), None)
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
    if not has_files and any(section.type == _SYMTAB for section in elf.sections):
        depth = "names"
        copies = Counter(name for _, name in internal)
        for start, name in internal:
            if found[start][2] == COMMON:
                has_copies = copies[name] > 1 or copies[_CLONE.sub("", name)] > 1
                owner = ATEN if has_copies and _KERNEL.search(name) else UNKNOWN
                found[start] = (*found[start][:2], owner, name)
    return depth, _with_blocks(sorted(found.values()))


def _symbols(elf: ElfFile) -> Iterator[tuple[int, bool, int, int, str]]:
    """Yield type, internal linkage, address, size and name of FILE symbols and symbols of code."""
    code = {number for number, section in enumerate(elf.sections) if section in elf.code()}
    with elf.path.open("rb") as file:
        for table in elf.sections:
            if table.type not in {_SYMTAB, _DYNSYM} or table.link >= len(elf.sections):
                continue
            names, rows = _content(file, elf.sections[table.link]), _content(file, table)
            whole = len(rows) // _SYMBOL.size * _SYMBOL.size
            for at, info, other, section, value, size in _SYMBOL.iter_unpack(rows[:whole]):
                kind, is_local = info & 15, info >> 4 == 0
                is_function = kind in {_NOTYPE, _FUNC, _IFUNC} and section in code
                if not is_function and not (kind == _FILE and is_local):
                    continue
                name = names[at : names.find(b"\0", at)].decode(errors="replace")
                if name and not name.startswith("$"):  # $x, $d: mapping symbols of aarch64
                    # Hidden functions (STV_HIDDEN) are local too, and not of the last FILE.
                    yield kind, is_local and other & 3 == 0, value, size, name.partition("@")[0]


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
