"""Libraries: the sections of ELF files, and the device code in them.

Anybody may have made them. A file that is no complete library, contradicts itself or exceeds a
limit raises ToolError with the reason. A file is mapped into memory, so that a wrong place is the
end of the data, and time and memory are bounded by its size; only headers are read.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from struct import Struct as Layout
from typing import Final

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
_MOST_TEXT: Final = 1 << 28
"""Bytes of a section of texts; the largest of an official wheel has 19 MB (2.11.0)."""
MACHINES: Final = {"x86_64-linux": 62, "aarch64-linux": 183}
"""e_machine of each platform (System V ABI)."""
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
_MOST_IMAGES: Final = 100_000
_MOST_PADDING: Final = 4096


class ElfFile(Struct, frozen=True):
    """A library: its machine, its bytes, and offset and size of each section."""

    path: Path
    machine: int
    data: mmap.mmap
    sections: dict[bytes, tuple[int, int]]

    def texts(self) -> list[bytes]:
        """Return the names and the texts of a library. Raises ToolError if they are too long."""
        found = []
        for at, size in (self.sections.get(name, (0, 0)) for name in (b".dynstr", b".rodata")):
            if size > _MOST_TEXT:
                raise ToolError(f"{self.path.name}: more than {_MOST_TEXT >> 20} MiB of text")
            found.append(self.data[at : at + size])
        return found


class DeviceObject(Struct, frozen=True):
    """The device code of one .cu file: bytes by architecture, such as sm_120 or compute_120."""

    images: dict[str, int]

    @property
    def cubins(self) -> set[str]:
        """The architectures that it has machine code for."""
        return {name for name in self.images if name.startswith("sm_")}

    @property
    def ptx(self) -> set[str]:
        """The architectures that it has PTX for."""
        return self.images.keys() - self.cubins


def read_elf(path: Path) -> ElfFile:
    """Read the headers of an ELF file and check what they refer to.

    Raises ToolError with the reason if it is not a complete 64-bit little-endian library.
    """
    try:
        with open_regular(path) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as fault:
        raise ToolError(fault.strerror or "cannot be read") from None
    except ValueError:
        raise ToolError("it is empty") from None
    if data[: len(_MAGIC)] != _MAGIC:
        raise ToolError("it begins with other bytes")
    head = data[: _HEADER.size].ljust(_HEADER.size, b"\0")  # where it is cut off: no sections
    machine, place, row_size, count, index = _HEADER.unpack(head)
    table = data[place : place + count * _ROW.size]
    # No linker makes a library of more than 65,279 sections, whose number is elsewhere.
    if index >= count or row_size != _ROW.size or len(table) != count * _ROW.size:
        raise ToolError("its table of sections is missing or cut off")
    rows = list(_ROW.iter_unpack(table))
    held = [(name, at, size) for name, kind, at, size in rows if kind != _NOBITS]
    needed = max((at + size for _, at, size in held), default=0)
    if needed > len(data):
        raise ToolError(f"{len(data)} bytes of {needed}")
    _, kind, names, _ = rows[index]
    if kind == _NOBITS:
        raise ToolError("its sections have no names")
    sections: dict[bytes, tuple[int, int]] = {}
    for start, at, size in held:
        name = data[names + start : names + start + _LONGEST_NAME].partition(b"\0")[0]
        sections.setdefault(name, (at, size))
    return ElfFile(path, machine, data, sections)


def device_objects(elf: ElfFile) -> list[DeviceObject]:
    """Return the device code of a library. Raises ToolError if it is not readable."""
    at, size = elf.sections.get(DEVICE_CODE, (0, 0))
    end, left, found = at + size, _MOST_IMAGES, list[DeviceObject]()
    damaged = ToolError(f"{elf.path.name}: its device code is damaged")
    try:
        while (at := _after_padding(elf.data, at, end)) < end:
            magic, header, size = _OBJECT.unpack_from(elf.data, at)
            at, stop, images = at + header, at + header + size, dict[str, int]()
            if magic != _OBJECT_MAGIC or header < _OBJECT.size or stop > end:
                raise damaged
            while at < stop:
                kind, header, size, number, flags = _IMAGE.unpack_from(elf.data, at)
                at, left = at + header + size, left - 1
                if header < _IMAGE.size or at > stop or left < 0:
                    raise damaged
                suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
                if kind in _KINDS:
                    name = f"{_KINDS[kind]}_{number}{suffix}"
                    images[name] = images.get(name, 0) + header + size
            found.append(DeviceObject(images))
    except struct.error:  # beyond the end of the file
        raise damaged from None
    return found


def _after_padding(data: mmap.mmap, at: int, end: int) -> int:
    """Return where the next object begins: linkers align them with zeros."""
    zeros = data[at : min(at + _MOST_PADDING, end)]
    return at + len(zeros) - len(zeros.lstrip(b"\0"))
