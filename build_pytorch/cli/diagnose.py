"""The command behind `invoke diagnose`."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import itertools
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.base.console import ProgressLine, Screen, counted, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.build.build_progress import LogDiagnosis, diagnose, named_package
from build_pytorch.build.log_reader import split_lines
from build_pytorch.cli.commands import DiagnoseOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import Selection, select_packages
from build_pytorch.results.package_selection import chosen_package, last_log

_CHUNK: Final = 1 << 20
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

_HEAD: Final = 20_000  #: lines in which the variant is searched


class LineRow(Struct, frozen=True):
    """A line of a log with its number."""

    line: int
    text: str


class DiagnosisDocument(Struct, frozen=True, kw_only=True):
    """The document of --json."""

    variant: str | None
    lines: int
    phase: str | None
    progress: tuple[int, int] | None
    stop: str | None
    stop_line: int | None
    failure: str | None
    failure_lines: list[LineRow]
    headline: LineRow | None
    meaning: str | None
    fix: str | None
    tail: tuple[str, ...]


def run(options: DiagnoseOptions) -> int:
    """Print what a log says. Raises BuildPytorchError for a log that cannot be read."""
    if len(options.log) != 1:
        raise BuildPytorchError(
            "name a package (its last log), a file with a log, or - for standard input"
        )
    (name,) = options.log
    matrix = matrix_reader.load(options.root)
    found = select_packages(matrix, list(filter(None, [options.variant])), options.release)
    chosen = found if options.variant else ()
    if len(chosen) > 1:
        raise BuildPytorchError(f"--variant {options.variant}: names several; name one")
    if name != "-" and not os.path.lexists(name):
        named = Selection(variants=(name,), release=options.release)
        try:
            chosen = (chosen_package(matrix, named),)
        except BuildPytorchError as error:
            raise BuildPytorchError(f"{name}: no such file; as an id: {error}") from None
        name = os.path.relpath(options.root / last_log(matrix, chosen[0])[0])
    lines = split_lines(_chunks(name), _CHUNK)
    head = list(itertools.islice(lines, _HEAD))
    known = [p for p in matrix.packages if options.release in {"", p.release_name}]
    package = chosen[0] if chosen else named_package(known, head)
    diagnosis = diagnose(itertools.chain(head, lines), package)
    if options.json:
        print_json(document(diagnosis), sys.stdout)
    else:
        show(Screen(sys.stdout), name, diagnosis, is_given=bool(chosen))
    return EXIT_OK


def _chunks(name: str) -> Iterator[bytes]:
    """Yield the pieces of a log, expanded where it is compressed with gzip."""
    total, progress = 0, None
    try:
        with _opened(name) as stream:
            chunk = stream.read(_CHUNK)
            has_lines = b"\n" in chunk
            while chunk:
                if total:  # most logs have one chunk
                    progress = progress or ProgressLine("", 0)
                    progress.what = f"{name}: {total >> 20} MiB read"
                    progress.at()
                total += len(chunk)
                _limit(total)
                yield chunk if has_lines else chunk.replace(b"\r", b"\n")
                chunk = stream.read(_CHUNK)
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
    with io.BufferedReader(io.FileIO(descriptor), _CHUNK) as raw:
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


def document(diagnosis: LogDiagnosis) -> DiagnosisDocument:
    """Return the document of --json."""
    variant = diagnosis.package.variant if diagnosis.package else None
    stop, failure, headline = diagnosis.stop, diagnosis.failure, diagnosis.headline
    return DiagnosisDocument(
        variant=diagnosis.package.id if diagnosis.package else None,
        lines=diagnosis.lines,
        phase=diagnosis.phase or None,
        progress=diagnosis.progress,
        stop=stop.rule.id if stop else None,
        stop_line=stop.lines[0][0] if stop else None,
        failure=failure.rule.id if failure else None,
        failure_lines=[LineRow(line, text) for line, text in failure.lines] if failure else [],
        headline=LineRow(*headline) if headline else None,
        meaning=failure.rule.meaning if failure else None,
        fix=failure.rule.advice(variant, "LOG") if failure else None,
        tail=diagnosis.tail,
    )


def show(screen: Screen, name: str, diagnosis: LogDiagnosis, *, is_given: bool = True) -> None:
    """Print a diagnosis for people. `is_given`: the user named the variant."""
    log = screen.paint("standard input" if name == "-" else name, "bold")
    if not diagnosis.lines:
        screen.line(f"{log}: is empty, so it names no failure")
        return
    package = diagnosis.package
    whose = package.id if package else "unknown variant, see --variant"
    whose += "" if is_given or not package else " (named in the log)"
    screen.line(f"{log}: {counted(diagnosis.lines, 'line')}, {whose}")
    steps = "step {} of {}".format(*diagnosis.progress) if diagnosis.progress else ""
    place = ", ".join(filter(None, (diagnosis.phase, steps)))
    screen.line(f"  phase: {place or 'not known'}")
    if finding := diagnosis.stop or diagnosis.failure:
        rule = finding.rule
        what = "a build is stopped here" if diagnosis.stop else "failure"
        screen.fold(f"  {what}: ", f"{rule.meaning} ({rule.id})", "red")
        for number, text in finding.lines:
            screen.line(f"  line {number}: {text}")
        screen.fold(
            "  what to do: ", rule.advice(package.variant if package else None, name), indent=4
        )
    else:
        if diagnosis.headline:
            number, text = diagnosis.headline
            screen.line(f"  first error, line {number}: {text}")
        screen.line("  no log rule names a failure; the last lines:")
        for line in diagnosis.tail:
            screen.line(f"    {line}")
