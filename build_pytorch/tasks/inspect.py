"""`invoke inspect`: whether built files are what the matrix says, without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from build_pytorch.base.console import Screen, counted, print_json, visible, waiting
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.tasks.command import command, exit_code_of, load

if TYPE_CHECKING:
    from build_pytorch.inspect.inspection import Inspection
    from build_pytorch.matrix.model import Package
    from build_pytorch.matrix.tables import GpuArchitecture

_COLOURS = {"failed": "red", "error": "red", "passed": "green"}
_MB = 1_000_000
_LEAST_BYTES = 1_000_000
"""Libraries that are smaller are not listed."""


@command
def inspect(c: Context, packages: str, path: str = "", json: bool = False) -> int:
    """Inspect built files; no GPU needed."""
    from build_pytorch.inspect import inspection
    from build_pytorch.results.package_state import chosen_packages

    matrix = load()
    chosen = chosen_packages(matrix, packages)
    if path and len(chosen) > 1:
        names = ", ".join(variant.id for variant in chosen[:3])
        raise BuildPytorchError(f"--path holds the files of one variant, not of {names}")
    screen, results = Screen(sys.stderr if json else sys.stdout), []
    for package in chosen:
        with waiting(f"inspecting {package.id}"):
            if path:
                target = inspection.folder_target(package, Path(path))
                results.append(inspection.inspect_target(target))
            else:
                results.append(inspection.inspect_result(matrix.root, package))
        _show(screen, package, results[-1])
    code = exit_code_of(result.outcome for result in results)
    if json:
        print_json({"variants": results, "exit_code": code}, sys.stdout)
    return code


def _show(screen: Screen, package: Package, result: Inspection) -> None:
    """Print the result of one package."""
    from build_pytorch.results import evidence

    def paint(word: str, width: int = 0) -> str:
        return screen.paint(f"{word:<{width}}", _COLOURS.get(word, "yellow"))

    screen.line(f"{screen.paint(package.id, 'bold')}  {paint(result.outcome)}")
    if result.outcome == "not run":
        screen.fold("  ", result.reasons[0])
        return
    screen.line(f"  {result.folder}")
    for part in result.parts:
        screen.line(f"  {paint(part.state, 7)}  {part.id}")
        for finding in part.findings:
            found, colour = f"{finding.path}: {finding.found}", _COLOURS.get(finding.severity)
            screen.fold(f"    {finding.severity}  ", found, colour or "yellow", indent=6)
            if finding.expected:
                screen.fold("      expected: ", finding.expected, indent=8)
                screen.fold("      fix: ", finding.fix, indent=8)
        _show_sizes(screen, part.figures, package.variant.gpu)
    severities = [finding.severity for part in result.parts for finding in part.findings]
    counts = ", ".join(counted(severities.count(it), it) for it in ("error", "warning"))
    screen.line(f"  {counts}" + (f"; report: {result.report}" if result.report else ""))
    if result.report and not result.recorded:
        screen.line(f"  not recorded: {evidence.unknown_recipe(package)}")


def _show_sizes(screen: Screen, figures: dict[str, Any], gpu: GpuArchitecture | None) -> None:
    """Print the sizes of libraries, by architecture, and of the largest packages of a closure."""
    from build_pytorch.matrix.compatibility import sm_code

    whole = surplus = 0
    for library, code in figures.get("sizes", {}).items():
        size, listing = sum(code.values()), [f"{it} {held / _MB:.1f}" for it, held in code.items()]
        others = [it for it in code if gpu and not it.startswith(("host", sm_code(gpu.capability)))]
        whole, surplus = whole + size, surplus + sum(code[it] for it in others)
        if size >= _LEAST_BYTES:
            text = f"{library} {size / _MB:.1f} MB = {', '.join(listing)}"
            screen.fold("    size  ", text, indent=6)
    if whole >= _LEAST_BYTES:
        less = f"; for {gpu.capability} alone {surplus / _MB:.1f} less" if gpu and surplus else ""
        screen.line(f"    size  together {whole / _MB:.1f} MB{less}")
    for name, held in figures.get("largest", {}).items():
        screen.line(f"    size  {held / _MB:>8.1f} MB  {visible(name)}")
