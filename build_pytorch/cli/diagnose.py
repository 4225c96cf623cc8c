"""The command behind `invoke diagnose`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from build_pytorch.base import files
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.build.log_diagnosis import (
    LogDiagnosis,
    LogFinding,
    diagnose,
    named_variant,
    split_lines,
)
from build_pytorch.cli.commands import DiagnoseOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select

_CHUNK: Final = 1 << 20
_HEAD: Final = 20_000  #: lines in which the variant is searched


def run(options: DiagnoseOptions) -> int:
    """Print what a log says. Raises BuildPytorchError for a log that cannot be read."""
    if len(options.log) != 1:
        raise BuildPytorchError("name one log: invoke diagnose LOG, or - for standard input")
    (name,) = options.log
    matrix = matrix_reader.load()
    chosen = select(matrix, [options.variant]) if options.variant else ()
    if len(chosen) > 1:
        raise BuildPytorchError(f"--variant {options.variant}: names several; name one")
    lines = split_lines(_chunks(name), _CHUNK)
    head = list(itertools.islice(lines, _HEAD))
    variant = chosen[0] if chosen else named_variant(matrix, head)
    diagnosis = diagnose(itertools.chain(head, lines), variant)
    if options.json:
        print_json(document(diagnosis), sys.stdout)
    else:
        show(Screen(sys.stdout), name, diagnosis, is_given=bool(chosen))
    return EXIT_OK


def _chunks(name: str) -> Iterator[bytes]:
    """Yield the pieces of a log: logs may be larger than memory."""
    descriptor = -1
    try:
        descriptor = files.open_named(Path(name), or_stdin=True)
        while chunk := os.read(descriptor, _CHUNK):
            yield chunk
    except OSError as error:
        raise BuildPytorchError(f"{name}: cannot be read: {error.strerror}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def document(diagnosis: LogDiagnosis) -> dict[str, Any]:
    """Return the document of --json."""
    stop, failure = diagnosis.stop, diagnosis.failure
    return {
        "variant": diagnosis.variant.id if diagnosis.variant else None,
        "lines": diagnosis.lines,
        "phase": diagnosis.phase or None,
        "progress": list(diagnosis.progress) if diagnosis.progress else None,
        "stop": stop.rule.id if stop else None,
        "stop_line": stop.lines[0][0] if stop else None,
        "failure": failure.rule.id if failure else None,
        "failure_lines": [{"line": n, "text": text} for n, text in failure.lines]
        if failure
        else [],
        "meaning": failure.rule.meaning if failure else None,
        "fix": failure.rule.fix if failure else None,
        "tail": list(diagnosis.tail),
    }


def show(screen: Screen, name: str, diagnosis: LogDiagnosis, *, is_given: bool = True) -> None:
    """Print a diagnosis for people. `is_given`: the user named the variant."""
    log = "standard input" if name == "-" else name
    if not diagnosis.lines:
        screen.line(f"{screen.paint(log, 'bold')}: is empty, so it names no failure")
        return
    variant = diagnosis.variant
    whose = f"{variant.id}" if variant else "unknown variant, see --variant"
    whose += "" if is_given or not variant else " (named in the log)"
    screen.line(f"{screen.paint(log, 'bold')}: {diagnosis.lines} lines, {whose}")
    steps = "step {} of {}".format(*diagnosis.progress) if diagnosis.progress else ""
    place = ", ".join(filter(None, (diagnosis.phase, steps)))
    screen.line(f"  phase: {place or 'not known'}")
    if diagnosis.stop:
        _show_finding(screen, "a build is stopped here", diagnosis.stop, name)
    elif diagnosis.failure:
        _show_finding(screen, "failure", diagnosis.failure, name)
    else:
        screen.line("  no log rule names a failure; the last lines:")
        for line in diagnosis.tail:
            screen.line(f"    {line}")


def _show_finding(screen: Screen, what: str, finding: LogFinding, name: str) -> None:
    rule = finding.rule
    screen.line(f"  {screen.paint(what, 'red')}: {rule.meaning} ({rule.id})")
    for number, text in finding.lines:
        screen.line(f"  line {number}: {text}")
    screen.line(f"  what to do: {rule.fix.replace('LOG', name)}")
