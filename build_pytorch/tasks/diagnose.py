"""`invoke diagnose`: what a log of a build says of its failure, and what to do."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.build.log_reader import LogDiagnosis


@command
def diagnose(c: Context, log: str, variant: str = "", json: bool = False) -> None:
    """Name the failure in the log of a build."""
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.build.log_file import diagnose_file
    from build_pytorch.results.package_selection import chosen_package, last_log

    matrix, name = load(is_for_any=True), log
    chosen = chosen_package(matrix, variant) if variant else None
    if name != "-" and not os.path.lexists(name):
        try:
            chosen = chosen_package(matrix, name)
        except BuildPytorchError as error:
            raise BuildPytorchError(f"{name}: no such file; as an id: {error}") from None
        name = os.path.relpath(matrix.root / last_log(matrix, chosen)[0])
    diagnosis = diagnose_file(name, matrix.packages, chosen)
    if json:
        print_json(document(diagnosis), sys.stdout)
    else:
        show(Screen(sys.stdout), name, diagnosis, is_given=bool(chosen))


def document(diagnosis: LogDiagnosis) -> dict[str, object]:
    """Return a diagnosis for programs."""

    def line(found: tuple[int, str]) -> dict[str, object]:
        return {"line": found[0], "text": found[1]}

    package, headline = diagnosis.package, diagnosis.headline
    stop, failure = diagnosis.stop, diagnosis.failure
    advice = failure.rule.advice(package.variant if package else None, "LOG") if failure else None
    return {
        "variant": package.id if package else None,
        "lines": diagnosis.lines,
        "phase": diagnosis.phase or None,
        "progress": diagnosis.progress,
        "stop": stop.rule.id if stop else None,
        "stop_line": stop.lines[0][0] if stop else None,
        "failure": failure.rule.id if failure else None,
        "failure_lines": [line(found) for found in failure.lines] if failure else [],
        "headline": line(headline) if headline else None,
        "meaning": failure.rule.meaning if failure else None,
        "fix": advice,
        "tail": diagnosis.tail,
    }


def show(screen: Screen, name: str, diagnosis: LogDiagnosis, *, is_given: bool = True) -> None:
    """Print a diagnosis for people. `is_given`: the user named the variant."""
    from build_pytorch.base.console import counted

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
        advice = rule.advice(package.variant if package else None, name)
        screen.fold("  what to do: ", advice, indent=4)
    else:
        if diagnosis.headline:
            number, text = diagnosis.headline
            screen.line(f"  first error, line {number}: {text}")
        if unsure := diagnosis.unsure:
            number, text = unsure.lines[0]
            said = f"line {number}: {text}: {unsure.rule.meaning} ({unsure.rule.id})"
            screen.fold("  if the variant is for a GPU: ", said, indent=4)
        screen.line("  no log rule names a failure; the last lines:")
        for line in diagnosis.tail:
            screen.line(f"    {line}")
