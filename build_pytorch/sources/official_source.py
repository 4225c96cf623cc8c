"""The parts of an official wheel that show PyTorch's source, read without the rest of the wheel.

pip names the wheel, so its settings count: an index of one's own, a folder, a proxy.
"""

from __future__ import annotations

import fnmatch
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import requests

from build_pytorch.base import files, foreign_json, process
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify.checks.source_texts import of_nixpkgs, shown_by
from build_pytorch.verify.wheel_files import WheelFiles, in_wheel, store, stored

_PIP: Final = ("-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet")
_WHEEL: Final = ("--only-binary", ":all:", "--python-version", "3.12")
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
_SECONDS: Final = 30
_MOST: Final = 64 << 20
"""Bytes that are read of a wheel at most; 3 MB are needed, most of them its list of files."""
_BUFFER: Final = 1 << 18


class _Remote(io.RawIOBase):
    """A file on a server that gives parts of files (RFC 9110, section 14). Raises OSError."""

    def __init__(self, url: str) -> None:
        self.url, self.session = url, requests.Session()
        self.position = self.taken = 0
        self.size = int(self._part(0, 0)[0].rpartition("/")[2])

    def _part(self, first: int, last: int) -> tuple[str, bytes]:
        headers = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
        with self.session.get(self.url, headers=headers, timeout=_SECONDS, stream=True) as answer:
            if answer.status_code != requests.codes.partial_content:
                raise OSError(f"the server answered {answer.status_code}, not with a part of it")
            data = answer.raw.read(last - first + 1)
        self.taken += len(data)
        if self.taken > _MOST:
            raise OSError(f"more than {_MOST >> 20} MiB are needed")
        return answer.headers.get("Content-Range", ""), data

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset, as in io."""
        self.position = (0, self.position, self.size)[whence] + offset
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as many bytes as the buffer takes and the file has."""
        last = min(self.position + len(buffer), self.size) - 1
        data = self._part(self.position, last)[1] if last >= self.position else b""
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def read_missing(matrix: Matrix, variants: Iterable[Variant]) -> Iterator[str]:
    """Read the wheels of variants that are not stored; yield why one cannot be read."""
    for torch in dict.fromkeys(variant.release.torch for variant in variants):
        if not torch.is_nightly and stored(matrix.root, torch.version) is None:
            try:
                read_source(matrix.root, torch.version)
            except ToolError as error:
                yield f"not checked: texts that are replaced in PyTorch {torch.version}: {error}"


def read_source(root: Path, torch: str) -> WheelFiles:
    """Read and store the source files of the official wheel of a version. Raises ToolError."""
    url, sha256 = _address(torch)
    name = unquote(url.rpartition("/")[2])
    try:
        with zipfile.ZipFile(_opened(url)) as archive:
            texts = {wanted: _text(archive, wanted, torch) for wanted in _wanted(archive)}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ToolError(f"{name} cannot be read: {str(error).splitlines()[0][:200]}") from None
    found = WheelFiles(wheel=name, sha256=sha256, texts=texts)
    store(root, torch, found)
    return found


def _text(archive: zipfile.ZipFile, name: str, torch: str) -> str | None:
    """Return the text of a file; None if it is missing. Raises OSError if it is too large."""
    place = f"torch-{torch}.dist-info/WHEEL" if name == "WHEEL" else name
    if place not in archive.NameToInfo:
        return None
    if archive.getinfo(place).file_size > files.LARGEST_TEXT:
        raise OSError(f"{place} is too large")
    return archive.read(place).decode(errors="replace")


def _wanted(archive: zipfile.ZipFile) -> list[str]:
    """Return the files that texts of nixpkgs and of recipes may be in."""
    public = fnmatch.filter(archive.namelist(), in_wheel("cmake/public/*.cmake"))
    return sorted({*filter(None, map(shown_by, of_nixpkgs())), *public})


def _address(torch: str) -> tuple[str, str]:
    """Return URL and digest of the wheel that pip would install. Raises ToolError."""
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    argv = [sys.executable, *_PIP, *_WHEEL, *platforms, "--report", "-", f"torch=={torch}"]
    result = process.start(argv).finish(4 * _SECONDS)
    if result.code:
        raise ToolError(f"pip finds no wheel of PyTorch {torch}: {result.last_line}")
    try:
        (installed,) = foreign_json.decode(result.stdout)["install"]
        info = installed["download_info"]
        return str(info["url"]), str(info["archive_info"]["hashes"]["sha256"])
    except (ValueError, LookupError, TypeError):
        raise ToolError("the report of pip cannot be read") from None


def _opened(url: str) -> Any:  # noqa: ANN401 - what ZipFile takes
    """Return the path of a wheel in a folder, or a file on a server. Raises OSError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return io.BufferedReader(_Remote(url), _BUFFER)
