"""Libraries: the sections of ELF files, and the device code in them.

Anybody may have made them. A file that is no complete library, contradicts itself or exceeds a
limit raises ToolError with the reason. Time and memory are bounded by the size of the file, not by
what its headers claim; only headers are read.
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
_MOST_NAMES: Final = 1 << 24
_LONGEST_NAME: Final = 256
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
    """A library: its machine, its size, and offset and size of each section in the file."""

    path: Path
    machine: int
    size: int
    sections: dict[bytes, tuple[int, int]]


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
            return _read_headers(path, file, os.fstat(file.fileno()).st_size)
    except OSError as fault:
        raise ToolError(fault.strerror or "cannot be read") from None


def _read_headers(path: Path, file: BinaryIO, size: int) -> ElfFile:
    head = file.read(_HEADER.size)
    if not head.startswith(_MAGIC):
        raise ToolError("it begins with other bytes" if head else "it is empty")
    head = head.ljust(_HEADER.size, b"\0")  # where it is cut off, it has no sections
    machine, place, row_size, count, index = _HEADER.unpack(head)
    # No linker makes a library of more than 65,279 sections, whose number is elsewhere.
    if not count or row_size != _ROW.size or place + count * row_size > size:
        raise ToolError("its table of sections is missing or cut off")
    file.seek(place)
    rows = list(_ROW.iter_unpack(file.read(count * row_size)))
    held = [(name, at, length) for name, kind, at, length in rows if kind != _NOBITS]
    needed = max((at + length for _, at, length in held), default=0)
    if needed > size:
        raise ToolError(f"{size} bytes of {needed}")
    _, kind, at, length = rows[index] if index < count else (0, _NOBITS, 0, 0)
    if kind == _NOBITS or not 0 < length <= _MOST_NAMES:
        raise ToolError("its sections have no names")
    file.seek(at)
    names = file.read(length)
    sections: dict[bytes, tuple[int, int]] = {}
    for start, at, length in held:
        name = names[start : start + _LONGEST_NAME].partition(b"\0")[0]
        sections.setdefault(name, (at, length))
    return ElfFile(path, machine, size, sections)


def device_objects(elf: ElfFile) -> list[DeviceObject]:
    """Return the device code of a library. Raises ToolError if it is not readable."""
    at, length = elf.sections.get(DEVICE_CODE, (0, 0))
    end, left, found = at + length, _MOST_IMAGES, list[DeviceObject]()
    damaged = ToolError(f"{elf.path.name}: its device code is damaged")
    with elf.path.open("rb") as file:
        while (at := _after_padding(file, at, end)) < end:
            magic, header, size = _unpacked(_OBJECT, file, at)
            stop, images = at + header + size, dict[str, int]()
            if magic != _OBJECT_MAGIC or header < _OBJECT.size or stop > end:
                raise damaged
            at += header
            while at < stop:
                kind, header, size, number, flags = _unpacked(_IMAGE, file, at)
                at += header + size
                left -= 1
                if header < _IMAGE.size or at > stop or left < 0:
                    raise damaged
                suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
                if kind in _KINDS:
                    name = f"{_KINDS[kind]}_{number}{suffix}"
                    images[name] = images.get(name, 0) + header + size
            found.append(DeviceObject(images))
    return found


def _unpacked(layout: Layout, file: BinaryIO, at: int) -> tuple[int, ...]:
    """Return what is at a place of a file, which ends with zeros."""
    return layout.unpack(os.pread(file.fileno(), layout.size, at).ljust(layout.size, b"\0"))


def _after_padding(file: BinaryIO, at: int, end: int) -> int:
    """Return where the next object begins: linkers align them with zeros."""
    zeros = os.pread(file.fileno(), min(_MOST_PADDING, end - at), at)
    return at + len(zeros) - len(zeros.lstrip(b"\0"))
