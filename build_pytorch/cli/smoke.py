"""`invoke smoke` and `nox -s smoke`: run built variants, judge them, record the evidence."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import errors
from build_pytorch.base.console import ProgressLine, Screen, counted, print_json
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.cli.commands import SmokeOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.matrix.selection import select_packages
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import script, smoke_report
from build_pytorch.smoke.judge import Judgement, Outcome, cpu_mismatch, judge
from build_pytorch.smoke.smoke_report import SmokeReport, SmokeResult, SmokeRun

_COLOURS: Final = {
    "passed": "green",
    "failed": "red",
    "skipped": "yellow",
    "compatible": "yellow",
    "not run": "dim",
}
_LISTED: Final = 4
"""Variants that were not run and are listed one by one."""


class SmokeCase(msgspec.Struct, frozen=True, kw_only=True):
    """One package with its judgement. `output` is its store path if that is what was tested."""

    package: Package
    judgement: Judgement
    ran: SmokeRun = SmokeRun()
    python: str = ""
    output: str = ""
    recorded: bool = False
    report: str = ""
    """The file of the whole report, below the root."""

    def as_dict(self) -> dict[str, object]:
        """Return the case for --json and for the report's file."""
        return {
            "release": self.package.release_name,
            "variant": self.package.id,
            "package": self.package.package,
            **msgspec.to_builtins(self.judgement),
            "python": self.python,
            "output": self.output,
            "recorded": self.recorded,
            "report": self.report,
            "script": self.ran.raw or None,
        }


def run(options: SmokeOptions) -> int:
    """Test the chosen packages, record the evidence, print it and return the exit code.

    0: all passed; 1: one failed; 3: none failed, and not all passed. Raises BuildPytorchError for
    bad input.
    """
    fleet = matrix_reader.load(options.root)
    if not 0 < options.timeout < float("inf"):
        raise BuildPytorchError(f"--timeout {options.timeout:g}: give minutes, more than 0")
    packages = select_packages(fleet, options.variants, options.release)
    python = _python(options.python) if options.python else None
    screen = Screen(sys.stderr if options.json else sys.stdout)
    cases, not_run = [], []
    for package in packages:
        cases.append(case := _test(package, python, options))
        if case.judgement.outcome == "not run":
            not_run.append(case)
        else:
            show(screen, case)
    for case in not_run[:_LISTED]:
        _print_verdict(screen, case)
    if more := not_run[_LISTED:]:
        screen.line(f"{screen.paint('not run', 'dim')}: {counted(len(more), 'more variant')}")
    code = exit_code([case.judgement for case in cases])
    if options.json:
        print_json({"variants": [case.as_dict() for case in cases], "exit_code": code}, sys.stdout)
    return code


def exit_code(judgements: Sequence[Judgement]) -> int:
    """Return 0 if every variant passed, 1 if one failed, else 3 (a compatible run included)."""
    outcomes = {judgement.outcome for judgement in judgements}
    if "failed" in outcomes:
        return errors.EXIT_FINDINGS
    return errors.EXIT_OK if outcomes == {"passed"} else errors.EXIT_UNDECIDED


def _python(name: str) -> Path:
    """Return the absolute path of the Python that --python names; links are not resolved."""
    found = shutil.which(name)
    if found is None:
        raise BuildPytorchError(f"--python {name}: no such program; name a Python that has torch")
    return Path(found).absolute()


