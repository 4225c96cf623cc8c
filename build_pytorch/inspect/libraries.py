"""Whether libraries are whole ELF files. Asked first: what is none makes other programs wait."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from build_pytorch.inspect.inspection import Part, Proof, Target, Tell, has_libtorch
from build_pytorch.verify.check import Finding

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
"""ELF64 header, little-endian, as of both platforms (System V ABI, "ELF Header")."""
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_MAGIC: Final = b"\x7fELF\x02\x01"
"""With 64 bits and little-endian."""
_NO_BITS: Final = 8
"""A section that takes no room in the file (.bss)."""


def look(part: Part, target: Target, tell: Tell) -> Proof:
    """Find the libraries that are no whole ELF files. Only headers are read."""
    tell("libraries", 0, 0)
    libraries = target.libraries()
    problems = list(_problems(target, libraries))
    return part.proof([library.name for library in libraries], problems, {})


def _problems(target: Target, libraries: list[Path]) -> Iterator[Finding]:
    if not has_libtorch(target.folder):
        yield Finding(
            path="libtorch_cpu.so",
            found=f"not in {target.folder}, nor in what that depends on",
            expected="PyTorch's library",
        )
    for library in libraries:
        if fault := fault_of(library):
            yield Finding(
                path=library.name,
                found=f"not a whole ELF file: {fault}",
                expected="a shared library of 64 bits, little-endian",
            )


def fault_of(library: Path) -> str:
    """Why a file is no whole ELF file of 64 bits, or nothing where it is one. Never waits."""
    try:
        # A FIFO without a writer would make a plain open wait for ever.
        descriptor = os.open(library, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or "cannot be read"
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        head = os.pread(descriptor, _HEADER.size, 0)
        if not head.startswith(_MAGIC):
            return "it begins with other bytes" if head else "it is empty"
        if len(head) < _HEADER.size:
            return "its header is cut off"
        needed = _needed(descriptor, head)
    except OSError as error:
        return error.strerror or "cannot be read"
    except struct.error:
        return "its tables are cut off"
    finally:
        os.close(descriptor)
    return f"{status.st_size} bytes of {needed}" if status.st_size < needed else ""


def _needed(descriptor: int, head: bytes) -> int:
    """How many bytes a file has to have by its headers. Raises struct.error where they end early.

    Files with 65280 sections or more count them elsewhere; then their table alone is not seen.
    """
    fields = _HEADER.unpack(head)
    segments_at, sections_at = fields[5], fields[6]
    segments, sections = fields[10], fields[12]
    ends: list[int] = [
        segments_at + segments * _SEGMENT.size,
        sections_at + sections * _SECTION.size,
    ]
    table = os.pread(descriptor, segments * _SEGMENT.size, segments_at)
    for number in range(segments):
        row = _SEGMENT.unpack_from(table, number * _SEGMENT.size)
        ends.append(row[2] + row[5])
    table = os.pread(descriptor, sections * _SECTION.size, sections_at)
    for number in range(sections):
        row = _SECTION.unpack_from(table, number * _SECTION.size)
        if row[1] != _NO_BITS:
            ends.append(row[4] + row[5])
    return max(ends)
