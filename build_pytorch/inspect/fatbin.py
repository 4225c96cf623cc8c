"""Fat binaries: the device code in a library, one object for each .cu file, and its symbols.

The layout is that of fatbinary_section.h and fatbinary.h of the CUDA toolkit and the same from CUDA
12.4 to 13.2: the objects were compared with `cuobjdump --list-elf` on PyPI's torch 2.11.0+cu130 and
2.15.0+cu132 and Debian's libtorch-cuda-2.6 (2026-11-21). Reading the headers takes 0.1 s of CPU
time for libtorch_cuda.so, `cuobjdump --list-elf` 15 s.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, Final

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import ElfFile

SECTION: Final = b".nv_fatbin"
"""Device code that can run; __nv_relfatbin holds what the device linker took it from."""

_MAGIC: Final = 0xBA55ED50
_OBJECT: Final = Layout("<IxxHQ")
"""Magic number; size of this header, of what follows."""
_ENTRY: Final = Layout("<HxxIQ12xI8xQ")
"""Kind; size of this header, of what follows; architecture; flags."""
_PTX, _CUBIN = 1, 2
_SUFFIXES: Final = {1 << 20: "a", 1 << 21: "f"}
_MOST_ENTRIES: Final = 100_000
_MOST_PADDING: Final = 4096
_SECONDS: Final = 300.0
"""Time limit of cuobjdump; libtorch_cuda.so of PyPI's 2.11.0 takes 16 s, six architectures."""
_MEMORY: Final = 16 << 30
"""Limit of its address space; libtorch_cuda.so of Debian, 1.2 GB for seven architectures, takes
4.8 GiB."""
_LONGEST_LINE: Final = 1 << 16
_SYMBOL: Final = re.compile(rb"(?:STT_)?[A-Z]+ .* (?!\$|\.|__nv|__cuda_)(\S\S+)\s*$")
"""A line of `cuobjdump --dump-elf-symbols`, except for symbols that nvcc adds: of sections, of
reserved memory, of its own library. The types begin with STT_ up to CUDA 13.4."""


class DeviceObject(Struct, frozen=True):
    """The device code of one .cu file: its architectures as machine code and as PTX."""

    cubins: tuple[str, ...]
    ptx: tuple[str, ...]
    owner: str = ""
    """Whose code it is; empty: an object without functions, which never runs."""


def device_objects(elf: ElfFile) -> list[DeviceObject]:
    """Return the device code of a library. Raises ToolError if it is not readable."""
    section = elf.named(SECTION)
    if section is None:
        return []
    found: list[DeviceObject] = []
    damaged = ToolError(f"{elf.path.name}: its device code is damaged")

    def read(layout: Layout, at: int, end: int) -> tuple[int, ...]:
        data = os.pread(file.fileno(), layout.size, at) if at + layout.size <= end else b""
        if len(data) < layout.size:
            raise damaged
        return layout.unpack(data)

    with elf.path.open("rb") as file:
        at, end, left = section.offset, section.offset + section.size, _MOST_ENTRIES
        while (at := _after_padding(file, at, end)) < end:
            magic, header, size = read(_OBJECT, at, end)
            stop = at + header + size
            if magic != _MAGIC or header < _OBJECT.size or stop > end:
                raise damaged
            codes: dict[int, list[str]] = {_CUBIN: [], _PTX: []}
            at += header
            while at < stop:
                kind, header, size, number, flags = read(_ENTRY, at, stop)
                at += header + size
                left -= 1
                if header < _ENTRY.size or at > stop or left < 0:
                    raise damaged
                suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
                codes.setdefault(kind, []).append(f"sm_{number}{suffix}")
            found.append(DeviceObject(tuple(codes[_CUBIN]), tuple(codes[_PTX])))
            at = stop
    return found


def _after_padding(file: BinaryIO, at: int, end: int) -> int:
    """Return where the next object begins: linkers align them with zeros."""
    zeros = os.pread(file.fileno(), min(_MOST_PADDING, end - at), at)
    return at + len(zeros) - len(zeros.lstrip(b"\0"))


def installed_with_pip() -> str:
    """Return the cuobjdump of NVIDIA's package for pip, which is not on PATH, or ""."""
    site_packages = Path(sysconfig.get_path("purelib"))
    return str(max(site_packages.glob("nvidia/*/bin/cuobjdump"), default=""))


def symbol_owners(
    library: Path, objects: Sequence[DeviceObject], owner_of: Callable[[str], str]
) -> list[set[str]]:
    """Return what `owner_of` says of the symbols of each object; an empty set without functions.

    Raises ToolError if cuobjdump is not installed, fails, or shows other objects or no function.
    """
    program = "cuobjdump" if process.which("cuobjdump") else installed_with_pip()
    found: list[set[str]] = [set() for _ in objects]
    cubins = [(found[n], code) for n, each in enumerate(objects) for code in each.cubins]
    different = ToolError(f"cuobjdump finds other device code in {library.name}")
    argv = [program or "cuobjdump", "--dump-elf-symbols", str(library)]
    shown, is_cubin = 0, False
    with process.piped(argv, timeout=_SECONDS, memory=_MEMORY) as out:
        for line in iter(lambda: out.readline(_LONGEST_LINE), b""):
            if line.startswith(b"Fatbin "):
                is_cubin = line.startswith(b"Fatbin elf")
                if is_cubin and shown == len(cubins):
                    raise different
                shown += is_cubin
            elif is_cubin and line.startswith(b"arch = "):
                if line[7:].strip() != cubins[shown - 1][1].encode():
                    raise different
            elif is_cubin and (match := _SYMBOL.match(line)):
                cubins[shown - 1][0].add(owner_of(match[1].decode(errors="replace")))
    if shown != len(cubins):
        raise different
    if cubins and not any(found):
        raise ToolError(f"cuobjdump names no function in {library.name}")
    return found