def _test(package: Package, python: Path | None, options: SmokeOptions) -> SmokeCase:
    """Test one package with its own Python or with the one that --python names."""

    def ended(outcome: Outcome, reason: str) -> SmokeCase:
        return SmokeCase(package=package, judgement=Judgement(outcome=outcome, reasons=(reason,)))

    built, variant = artefacts.find(options.root, package), package.variant
    if built is None and python is None:
        return ended("not run", artefacts.absence(options.root, package))
    if reason := cpu_mismatch(variant, platform.machine(), script.cpu_facts()["flags"]):
        return ended("skipped", reason)  # not started: it would crash with SIGILL
    tested = built
    if python is not None:
        ran = _run(package, python, {}, options)
        if ran.report and "No module named 'torch'" in ran.report.torch.import_error:
            raise BuildPytorchError(f"--python {python}: has no torch; name a Python that has it")
        tested = built if built and built.holds(_tested_file(package, ran.report)) else None
        judgement = _judged(ran, package, None)
    elif built is not None:
        try:
            python, env = artefacts.interpreter(built, variant.release.python.version)
            ran = _run(package, python, env, options)
        except ToolError as error:  # the other packages can still be tested
            return ended("not run", str(error))
        judgement = _judged(ran, package, built)
    case = SmokeCase(
        package=package,
        judgement=judgement,
        ran=ran,
        python=str(python),
        output=str(tested.output) if tested else "",
    )
    report, recorded = evidence.record_evidence(
        options.root,
        package,
        tested,
        test="smoke",
        outcome=judgement.outcome,
        reasons=judgement.reasons,
        document=case.as_dict(),
    )
    return msgspec.structs.replace(case, recorded=recorded, report=report)


def _companions(package: Package) -> dict[str, str]:
    """Return the companion that is to be tested and its version; {} for a variant."""
    return {package.name: package.version} if isinstance(package, CompanionPackage) else {}


def _tested_file(package: Package, report: SmokeReport | None) -> str:
    """Return the file that the package was imported from, or "" if it was not imported."""
    if report is None or isinstance(package, Variant):
        return report.torch.file if report else ""
    facts = report.companions.get(package.name)
    return (facts.file if facts else None) or ""


def _run(
    package: Package, python: Path, env: dict[str, str | None], options: SmokeOptions
) -> SmokeRun:
    progress = ProgressLine(f"{package.id} by {python}", 0)
    try:
        ran = smoke_report.run(
            python,
            env,
            device=options.device,
            seconds=options.timeout * 60,
            on_wait=progress.at,
            companions=_companions(package),
        )
    finally:
        progress.end()
    found = len(ran.report.cuda.devices) if ran.report else 0
    if found and options.device >= found:
        raise BuildPytorchError(f"--device {options.device}: the last GPU here is {found - 1}")
    return ran


def _judged(ran: SmokeRun, package: Package, built: Artefact | None) -> Judgement:
    """Judge a run. The Python of a result (`built`) must import what is in that result."""
    if ran.report is None:
        return Judgement(outcome="failed", reasons=(ran.problem,))
    file = _tested_file(package, ran.report)
    if built and file and not built.holds(file):
        name = package.name if isinstance(package, CompanionPackage) else "torch"
        reason = f"imports another {name}, {file}, and not that of {built.output}"
        return Judgement(outcome="failed", reasons=(reason,))
    return judge(ran.report, package.variant, _companions(package))


def show(screen: Screen, case: SmokeCase) -> None:
    """Print the facts, the tests and the judgement of one package."""
    variant, report = case.package.variant, case.ran.report
    if report:
        screen.line(screen.paint(case.package.package, "bold"))
        for line in _facts(variant, report):
            screen.line(line)
        others = {t.name for t in report.declared if t.companion not in {"", *report.companions}}
        width = max(len(test.name) for test in report.declared if test.name not in others)
        for test in report.tests:
            if test.name in others:
                continue
            if test.name.startswith("cpu ") or (variant.gpu and report.cuda.available):
                painted = screen.paint(f"{test.outcome:<8}", _COLOURS[test.outcome])
                screen.line(f"  {painted} {test.name:<{width}} {_detail(test)}".rstrip())
    for note in case.judgement.notes:
        screen.fold("note: ", note)
    _print_verdict(screen, case)
    if case.report:
        unknown = evidence.unknown_recipe(case.package)
        why = unknown if case.output else "this is not the built package"
        not_recorded = "" if case.recorded else f"; not recorded: {why}"
        screen.line(f"report: {case.report}{not_recorded}\n")


def _print_verdict(screen: Screen, case: SmokeCase) -> None:
    first, *rest = case.judgement.reasons or ("",)
    outcome = case.judgement.outcome
    head = f"{case.package.id}: {outcome}{': ' if first else ''}"
    screen.fold(head, first, _COLOURS[outcome])
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
        if gpu.capability in variant.gpu.capabilities:
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
