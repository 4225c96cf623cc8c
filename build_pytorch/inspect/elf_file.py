"""Libraries: the sections of ELF files, and the device code in them.

Anybody may have made them. A file that is no complete library, contradicts itself or exceeds a
limit raises ToolError with the reason. Time and memory are bounded by the size of the file, not by
what its headers claim. Only headers are read, and no file is mapped: that would count as memory.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import open_regular

# The fields that are used, of ELF64, little-endian, as of both platforms (System V ABI, chapter 4):
# machine, place of the sections, size of a row, number of rows, index of the section with names;
# and of a row: name, type, offset, size.
_HEADER: Final = Layout("<18xH20xQ10xHHH")
_ROW: Final = Layout("<II16xQQ24x")
_MAGIC: Final = b"\x7fELF\x02\x01"
_NOBITS: Final = 8
_LONGEST_NAME: Final = 256
_BEYOND: Final = 1 << 60  #: an offset that no file has
_MOST_TEXT: Final = 1 << 26  #: bytes of a section of texts; a wheel has at most 19 MB (2.11.0)
MACHINES: Final = {"x86_64-linux": 62, "aarch64-linux": 183}  #: e_machine (System V ABI)
DEVICE_CODE: Final = b".nv_fatbin"
"""Device code that can run; __nv_relfatbin holds what the device linker took it from.

The layout is that of fatbinary_section.h and fatbinary.h of the CUDA toolkit and the same from CUDA
12.4 to 13.2: the objects were compared with `cuobjdump --list-elf` on PyPI's torch 2.11.0+cu130 and
2.15.0+cu132 and Debian's libtorch-cuda-2.6 (2026-11-21).
"""
# An object: magic number, size of this header, of what follows. An image in it: kind, size of this
# header, of what follows, architecture, flags.
_OBJECT: Final = Layout("<IxxHQ")
_IMAGE: Final = Layout("<HxxIQ12xI8xQ")
_OBJECT_MAGIC: Final = 0xBA55ED50
_KINDS: Final = {1: "compute", 2: "sm"}
_SUFFIXES: Final = {1 << 20: "a", 1 << 21: "f"}
_ALIGNMENT: Final = 4  #: linkers align objects with zeros, to this or a multiple of it
_MOST_STEPS: Final = 200_000  #: objects, images and words of zeros


class ElfFile(Struct, frozen=True):
    """A library: its machine, its size, and offset and size of each section in the file."""

    path: Path
    machine: int
    size: int
    sections: dict[bytes, tuple[int, int]]

    def texts(self) -> list[bytes]:
        """Return the names and the texts of a library."""
        places = [self.sections.get(name, (0, 0)) for name in (b".dynstr", b".rodata")]
        with self.path.open("rb") as file:
            return [_read(file, at, min(size, _MOST_TEXT)) for at, size in places]


DeviceObject = dict[str, int]
"""The device code of one .cu file: bytes by architecture, such as sm_120; compute_120 is PTX."""


def read_elf(path: Path) -> ElfFile:
    """Read the headers of an ELF file and check what they refer to.

    Raises OSError, and ToolError if it is not a complete 64-bit little-endian library.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if _read(file, 0, len(_MAGIC)) != _MAGIC:
            raise ToolError("it does not begin as one")
        machine, place, row_size, count, index = _unpacked(_HEADER, file, 0)
        table = _read(file, place, count * _ROW.size)
        # No linker makes a library of more than 65,279 sections, whose number is elsewhere.
        if index >= count or row_size != _ROW.size or len(table) != count * _ROW.size:
            raise ToolError("its table of sections is missing or cut off")
        rows = list(_ROW.iter_unpack(table))
        held = [(name, at, length) for name, kind, at, length in rows if kind != _NOBITS]
        needed = max((at + length for _, at, length in held), default=0)
        if needed > size:
            raise ToolError(f"{size} bytes of {needed}")
        sections = {}
        for start, at, length in held:
            name = _read(file, rows[index][2] + start, _LONGEST_NAME)
            sections[name.partition(b"\0")[0]] = (at, length)
    return ElfFile(path, machine, size, sections)


def device_objects(elf: ElfFile) -> list[DeviceObject]:
    """Return the device code of a library. Raises ToolError if it is not readable."""
    at, size = elf.sections.get(DEVICE_CODE, (0, 0))
    end, stop, found = at + size, at, list[DeviceObject]()
    with elf.path.open("rb") as file:
        for _ in range(_MOST_STEPS):
            if at >= end:
                return found
            if at < stop:
                kind, header, size, number, flags = _unpacked(_IMAGE, file, at)
                at += header + size
                is_right = header >= _IMAGE.size and at <= stop
                suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
                if kind in _KINDS:
                    name = f"{_KINDS[kind]}_{number}{suffix}"
                    found[-1][name] = found[-1].get(name, 0) + header + size
            else:
                magic, header, size = _unpacked(_OBJECT, file, at)
                if not magic:
                    at += _ALIGNMENT
                    continue
                at, stop = at + header, at + header + size
                is_right = magic == _OBJECT_MAGIC and header >= _OBJECT.size and stop <= end
                found.append({})
            if not is_right:
                break
    raise ToolError(f"{elf.path.name}: its device code is damaged")


def _unpacked(layout: Layout, file: BinaryIO, at: int) -> tuple[int, ...]:
    """Return the fields that are at a place of a file, which ends with zeros."""
    return layout.unpack(_read(file, at, layout.size).ljust(layout.size, b"\0"))


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """Return what is at a place of a file; beyond its end there is nothing."""
    return os.pread(file.fileno(), size, min(at, _BEYOND))
