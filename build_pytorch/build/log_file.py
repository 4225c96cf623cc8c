"""The bytes of a log that a person names: a file, plain or of gzip, or standard input."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from build_pytorch.base import files
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import BuildPytorchError

CHUNK: Final = 1 << 20  #: bytes that are read at once
_GZIP: Final = b"\x1f\x8b\x08"
_OTHERS: Final = {
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\0": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\x04\x22\x4d\x18": "compressed with lz4",
    b"PK\x03\x04": "compressed with zip",
    b"\xff\xfe": "written in UTF-16",
}
"""How files begin that are not read."""


def chunks(name: str) -> Iterator[bytes]:
    """Yield the pieces of a log, `-` being standard input. Raises BuildPytorchError."""
    total, progress = 0, None
    try:
        with _opened(name) as stream:
            chunk = stream.read(CHUNK)
            has_lines = b"\n" in chunk
            while chunk:
                if total:  # most logs have one chunk
                    progress = progress or ProgressLine("", 0)
                    progress.what = f"{name}: {total >> 20} MiB read"
                    progress.at()
                total += len(chunk)
                _limit(total)
                yield chunk if has_lines else chunk.replace(b"\r", b"\n")
                chunk = stream.read(CHUNK)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "the compressed data is damaged"
        raise BuildPytorchError(f"{name}: cannot be read: {reason}") from None
    finally:
        if progress:
            progress.end()


@contextlib.contextmanager
def _opened(name: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a log, compressed or not. Raises OSError, and BuildPytorchError for other formats."""
    descriptor = files.open_named(Path(name), or_stdin=True)
    with io.BufferedReader(io.FileIO(descriptor), CHUNK) as raw:
        _limit(os.fstat(descriptor).st_size)
        begin = raw.peek(8)
        for sign, what in _OTHERS.items():
            if begin.startswith(sign):
                raise BuildPytorchError(f"{name}: {what}; convert it to plain text first")
        if begin.startswith(_GZIP):
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream
        else:
            yield raw


def _limit(size: int) -> None:
    if size > files.LARGEST_LOG:
        raise OSError(errno.EFBIG, f"larger than {files.LARGEST_LOG >> 20} MiB")
