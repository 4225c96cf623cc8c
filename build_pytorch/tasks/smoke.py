"""`invoke smoke`: run built packages, print what was found and decided."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.base.console import Screen, counted, print_json, waiting
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.tasks.command import command, exit_code_of, load, number, words

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Package
    from build_pytorch.smoke.judge import SmokeReport
    from build_pytorch.smoke.smoke_case import SmokeCase

_COLOURS = {"passed": "green", "failed": "red", "not run": "dim"}
_LISTED = 4  #: packages that were not run and are listed one by one


@command(optional=("upstream",))
def smoke(
    c: Context,
    packages: str,
    python: str = "",
    timeout: str = "15",
    upstream: str | bool = "",
    json: bool = False,
) -> int:
    """Test built variants by running PyTorch."""
    from build_pytorch.results.package_state import chosen_packages
    from build_pytorch.smoke.smoke_case import smoke_test
    from build_pytorch.smoke.upstream import run_upstream

    matrix = load()
    root = matrix.root
    program = shutil.which(python) if python else None
    if python and not program:
        what = f"--python {python}: no such program"
        raise BuildPytorchError(f"{what}; name a Python that has torch")
    named = Path(program).absolute() if program else None
    seconds = 60 * number("--timeout", timeout, 0.01, 10_000.0)
    screen, cases = Screen(sys.stderr if json else sys.stdout), []
    files = words(upstream) if isinstance(upstream, str) else ()
    for package in chosen_packages(matrix, packages):
        if upstream:
            run = partial(run_upstream, seconds=seconds, names=files, say=screen.line)
            case, report = run(root, package, named), None
        else:
            with waiting(f"smoke test of {package.id}"):
                case, report = smoke_test(root, package, named, seconds)
        cases.append(case)
        if case.outcome != "not run":
            show_case(screen, package, case, report)
    not_run = [case for case in cases if case.outcome == "not run"]
    for case in not_run[:_LISTED]:
        _show_verdict(screen, case)
    if more := not_run[_LISTED:]:
        screen.line(f"{screen.paint('not run', 'dim')}: {counted(len(more), 'more variant')}")
    code = exit_code_of(case.outcome for case in cases)
    if json:
        print_json({"variants": cases, "exit_code": code}, sys.stdout)
    return code


def show_case(
    screen: Screen, package: Package, case: SmokeCase, report: SmokeReport | None
) -> None:
    """Print facts, tests that did not pass and the judgement; all tests are in the report."""
    from build_pytorch.results import evidence
    from build_pytorch.smoke.smoke_case import told_facts

    if report:
        screen.line(screen.paint(case.package, "bold"))
        for line in told_facts(package, report):
            screen.line(line)
        has_gpu = package.gpu and report.cuda.available
        tests = [test for test in report.tests if has_gpu or test.name.startswith("cpu ")]
        for test in tests:
            if test.outcome != "passed":
                colour = _COLOURS.get(test.outcome, "yellow")
                screen.fold(f"  {test.outcome:<8} ", f"{test.name}  {test.message}", colour)
        counts = Counter(test.outcome for test in tests)
        screen.line(f"tests: {', '.join(f'{n} {outcome}' for outcome, n in counts.items())}")
    _show_verdict(screen, case)
    if case.report:
        unknown = evidence.unknown_recipe(package)
        why = unknown if case.output else "this is not the built package"
        screen.line(f"report: {case.report}{'' if case.recorded else f'; not recorded: {why}'}\n")


def _show_verdict(screen: Screen, case: SmokeCase) -> None:
    first, *rest = case.reasons or ("",)
    head = f"{case.variant}: {case.outcome}{': ' if first else ''}"
    screen.fold(head, first, _COLOURS.get(case.outcome, "yellow"))
    for reason in rest:
        screen.fold("  ", reason)
