"""Fat binaries: the device code in a library, one object for each .cu file.

The layout is that of fatbinary_section.h and fatbinary.h of the CUDA toolkit and the same from CUDA
12.4 to 13.2: the objects were compared with `cuobjdump --list-elf` on PyPI's torch 2.11.0+cu130 and
2.15.0+cu132 and Debian's libtorch-cuda-2.6 (2026-11-21). Only headers are read.
"""

from __future__ import annotations

import os
from struct import Struct as Layout
from typing import BinaryIO, Final

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import ElfFile

SECTION: Final = b".nv_fatbin"
"""Device code that can run; __nv_relfatbin holds what the device linker took it from."""

_MAGIC: Final = 0xBA55ED50
_OBJECT: Final = Layout("<IxxHQ")
"""Magic number; size of this header, of what follows."""
_IMAGE: Final = Layout("<HxxIQ12xI8xQ")
"""Kind; size of this header, of what follows; architecture; flags."""
_KINDS: Final = {1: "compute", 2: "sm"}
_SUFFIXES: Final = {1 << 20: "a", 1 << 21: "f"}
_MOST_IMAGES: Final = 100_000
_MOST_PADDING: Final = 4096


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


def device_objects(elf: ElfFile) -> list[DeviceObject]:
    """Return the device code of a library. Raises ToolError if it is not readable."""
    at, length = elf.sections.get(SECTION, (0, 0))
    end, left, found = at + length, _MOST_IMAGES, list[DeviceObject]()
    damaged = ToolError(f"{elf.path.name}: its device code is damaged")
    with elf.path.open("rb") as file:

        def read(layout: Layout, stop: int) -> tuple[int, ...]:
            data = os.pread(file.fileno(), layout.size, at) if at + layout.size <= stop else b""
            if len(data) < layout.size:
                raise damaged
            return layout.unpack(data)

        while (at := _after_padding(file, at, end)) < end:
            magic, header, size = read(_OBJECT, end)
            stop = at + header + size
            if magic != _MAGIC or header < _OBJECT.size or stop > end:
                raise damaged
            images: dict[str, int] = {}
            at += header
            while at < stop:
                kind, header, size, number, flags = read(_IMAGE, stop)
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


def _after_padding(file: BinaryIO, at: int, end: int) -> int:
    """Return where the next object begins: linkers align them with zeros."""
    zeros = os.pread(file.fileno(), min(_MOST_PADDING, end - at), at)
    return at + len(zeros) - len(zeros.lstrip(b"\0"))
