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

_HEAD: Final = 1 << 20  #: bytes in which the package of a log is searched
_GZIP: Final = b"\x1f\x8b\x08"


def diagnose(lines: Iterable[bytes], package: Package | None, log: str = "LOG") -> LogDiagnosis:
    """Read a log. Never raises for what the log says."""
    reader = LogReader(package, log)
    for raw in lines:
        for _ in reader.read(raw):
            pass
    return reader.diagnosis()


def diagnose_file(name: str, packages: Iterable[Package], package: Package | None) -> LogDiagnosis:
    """Read the log in a file, or on standard input: `/dev/stdin`.

    Without a `package` it is of the one of `packages` that its beginning names. Raises
    BuildPytorchError for a file that cannot be read.
    """
    lines, head, size = _lines(name), list[bytes](), 0
    for line in lines:
        head.append(line)
        if (size := size + len(line)) > _HEAD:
            break
    package = package or named_package(packages, b"\n".join(head))
    return diagnose(itertools.chain(head, lines), package, name)


def _lines(name: str) -> Iterator[bytes]:
    """Yield the lines of a log, expanded where it is compressed with gzip; longer ones are split.

    A FIFO is refused: it may wait for ever.
    """
    path, total = Path(name), 0
    try:
        with path.open("rb") if name == "/dev/stdin" else files.open_regular(path) as raw:
            is_gzip = raw.peek(8).startswith(_GZIP)
            stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if is_gzip else raw
            while line := stream.readline(_HEAD):
                if total < _HEAD and b"\0" in line:
                    raise BuildPytorchError(f"{name}: a binary file, not the text of a log")
                if (total := total + len(line)) > files.LARGEST_LOG:
                    size = f"larger than {files.LARGEST_LOG >> 20} MiB"
                    raise BuildPytorchError(f"{name}: cannot be read: {size}")
                yield line.removesuffix(b"\n")
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
