"""The command behind `nox -s smoke -- ...` and `invoke smoke`."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from build_pytorch.base.console import ProgressLine, Screen, print_json
from build_pytorch.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_UNDECIDED,
    BuildPytorchError,
    ToolError,
)
from build_pytorch.cli.commands import SmokeOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.selection import select
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import runner, script, smoke_view
from build_pytorch.smoke.judge import Judgement, judge, lacks
from build_pytorch.smoke.runner import Ran


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One variant: what became of it, and what is kept of it."""

    variant: Variant
    judgement: Judgement
    ran: Ran = Ran()
    python: str = ""
    output: str = ""
    """The store path, where it is that which was tested."""
    recorded: bool = False
    report: str = ""
    """Where the whole report is kept, below the root."""

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "release": self.variant.release_name,
            "variant": self.variant.id,
            "package": self.variant.package,
            **msgspec.to_builtins(self.judgement),
            "python": self.python,
            "output": self.output,
            "recorded": self.recorded,
            "report": self.report,
            "script": self.ran.raw or None,
        }


def run(options: SmokeOptions) -> int:
    """Test every variant chosen, record what was proved, print it, return the exit code.

    0: all passed; 1: one failed; 3: none failed, and not all are proved. Raises BuildPytorchError
    for bad input.
    """
    fleet = matrix_reader.load()
    _check(options)
    variants = select(fleet, options.variants)
    root = options.root
    python = _python(options.python) if options.python else None
    screen = Screen(sys.stderr if options.json else sys.stdout)
    cases = []
    for variant in variants:
        case = _test(root, variant, python, options)
        cases.append(case)
        if case.judgement.outcome != "not run":
            smoke_view.show(screen, variant, case.judgement, case.ran.report)
            screen.line(_kept(case))
    smoke_view.not_run(screen, [(c.variant, c.judgement) for c in cases])
    code = exit_code([case.judgement for case in cases])
    if options.json:
        print_json({"variants": [case.as_dict() for case in cases], "exit_code": code}, sys.stdout)
    return code


def exit_code(judgements: Sequence[Judgement]) -> int:
    """0 where every variant passed, 1 where one failed, else 3: a compatible run is no proof."""
    outcomes = {judgement.outcome for judgement in judgements}
    if "failed" in outcomes:
        return EXIT_FINDINGS
    return EXIT_OK if outcomes == {"passed"} else EXIT_UNDECIDED


def _test(root: Path, variant: Variant, python: Path | None, options: SmokeOptions) -> Case:
    def ended(outcome: Literal["skipped", "not run"], reason: str) -> Case:
        return Case(variant=variant, judgement=Judgement(outcome=outcome, reasons=(reason,)))

    built = artefacts.find(root, variant)
    if built is None and python is None:
        return ended("not run", artefacts.absence(root, variant))
    if reason := lacks(variant, platform.machine(), script.cpu_facts()["flags"]):
        return ended("skipped", reason)  # not even started: it would end by SIGILL at best
    if python is not None:
        ran = _run(variant, python, {}, options)
        report = ran.report
        if report and "No module named 'torch'" in report.torch.import_error:
            raise BuildPytorchError(f"--python {python}: has no torch; name a Python that has it")
        is_built = bool(built and report and built.holds(report.torch.file))
        judgement = _judged(ran, variant, None)
    elif built is not None:
        try:
            python, env = artefacts.interpreter(built, variant.release.python.version)
            ran = _run(variant, python, env, options)
        except ToolError as error:  # it says nothing of the other variants
            return ended("not run", str(error))
        is_built = True
        judgement = _judged(ran, variant, built)
    case = Case(
        variant=variant,
        judgement=judgement,
        ran=ran,
        python=str(python),
        output=str(built.output) if built and is_built else "",
    )
    return _recorded(root, case, built if is_built else None)


def _run(variant: Variant, python: Path, env: dict[str, str | None], options: SmokeOptions) -> Ran:
    progress = ProgressLine(f"{variant.id} by {python}", 0)
    try:
        ran = runner.run(
            python, env, device=options.device, seconds=options.timeout * 60, tell=progress.at
        )
    finally:
        progress.end()
    found = len(ran.report.cuda.devices) if ran.report else 0
    if found and options.device >= found:
        raise BuildPytorchError(f"--device {options.device}: the last GPU here is {found - 1}")
    return ran


def _judged(ran: Ran, variant: Variant, built: Artefact | None) -> Judgement:
    """What a run proves; one by the built Python proves nothing where torch is from elsewhere."""
    if ran.report is None:
        return Judgement(outcome="failed", reasons=(ran.problem,))
    torch = ran.report.torch
    if built and torch.file and not built.holds(torch.file):
        reason = f"imports another torch, {torch.file}, and not that of {built.output}"
        return Judgement(outcome="failed", reasons=(reason,))
    return judge(ran.report, variant)


def _recorded(root: Path, case: Case, built: Artefact | None) -> Case:
    """Save the report, and record the test where the artefact itself (`built`) was tested."""
    judgement = case.judgement
    report, recorded = evidence.record_evidence(
        root,
        case.variant,
        built,
        test="smoke",
        outcome=judgement.outcome,
        reasons=judgement.reasons,
        document=case.as_dict(),
    )
    return msgspec.structs.replace(case, recorded=recorded, report=report)


def _kept(case: Case) -> str:
    """Where the report is, and why there is no record."""
    if not case.report or case.recorded:
        return f"report: {case.report}\n" if case.report else ""
    why = evidence.unknown_recipe(case.variant) if case.output else "this is not the built variant"
    return f"report: {case.report}; not recorded: {why}\n"


def _check(options: SmokeOptions) -> None:
    if options.device < 0:
        raise BuildPytorchError(f"--device {options.device}: GPUs are counted from 0")
    if not 0 < options.timeout < float("inf"):
        raise BuildPytorchError(f"--timeout {options.timeout:g}: give minutes, more than 0")


def _python(name: str) -> Path:
    """The Python that a person named, absolute; a symbolic link of a venv stays one."""
    found = shutil.which(name)
    if found is None:
        raise BuildPytorchError(f"--python {name}: no such program; name a Python that has torch")
    return Path(found).absolute()
