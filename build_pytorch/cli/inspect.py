"""The command behind `invoke inspect`."""

from __future__ import annotations

import sys
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base import errors
from build_pytorch.base.console import ProgressLine, Screen, counted, print_json, visible
from build_pytorch.cli.commands import InspectOptions
from build_pytorch.inspect import inspection
from build_pytorch.inspect.device_code import LibrarySize
from build_pytorch.inspect.inspection import Inspection
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import GpuArchitecture
from build_pytorch.results import evidence
from build_pytorch.results.package_selection import chosen_packages

_COLOURS: Final = {"failed": "red", "error": "red", "passed": "green"}
_MB: Final = 1_000_000
_LEAST_BYTES: Final = 1_000_000
"""Libraries that are smaller are not listed."""


class InspectDocument(Struct, frozen=True):
    """The document of --json."""

    variants: list[Inspection]
    exit_code: int


def run(options: InspectOptions) -> int:
    """Inspect the built files of variants and companions, print the result, return the exit code.

    0: all passed; 1: one failed; 3: none failed and not all could be decided. Raises
    BuildPytorchError for bad input, WriteError if ledger or report cannot be written.
    """
    matrix = matrix_reader.load(options.root)
    if not options.selection.is_narrow:
        message = f"name what to inspect, such as {matrix.variants[0].id}"
        raise errors.BuildPytorchError(message)
    chosen = chosen_packages(matrix, options.selection)
    if options.path and len(chosen) > 1:
        names = ", ".join(variant.id for variant in chosen[:3])
        raise errors.BuildPytorchError(f"--path holds the files of one variant, not of {names}")
    screen = Screen(sys.stderr if options.json else sys.stdout)
    results = []
    for package in chosen:
        results.append(_inspected(package, options))
        _show(screen, package, results[-1])
    code = errors.exit_code_of(result.outcome for result in results)
    if options.json:
        print_json(InspectDocument(results, code), sys.stdout)
    return code


def _inspected(package: Package, options: InspectOptions) -> Inspection:
    with ProgressLine(f"inspecting {package.id}", 0):
        if options.path:
            return inspection.inspect_target(inspection.folder_target(package, options.path))
        return inspection.inspect_result(options.root, package)


def _show(screen: Screen, package: Package, result: Inspection) -> None:
    """Print the result of one package."""

    def paint(word: str, width: int = 0) -> str:
        return screen.paint(f"{word:<{width}}", _COLOURS.get(word, "yellow"))

    screen.line(f"{screen.paint(package.id, 'bold')}  {paint(result.outcome)}")
    if result.outcome == "not run":
        screen.fold("  ", result.reasons[0])
        return
    screen.line(f"  {result.folder}")
    width = max(len(part.id) for part in result.parts)
    for part in result.parts:
        screen.line(f"  {paint(part.state, 7)}  {part.id:<{width}}  {part.title}")
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
    sizes: list[LibrarySize] = figures.get("sizes", [])
    for each in sizes:
        if each.bytes >= _LEAST_BYTES:
            code = "".join(f", {name} {held / _MB:.1f}" for name, held in each.code.items())
            screen.fold(
                "    size  ", f"{each.library} {each.bytes / _MB:.1f} MB = host "
                f"{each.host / _MB:.1f}{code}", indent=6,
            )  # fmt: skip
    whole, surplus = (sum(getattr(each, name) for each in sizes) for name in ("bytes", "surplus"))
    if whole >= _LEAST_BYTES:
        less = f"; for {gpu.capability} alone {surplus / _MB:.1f} less" if gpu and surplus else ""
        screen.line(f"    size  together {whole / _MB:.1f} MB{less}")
    for name, held in figures.get("largest", {}).items():
        screen.line(f"    size  {held / _MB:>8.1f} MB  {visible(name)}")
