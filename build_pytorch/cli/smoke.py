"""`invoke smoke` and `nox -s smoke`: run built packages, print what was found and decided."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import ProgressLine, Screen, counted, print_json
from build_pytorch.base.errors import BuildPytorchError, exit_code_of
from build_pytorch.cli.commands import SmokeOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.results import evidence
from build_pytorch.results.package_selection import chosen_packages
from build_pytorch.smoke.smoke_case import SmokeCase, SmokeSettings, smoke_test
from build_pytorch.smoke.smoke_report import SmokeReport, SmokeResult

_COLOURS: Final = {
    "passed": "green",
    "failed": "red",
    "skipped": "yellow",
    "compatible": "yellow",
    "not run": "dim",
}
_LISTED: Final = 4
"""Variants that were not run and are listed one by one."""


class SmokeDocument(Struct, frozen=True):
    """The document of --json."""

    variants: list[SmokeCase]
    exit_code: int


def run(options: SmokeOptions) -> int:
    """Test the chosen packages, record the evidence, print it and return the exit code.

    0: all passed; 1: one failed; 3: none failed, and not all passed. Raises BuildPytorchError for
    bad input.
    """
    matrix = matrix_reader.load(options.root)
    if not 0 < options.timeout < float("inf"):
        raise BuildPytorchError(f"--timeout {options.timeout:g}: give minutes, more than 0")
    settings = SmokeSettings(
        root=options.root,
        python=_python(options.python) if options.python else None,
        device=options.device,
        seconds=options.timeout * 60,
    )
    screen = Screen(sys.stderr if options.json else sys.stdout)
    cases: list[SmokeCase] = []
    not_run: list[SmokeCase] = []
    for package in chosen_packages(matrix, options.selection):
        case, report = _tested(package, settings)
        cases.append(case)
        if case.outcome == "not run":
            not_run.append(case)
        else:
            show_case(screen, package, case, report)
    for case in not_run[:_LISTED]:
        _show_verdict(screen, case)
    if more := not_run[_LISTED:]:
        screen.line(f"{screen.paint('not run', 'dim')}: {counted(len(more), 'more variant')}")
    code = exit_code_of(case.outcome for case in cases)
    if options.json:
        print_json(SmokeDocument(cases, code), sys.stdout)
    return code


def _python(name: str) -> Path:
    """Return the absolute path of the Python that --python names; links are not resolved."""
    found = shutil.which(name)
    if found is None:
        raise BuildPytorchError(f"--python {name}: no such program; name a Python that has torch")
    return Path(found).absolute()


def _tested(package: Package, settings: SmokeSettings) -> tuple[SmokeCase, SmokeReport | None]:
    progress = ProgressLine(f"smoke test of {package.id}", 0)
    try:
        return smoke_test(package, settings, progress.at)
    finally:
        progress.end()


def show_case(
    screen: Screen, package: Package, case: SmokeCase, report: SmokeReport | None
) -> None:
    """Print the facts, the tests and the judgement of one package."""
    if report:
        screen.line(screen.paint(case.package, "bold"))
        for line in _facts(package.variant, report):
            screen.line(line)
        others = {t.name for t in report.declared if t.companion not in {"", *report.companions}}
        width = max(len(test.name) for test in report.declared if test.name not in others)
        has_gpu = package.variant.gpu and report.cuda.available
        for test in report.tests:
            if test.name not in others and (has_gpu or test.name.startswith("cpu ")):
                painted = screen.paint(f"{test.outcome:<8}", _COLOURS[test.outcome])
                screen.line(f"  {painted} {test.name:<{width}} {_detail(test)}".rstrip())
    for note in case.notes:
        screen.fold("note: ", note)
    _show_verdict(screen, case)
    if case.report:
        unknown = evidence.unknown_recipe(package)
        why = unknown if case.output else "this is not the built package"
        not_recorded = "" if case.recorded else f"; not recorded: {why}"
        screen.line(f"report: {case.report}{not_recorded}\n")


def _show_verdict(screen: Screen, case: SmokeCase) -> None:
    first, *rest = case.reasons or ("",)
    head = f"{case.variant}: {case.outcome}{': ' if first else ''}"
    screen.fold(head, first, _COLOURS[case.outcome])
    for reason in rest:
        screen.fold("  ", reason)


def _facts(variant: Variant, report: SmokeReport) -> Iterator[str]:
    """Yield what was tested: PyTorch, its CUDA and the GPU, then the driver and the CPU."""
    torch, gpu = report.torch, report.gpu
    if torch.import_error:
        return
    yield f"PyTorch version: {torch.version}"
    yield f"CUDA available: {report.cuda.available}"
    yield f"CUDA version: {torch.cuda}"
    if gpu:
        yield f"GPU: {gpu.name}"
        yield f"Compute capability: {gpu.capability}"
    if gpu and variant.gpu:
        if gpu.capability == variant.gpu.capability:
            name = gpu.name.removeprefix("NVIDIA ")
            yield f"\u2705 {variant.gpu_label} ({name}) detected correctly!"
        else:
            found = sm_code(gpu.capability).replace("_", "").upper()
            yield f"\u26a0\ufe0f  Expected {variant.gpu_label}, got {found}"
    if torch.cuda:
        driver = report.driver.version or "none"
        arch_list = " ".join(torch.arch_list)
        yield f"Built for: {arch_list}; cuDNN {torch.cudnn or 'none'}; driver here: {driver}"
    for name, facts in report.companions.items():
        yield f"{name} version: {facts.version or 'not installed'}"
    yield f"CPU: {report.cpu.model or report.python.machine}, {torch.cpu_capability} kernels"


def _detail(test: SmokeResult) -> str:
    parts = [test.message] if test.message else []
    if test.seconds:
        parts.insert(0, f"{test.seconds:.2f} s")
    if test.error is not None and test.tolerance is not None:
        parts.insert(0, f"error {test.error:.1e}, tolerance {test.tolerance:.0e}")
    return ", ".join(parts)
