"""Headers and sections of ELF files, with limits, because anybody may have made them.

A file that is no complete library, contradicts itself or exceeds a limit raises ToolError with the
reason. Time and memory are bounded by the size of the file, not by what its headers claim.
"""

from __future__ import annotations

import os
from itertools import starmap
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final, NamedTuple

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import open_named

# The fields that are used, of ELF64, little-endian, as of both platforms (System V ABI, chapter 4):
# machine, place of the sections, size of a row, number of rows, index of the section with names.
_HEADER: Final = Layout("<18xH20xQ10xHHH")
_SECTION: Final = Layout("<II16xQQ24x")
_MAGIC: Final = b"\x7fELF\x02\x01"
_NOBITS: Final = 8
_MOST_NAMES: Final = 1 << 29
"""Bytes of the names of sections."""
MACHINES: Final = {"x86_64-linux": 62, "aarch64-linux": 183}
"""e_machine of each platform (System V ABI)."""


class Section(NamedTuple):
    """A row of the section header table; `name` is an offset in the section with names."""

    name: int
    type: int
    offset: int
    size: int


class ElfFile(Struct, frozen=True):
    """The headers of an ELF file."""

    path: Path
    machine: int
    sections: tuple[Section, ...]
    section_names: bytes

    def named(self, name: bytes) -> Section | None:
        """Return the first section of a name that has content in the file."""
        for section in self.sections:
            end = self.section_names.find(b"\0", section.name, section.name + len(name) + 1)
            if self.section_names[section.name : end] == name and section.type != _NOBITS:
                return section
        return None


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
    names = sections[index]
    file.seek(names.offset)
    content = b"" if names.type == _NOBITS else file.read(names.size)
    return ElfFile(path, machine, sections, content)
