"""The command behind `invoke inspect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from build_pytorch.base.console import ProgressLine, Screen, counted, print_json, visible
from build_pytorch.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_UNDECIDED,
    BuildPytorchError,
    ToolError,
)
from build_pytorch.cli.commands import InspectOptions
from build_pytorch.inspect import closure, config, device_code, instructions, libraries
from build_pytorch.inspect.inspection import (
    Inspection,
    Part,
    built_target,
    folder_target,
    inspect_target,
    record,
)
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.selection import select
from build_pytorch.results import artefacts, evidence

PARTS: Final = (
    Part(
        id="files",
        title="PyTorch's libraries are complete ELF files",
        why="The other parts cannot read a file that is cut off or not a library.",
        fix="build the variant again from its recipe",
        look=libraries.look,
        needs_files=False,
    ),
    Part(
        id="device-code",
        title="device code for the variant's GPU architecture, and for no other",
        why="A build for another architecture fails at the first kernel, a CPU-only one at the "
        "first tensor.",
        fix="look at gpuTargets in the recipe and build again",
        look=device_code.look,
    ),
    Part(
        id="instructions",
        title="instructions of the variant's CPU ISA, and none above it in common code",
        why="Code above the ISA ends with SIGILL on the variant's CPUs; code below it does not "
        "use them.",
        fix="look at the recipe's cpuFlags and build again",
        look=instructions.look,
    ),
    Part(
        id="config",
        title="torch.__config__ agrees with the matrix",
        why="It shows the version, CUDA and flags that PyTorch was built with.",
        fix="build the variant again from its recipe",
        look=config.look,
    ),
    Part(
        id="closure",
        title="one CUDA version in the closure, and no more bytes than allowed",
        why="Two CUDA versions in one process fail with misleading errors; a large closure cannot "
        "be uploaded.",
        fix="look at the overlays in the recipe, or raise closure_gib in matrix.toml",
        look=closure.look,
        needs_result=True,
        needs_files=False,
    ),
)

_COLOURS: Final = {"failed": "red", "passed": "green"}


def run(options: InspectOptions) -> int:
    """Inspect the built files of variants, print the result, return the exit code.

    0: all passed; 1: one failed; 3: none failed and not all could be decided. Raises
    BuildPytorchError for bad input, WriteError if ledger or report cannot be written.
    """
    fleet = matrix_reader.load()
    root, path, json = options.root, options.path, options.json
    if not options.variants:
        raise BuildPytorchError("no variant given; for example: invoke inspect sm120-avx512")
    chosen = select(fleet, options.variants)
    if path and len(chosen) > 1:
        names = ", ".join(variant.id for variant in chosen[:3])
        raise BuildPytorchError(f"--path holds the files of one variant, not of {names}")
    screen = Screen(sys.stderr if json else sys.stdout)
    results = []
    for variant in chosen:
        result = _inspected(variant, path, root)
        _show(screen, result)
        results.append(result)
    states = {result.state for result in results}
    code = EXIT_OK if states == {"passed"} else EXIT_UNDECIDED
    code = EXIT_FINDINGS if "failed" in states else code
    if json:
        print_json({"variants": [r.as_dict() for r in results], "exit_code": code}, sys.stdout)
    return code


def _inspected(variant: Variant, path: Path | None, root: Path) -> Inspection:
    """Inspect one variant and record it. A result that cannot be read does not stop the others."""
    if path:
        target = folder_target(variant, path)
    else:
        found = artefacts.find(root, variant)
        if found is None:
            problem = artefacts.absence(root, variant)
            return Inspection(variant=variant, target=None, problem=problem)
        try:
            target = built_target(variant, found)
        except (ToolError, OSError) as error:
            problem = f"{found.link.name}: {str(error).split(chr(10), maxsplit=1)[0]}"
            return Inspection(variant=variant, target=None, problem=problem)
    lines: list[ProgressLine] = []

    def progress(what: str, done: int, total: int) -> None:
        if not lines or lines[-1].what != what:
            lines.append(ProgressLine(what, total))
        lines[-1].at(done)

    try:
        result = inspect_target(PARTS, variant, target, progress)
    finally:
        if lines:
            lines[-1].end()
    return record(root, result)


def _show(screen: Screen, result: Inspection) -> None:
    """Print the result of one variant."""
    painted = screen.paint(result.outcome, _COLOURS.get(result.outcome, "yellow"))
    screen.line(f"{screen.paint(result.variant.id, 'bold')}  {painted}")
    if result.target is None:
        screen.line(visible(f"  {result.problem}"))
        return
    screen.line(f"  {result.target.folder}")
    width = max(len(part.outcome.check.id) for part in result.parts)
    findings = [finding for part in result.parts for finding in part.outcome.findings]
    for part in result.parts:
        outcome = part.outcome
        painted = screen.paint(f"{part.state:<7}", _COLOURS.get(part.state, "yellow"))
        reason = visible(f" ({outcome.reason})") if outcome.reason else ""
        screen.line(f"  {painted}  {outcome.check.id:<{width}}  {outcome.check.title}{reason}")
        for finding in outcome.findings:
            colour = "red" if finding.severity == "error" else "yellow"
            severity = screen.paint(finding.severity, colour)
            screen.line(f"    {severity}  {visible(f'{finding.path}: {finding.found}')}")
            screen.line(f"      expected: {finding.expected}")
            screen.line(f"      fix: {finding.fix}")
    errors = sum(finding.severity == "error" for finding in findings)
    counts = f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
    screen.line(f"  {counts}" + (f"; report: {result.report}" if result.report else ""))
    if result.report and not result.recorded:
        screen.line(f"  not recorded: {evidence.unknown_recipe(result.variant)}")
