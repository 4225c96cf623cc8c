"""Logs in files: plain text or gzip, which package they are of, and what they say."""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from build_pytorch.base import files
from build_pytorch.base.console import grouped
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.log_reader import LogDiagnosis, LogReader
from build_pytorch.matrix.model import Package

_CHUNK: Final = 1 << 20  #: bytes; the package of a log is searched in the first ones
_GZIP: Final = b"\x1f\x8b\x08"


def diagnose(lines: Iterable[bytes], package: Package | None, log: str = "LOG") -> LogDiagnosis:
    """Read a log. Never raises for what the log says."""
    reader = LogReader(package, log)
    for raw in lines:
        for _ in reader.read(raw):
            pass
    return reader.diagnosis()


def diagnose_file(name: str, packages: Iterable[Package], package: Package | None) -> LogDiagnosis:
    """Read the log in a file, or on standard input for `-`.

    Without a `package` it is of the one of `packages` that its beginning names. Raises
    BuildPytorchError for a file that cannot be read.
    """
    chunks = _chunks(name)
    head = next(chunks, b"")
    package = package or named_package(packages, head)
    return diagnose(split_lines(itertools.chain([head], chunks), _CHUNK), package, name)


def split_lines(chunks: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield the lines of a text that comes in pieces; a longer line is split."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > longest:
            yield rest
            rest = b""
    if rest:
        yield rest


def _chunks(name: str) -> Iterator[bytes]:
    """Yield the pieces of a log, expanded where it is compressed with gzip."""
    total = 0
    try:
        with Path(name).open("rb") as raw:
            is_gzip = raw.peek(8).startswith(_GZIP)
            stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if is_gzip else raw
            while chunk := stream.read(_CHUNK):
                if not total and b"\0" in chunk:
                    raise BuildPytorchError(f"{name}: a binary file, not the text of a log")
                if (total := total + len(chunk)) > files.LARGEST_LOG:
                    size = f"larger than {files.LARGEST_LOG >> 20} MiB"
                    raise BuildPytorchError(f"{name}: cannot be read: {size}")
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "the compressed data is damaged"
        raise BuildPytorchError(f"{name}: cannot be read: {reason}") from None


def named_package(packages: Iterable[Package], head: bytes) -> Package | None:
    """Return the package that the beginning of a log names, if they name exactly one.

    Packages of several releases may have one name. A companion names its variant too.
    """
    pairs = []
    for package in packages:
        pairs += [(package.package, package), (package.pname, package)]
        if package.companion:  # as its build prints it
            title = f"{package.title} {package.version} for {package.variant.package}"
            pairs.append((title, package))
    by_name = grouped(pairs)
    names = "|".join(map(re.escape, sorted(by_name, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.])(?:{names})(?![A-Za-z0-9_])")
    words = {*head.split(), *re.findall(rb"(?m)^\S+ \S+ for \S+$", head)}  # each once: it is slow
    found = set(pattern.findall(b"\n".join(words).decode(errors="replace")))
    of_companions = {name for name in found if by_name[name][0].companion}
    candidates = [by_name[name] for name in of_companions or found]
    common = [p for p in candidates[0] if all(p in c for c in candidates)] if candidates else []
    return common[0] if len({package.path for package in common}) == 1 else None
