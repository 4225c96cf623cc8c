"""The parts of an official wheel that show PyTorch's source, read without the rest of the wheel.

pip names the wheel, so its settings count: an index of one's own, a folder, a proxy.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from build_pytorch.base import foreign_json, process
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify.checks.source_texts import (
    WheelFiles,
    in_wheel,
    of_nixpkgs,
    shown_by,
    store,
    stored,
)

_PIP: Final = ("-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet")
_WHEEL: Final = ("--only-binary", ":all:", "--python-version", "3.12", "--report", "-")
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
_SECONDS: Final = 30
_TAIL: Final = 6 << 20
"""Bytes at the end of a wheel that hold its list of files; that of PyTorch 2.15.0 takes 2 MB."""
_LARGEST: Final = 1 << 20
"""Bytes of a file that is read; the largest of PyTorch 2.15.0, codecache.py, has 0.2 million."""
_UNREADABLE: Final = (
    *(OSError, HTTPError),  # of the server; errors of requests are OSErrors
    *(ValueError, RuntimeError, zipfile.BadZipFile, zlib.error),  # of the archive
)
_HEAD: Final = 1024
"""Bytes before the data of a file in a wheel, at most: its header and its name."""


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
    name, parts = unquote(url.rpartition("/")[2]), urlsplit(url)
    try:
        with tempfile.TemporaryFile() as copy:
            if parts.scheme == "file":
                texts = _texts(Path(unquote(parts.path)), torch, lambda _: None)
            else:
                _fetch(url, copy, f"-{_TAIL}")
                texts = _texts(copy, torch, functools.partial(_fetch, url, copy))
    except _UNREADABLE as error:
        why = shortened(str(error) or type(error).__name__, 200)
        raise ToolError(f"{name} cannot be read: {why}") from None
    found = WheelFiles(wheel=name, sha256=sha256, texts=texts)
    store(root, torch, found)
    return found


def _texts(wheel: Any, torch: str, fetch: Callable[[str], None]) -> dict[str, str | None]:  # noqa: ANN401
    """Return the files that texts of nixpkgs and of recipes may be in; `fetch` gets a part."""
    texts: dict[str, str | None] = {}
    with zipfile.ZipFile(wheel) as archive:
        public = fnmatch.filter(archive.namelist(), in_wheel("cmake/public/*.cmake"))
        for name in {*filter(None, map(shown_by, of_nixpkgs())), *public}:
            place = f"torch-{torch}.dist-info/WHEEL" if name == "WHEEL" else name
            texts[name] = None
            if info := archive.NameToInfo.get(place):
                if info.file_size > _LARGEST:
                    raise ValueError(f"{place} has {info.file_size} bytes, more than {_LARGEST}")
                first = info.header_offset
                fetch(f"{first}-{first + _HEAD + info.compress_size}")
                texts[name] = archive.read(info).decode(errors="replace")
    return texts


def _fetch(url: str, copy: IO[bytes], part: str) -> None:
    """Write a part of a file on a server (RFC 9110, section 14) where it is. Raises OSError."""
    headers = {"Range": f"bytes={part}", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, timeout=_SECONDS, stream=True) as answer:
        if answer.status_code != requests.codes.partial_content:
            raise OSError(f"the server answered {answer.status_code}, not with a part of it")
        sent = re.match(r"bytes (\d{1,12})-", answer.headers.get("Content-Range", ""))
        if sent is None:
            raise OSError("the server does not say which part it sent")
        copy.seek(int(sent[1]))
        copy.write(answer.raw.read(_TAIL))


def _address(torch: str) -> tuple[str, str]:
    """Return URL and digest of the wheel that pip would install. Raises ToolError."""
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    argv = [sys.executable, *_PIP, *_WHEEL, *platforms, f"torch=={torch}"]
    result = process.start(argv).finish(4 * _SECONDS)
    if result.code:
        raise ToolError(f"pip finds no wheel of PyTorch {torch}: {result.last_line}")
    try:
        (installed,) = foreign_json.decode(result.stdout)["install"]
        info = installed["download_info"]
        return str(info["url"]), str(info["archive_info"]["hashes"]["sha256"])
    except (ValueError, LookupError, TypeError):
        raise ToolError("the report of pip cannot be read") from None
