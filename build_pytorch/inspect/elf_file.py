"""ELF files: headers, sections and symbols, with limits, because anybody may have made them.

A file that is no complete library, contradicts itself or exceeds a limit raises ToolError with the
reason. Time and memory are bounded by the size of the file, not by what its headers claim.

ELF is read with struct: the 530,469 symbols of libtorch_cpu.so 2.13.0 take 0.3 s of CPU time, with
pyelftools 0.32 23 s, which doubles an inspection, with LIEF more than a minute and 0.9 GiB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise, starmap
from operator import attrgetter
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final, NamedTuple

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import open_named

# The fields that are used, of ELF64, little-endian, as of both platforms (System V ABI, chapter 4):
# machine, place of the sections, size of a row, number of rows, index of the section with names.
_HEADER: Final = Layout("<18xH20xQ10xHHH")
_SECTION: Final = Layout("<IIQQQQI20x")
_SYMBOL: Final = Layout("<IBBHQQ")
_MAGIC: Final = b"\x7fELF\x02\x01"
_PROGBITS, _SYMTAB, _STRTAB, _NOBITS, _DYNSYM = 1, 2, 3, 8, 11
_EXECUTABLE: Final = 4
_NOTYPE, _FUNC, _FILE, _IFUNC = 0, 2, 4, 10

_MOST_CODE: Final = 1 << 30
"""Bytes of code in a library; libtorch_cpu.so 2.15.0 has 287 MB."""
_MOST_SYMBOLS: Final = 3_000_000
"""Rows of a symbol table; libtorch_cpu.so 2.15.0 has 546,122."""
_MOST_NAMES: Final = 1 << 29
"""Bytes of a string table."""
_MOST_SHARED: Final = 4
"""Bytes of all symbol names, as a multiple of their string table: linkers merge equal endings."""


class Section(NamedTuple):
    """A row of the section header table; `name` is an offset in the section with names."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    """A FILE symbol, or the symbol of a function."""

    is_file: bool
    is_internal: bool
    address: int
    size: int
    name: str


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

    def named(self, name: bytes) -> Section | None:
        """Return the first section of a name that has content in the file."""
        for section in self.sections:
            end = self.section_names.find(b"\0", section.name, section.name + len(name) + 1)
            if self.section_names[section.name : end] == name and section.type != _NOBITS:
                return section
        return None

    @property
    def has_symtab(self) -> bool:
        """Whether it has symbols besides those for the dynamic linker."""
        return any(section.type == _SYMTAB for section in self.sections)

    def symbols(self) -> Iterator[Symbol]:
        """Yield the FILE symbols and the symbols of code. Raises ToolError and OSError."""
        executable = set(self.code())
        code = {number for number, each in enumerate(self.sections) if each in executable}
        with self.path.open("rb") as file:
            for table in filter(_is_symbol_table, self.sections):
                names, rows = _content(file, self.sections[table.link]), _content(file, table)
                left = _MOST_SHARED * len(names)
                whole = len(rows) // _SYMBOL.size * _SYMBOL.size
                for at, info, other, section, value, size in _SYMBOL.iter_unpack(rows[:whole]):
                    kind, is_local = info & 15, info >> 4 == 0
                    is_function = kind in {_NOTYPE, _FUNC, _IFUNC} and section in code
                    if not is_function and not (kind == _FILE and is_local):
                        continue
                    name = names[at : names.find(b"\0", at)].decode(errors="replace")
                    left -= len(name)
                    if left < 0:
                        raise ToolError(f"{self.path.name}: its symbol names overlap")
                    if name and not name.startswith("$"):  # $x, $d: mapping symbols of aarch64
                        # Hidden functions (STV_HIDDEN) are local too, and not of the last FILE.
                        is_internal = is_local and other & 3 == 0
                        plain = name.partition("@")[0]
                        yield Symbol(kind == _FILE, is_internal, value, size, plain)


def read_elf(path: Path) -> ElfFile:
    """Read the headers of an ELF file and check what they refer to.

    Raises ToolError with the reason if it is not a complete 64-bit little-endian library.
    """
    try:
        with os.fdopen(open_named(path), "rb") as file:
            return _read_headers(path, file, os.fstat(file.fileno()).st_size)
    except OSError as fault:
        raise ToolError(fault.strerror or "cannot be read") from None


def _read_headers(path: Path, file: BinaryIO, size: int) -> ElfFile:
    head = file.read(_HEADER.size)
    if not head.startswith(_MAGIC):
        raise ToolError("it begins with other bytes" if head else "it is empty")
    if len(head) < _HEADER.size:
        raise ToolError("its header is cut off")
    machine, place, row_size, count, index = _HEADER.unpack(head)
    if count and (row_size != _SECTION.size or place + count * row_size > size):
        raise ToolError("its tables are cut off")
    if not count:  # or more than 65,279, which no linker makes of a library
        raise ToolError("it has no section table")
    file.seek(place)
    rows = _SECTION.iter_unpack(file.read(count * row_size))
    sections = tuple(starmap(Section, rows))
    needed = max(section.offset + section.size * (section.type != _NOBITS) for section in sections)
    if needed > size:
        raise ToolError(f"{size} bytes of {needed}")
    if index >= count or sections[index].size > _MOST_NAMES:
        raise ToolError("its sections have no names")
    elf = ElfFile(path, machine, sections, _content(file, sections[index]))
    _check(elf)
    return elf


def _check(elf: ElfFile) -> None:
    """Refuse what would take more time or memory than the file's size suggests."""
    code = elf.code()
    if sum(section.size for section in code) > _MOST_CODE:
        raise ToolError(f"more than {_MOST_CODE >> 30} GiB of code")
    by_offset = sorted(code, key=attrgetter("offset"))
    if any(a.address + a.size > b.address for a, b in pairwise(code)) or any(
        a.offset + a.size > b.offset for a, b in pairwise(by_offset)
    ):
        raise ToolError("its code sections overlap")
    tables = list(filter(_is_symbol_table, elf.sections))
    if len({table.type for table in tables}) < len(tables):
        raise ToolError("more than one symbol table of a kind")
    for table in tables:
        names = elf.sections[table.link] if table.link < len(elf.sections) else None
        if names is None or names.type != _STRTAB:
            raise ToolError("its symbols have no names")
        if table.size > _MOST_SYMBOLS * _SYMBOL.size or names.size > _MOST_NAMES:
            raise ToolError(f"more than {_MOST_SYMBOLS} symbols")


def _is_symbol_table(section: Section) -> bool:
    return section.type in {_SYMTAB, _DYNSYM}


def _content(file: BinaryIO, section: Section) -> bytes:
    if section.type == _NOBITS:
        return b""
    file.seek(section.offset)
    return file.read(section.size)
