"""`invoke diagnose`: what a log says of a failed build, and what to do; `invoke log`: that log."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.base.console import Screen, counted, print_json, write
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.build.log_reader import LogDiagnosis
    from build_pytorch.matrix.model import Matrix, Package


@command
def diagnose(c: Context, log: str, variant: str = "", json: bool = False) -> None:
    """Name the failure in the log of a build."""
    from build_pytorch.build.log_file import diagnose_file
    from build_pytorch.results.package_state import chosen_package

    matrix, name = load(is_for_any=True), log
    chosen = chosen_package(matrix, variant) if variant else None
    if not os.path.lexists(name):
        try:
            chosen = chosen_package(matrix, name)
        except BuildPytorchError as error:
            raise BuildPytorchError(f"{name}: no such file; as an id: {error}") from None
        name = _last_log(matrix, chosen)
    diagnosis = diagnose_file(name, matrix.packages, chosen)
    if json:
        print_json(diagnosis, sys.stdout)
    else:
        show(Screen(sys.stdout), name, diagnosis)


@command
def log(c: Context, package: str) -> None:
    """Show the log of the last build of a package."""
    from build_pytorch.base import files
    from build_pytorch.results.package_state import chosen_package

    matrix = load()
    path = Path(_last_log(matrix, chosen_package(matrix, package)))
    data = files.read_input(path, files.LARGEST_LOG)
    write(sys.stdout, data.decode(errors="replace").expandtabs())


def _last_log(matrix: Matrix, package: Package) -> str:
    """Return the path of the last log of a package. Raises BuildPytorchError if it is not here."""
    from build_pytorch.results.ledger import HOST
    from build_pytorch.results.package_state import package_states

    state = package_states(matrix.root, [package])[package.id]
    path = matrix.root / state.log
    if not state.last:
        raise BuildPytorchError(f"{package.id}: the ledger has no build of it")
    is_here = path.resolve().is_relative_to(matrix.root.resolve())  # a ledger may say anything
    if not (is_here and path.exists()):
        host = state.last.host
        where = "was deleted" if host in {"", HOST} else f"is on {host}; copy it here"
        raise BuildPytorchError(f"{state.log}: not found; the log of {package.id} {where}")
    return os.path.relpath(path)


def show(screen: Screen, name: str, diagnosis: LogDiagnosis) -> None:
    """Print a diagnosis for people."""
    log = screen.paint(name, "bold")
    if not diagnosis.lines:
        screen.line(f"{log}: is empty, so it names no failure")
        return
    variant = diagnosis.variant or "unknown variant, see --variant"
    screen.line(f"{log}: {counted(diagnosis.lines, 'line')}, {variant}")
    steps = "step {} of {}".format(*diagnosis.progress) if diagnosis.progress else ""
    place = ", ".join(filter(None, (diagnosis.phase, steps)))
    screen.line(f"  phase: {place or 'not known'}")
    if diagnosis.rule:
        what = "a build is stopped here" if diagnosis.stops else "failure"
        screen.fold(f"  {what}: ", f"{diagnosis.meaning} ({diagnosis.rule})", "red")
        for match in diagnosis.matches:
            screen.line(f"  line {match.line}: {match.text}")
        screen.fold("  what to do: ", diagnosis.fix, indent=4)
    if first := diagnosis.headline:
        screen.line(f"  first error, line {first.line}: {first.text}")
    if not diagnosis.rule:
        screen.line("  no log rule names a failure; the last lines:")
        for line in diagnosis.tail:
            screen.line(f"    {line}")
