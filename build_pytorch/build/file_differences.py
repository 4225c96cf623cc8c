"""The files in which two builds of the same package differ, and why, if it is known."""

from __future__ import annotations

import filecmp
import io
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files

_LARGEST: Final = 256 << 20  #: bytes of a file that are searched for the reason

_TEXTS: Final = {
    "process id of nvcc in names": rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}|_[0-9a-f]{8}_\d{3,7}(?!\d)",
    "path of the build folder": rb"(?:/[\w.+-]+)*/nix-build-[\w.+-]+|/build(?=/)",
    "date or time": rb"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d(?: \d{4})?",
}
"""What differs from build to build, and how it is written."""


class FileDifference(Struct, frozen=True):
    """A file below the output that differs, and why; an empty text if that is not known."""

    path: str
    why: str


def file_differences(first: Path, second: Path) -> Iterator[FileDifference]:
    """Yield the files in which two folders differ, sorted by path. Raises OSError."""
    here, there = _files(first), _files(second)
    for name in sorted(here | there):
        one, other = first / name, second / name
        if name not in here & there:
            why = f"only in the {'first' if name in here else 'second'} build"
            yield FileDifference(name, why)
        elif one.is_symlink() or other.is_symlink():
            if len({p.readlink() if p.is_symlink() else None for p in (one, other)}) > 1:
                yield FileDifference(name, "target of the link")
        elif not filecmp.cmp(one, other, shallow=False):
            is_small = max(one.stat().st_size, other.stat().st_size) <= _LARGEST
            yield FileDifference(name, _reason(one, other) if is_small else "")


def _files(folder: Path) -> set[str]:
    """Return the files and links below a folder."""
    found = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return {path.relative_to(folder).as_posix() for path in found}


def _reason(first: Path, second: Path) -> str:
    """Return what alone explains the difference, or an empty text."""
    one, other = files.read_named(first, _LARGEST), files.read_named(second, _LARGEST)
    if first.suffix == ".pyc" and one[:8] == other[:8] and one[16:] == other[16:]:
        return "time stamp of Python bytecode"
    if one[:4] == other[:4] == b"\x1f\x8b\x08\x00" and one[8:] == other[8:]:
        return "time stamp of gzip"
    if one[:2] == b"PK" and _members(one) == _members(other):
        return "time stamps in the archive"
    for why, text in _TEXTS.items():
        if re.sub(text, b"", one) == re.sub(text, b"", other):
            return why
    return ""


def _members(archive: bytes) -> object:
    """Return the names and checksums of a ZIP archive; the archive itself if it is damaged."""
    try:
        return [(m.filename, m.CRC) for m in zipfile.ZipFile(io.BytesIO(archive)).infolist()]
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return archive
