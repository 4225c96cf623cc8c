"""Sections of ELF files, with limits, because anybody may have made them.

A file that is no complete library, contradicts itself or exceeds a limit raises ToolError with the
reason. Time and memory are bounded by the size of the file, not by what its headers claim.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import open_named

# The fields that are used, of ELF64, little-endian, as of both platforms (System V ABI, chapter 4):
# machine, place of the sections, size of a row, number of rows, index of the section with names;
# and of a row: name, type, offset, size.
_HEADER: Final = Layout("<18xH20xQ10xHHH")
_SECTION: Final = Layout("<II16xQQ24x")
_MAGIC: Final = b"\x7fELF\x02\x01"
_NOBITS: Final = 8
_MOST_NAMES: Final = 1 << 24
_LONGEST_NAME: Final = 256
MACHINES: Final = {"x86_64-linux": 62, "aarch64-linux": 183}
"""e_machine of each platform (System V ABI)."""


class ElfFile(Struct, frozen=True):
    """A library: its machine, its size, and offset and size of each section in the file."""

    path: Path
    machine: int
    size: int
    sections: dict[bytes, tuple[int, int]]


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
    rows = list(_SECTION.iter_unpack(file.read(count * row_size)))
    rows = [(name, kind, at, 0 if kind == _NOBITS else length) for name, kind, at, length in rows]
    needed = max(at + length for _, _, at, length in rows)
    if needed > size:
        raise ToolError(f"{size} bytes of {needed}")
    if index >= count or not 0 < rows[index][3] <= _MOST_NAMES:
        raise ToolError("its sections have no names")
    file.seek(rows[index][2])
    names = file.read(rows[index][3])
    sections: dict[bytes, tuple[int, int]] = {}
    for start, kind, at, length in rows:
        if kind != _NOBITS:
            name = names[start : start + _LONGEST_NAME].partition(b"\0")[0]
            sections.setdefault(name, (at, length))
    return ElfFile(path, machine, size, sections)
