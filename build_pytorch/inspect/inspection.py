"""An inspection: finds the files of a package, runs the parts, records the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from build_pytorch.base import files, foreign_json
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.inspect.configuration import check_config, check_features
from build_pytorch.inspect.device_code import check_libraries
from build_pytorch.inspect.target import Findings, InspectionFinding, Target, check_closure
from build_pytorch.matrix.model import Package
from build_pytorch.results import artefacts, evidence, ledger

Outcome = Literal["failed", "skipped", "warning", "passed"]
_STATES: Final[dict[str, Outcome]] = {
    "error": "failed", "undecided": "skipped", "warning": "warning",
}  # fmt: skip
"""The state of a part by the worst severity of its findings, the worst first."""


class PartResult(Struct, kw_only=True):
    """The outcome of one part; the fields are keys of --json. skipped: something is undecided."""

    id: str
    state: Outcome = "passed"
    findings: list[InspectionFinding] = []
    figures: dict[str, Any] = {}


class Inspection(Struct, frozen=True, kw_only=True):
    """The result for one package; the fields are the keys of --json and of the report.

    It failed if one part failed, and passed if none was skipped either.
    """

    variant: str
    outcome: Literal["passed", "failed", "skipped", "not run"] = "not run"
    reasons: tuple[str, ...] = ()
    folder: str = ""
    recorded: bool = False
    report: str = ""  #: path below the root
    parts: tuple[PartResult, ...] = ()


PARTS: Final[dict[str, tuple[Callable[[Target, dict[str, Any]], Findings], str]]] = {
    "libraries": (check_libraries, "build again; look at gpuTargets in the recipe as well"),
    "config": (check_config, "build the variant again from its recipe"),
    "features": (check_features, "look for it in CMake's summary in the log, and for a rule"),
    "closure": (check_closure, "look at the overlays, or raise closure_gib in matrix.toml"),
}
"""Each part: the check, which raises ToolError or OSError if it cannot look, and the fix."""


def folder_target(package: Package, folder: Path) -> Target:
    """Return the files of a folder given by the user. Raises BuildPytorchError."""
    target = Target(package=package, folder=folder.absolute())
    if not target.has_main(folder):
        fix = f"give the folder that has it, such as .../site-packages/{target.product.folder}"
        raise BuildPytorchError(f"--path {folder}: no {target.product.main[0]} in it; {fix}")
    return target


def inspect_result(root: Path, package: Package) -> Inspection:
    """Inspect the result of a package; save and record the report. Raises WriteError."""
    try:
        output = artefacts.find(root, package)
    except ToolError as error:
        return Inspection(variant=package.id, reasons=(str(error),))
    earlier = _earlier(root, package, str(output))
    target = Target(package=package, folder=output, output=str(output), earlier=earlier)
    places = sorted(output.glob(f"lib/python3*/site-packages/{target.product.folder}"))
    target.folder = next(filter(target.has_main, places), output)
    result = inspect_target(target)
    return evidence.record_evidence(root, package, output, test="inspect", result=result)


def _earlier(root: Path, package: Package, output: str) -> tuple[str, int]:
    """Return the last report on another result of a package, and the bytes of its closure."""
    events = [e for e in ledger.read(root).events if e.subject == ledger.subject_of(package)]
    others = [e.report for e in events if e.by == "inspect" and e.output != output]
    for report in others[-1:]:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            data = files.read_below(root, report, files.LARGEST_TEXT)
            return report, int(foreign_json.decode(data)["parts"][-1]["figures"]["bytes"])
    return "", 0  # none, deleted, or without a closure


def inspect_target(target: Target) -> Inspection:
    """Run the parts that apply. One is undecided if a tool fails or a file cannot be read."""
    left_out = set() if target.output else {"closure"}
    left_out |= {"features"} if target.package.companion else set()
    parts, reasons = [], []
    for name, (check, fix) in PARTS.items():
        if name in left_out:
            continue
        part = PartResult(id=name)
        try:
            part.findings = list(check(target, part.figures))
        except (ToolError, OSError) as error:
            why = str(error).partition("\n")[0]
            part.findings = [InspectionFinding("undecided", name, why)]
        for finding in part.findings:
            finding.fix = finding.fix or fix
        part.findings.sort(key=lambda finding: list(_STATES).index(finding.severity))
        for worst in part.findings[:1]:
            part.state = _STATES[worst.severity]
            reasons.append((part.state, f"{name}: {worst.path}: {worst.found}"))
        parts.append(part)
    worst_state = min((part.state for part in parts), key=[*_STATES.values(), "passed"].index)
    outcome: Literal["failed", "skipped", "passed"]
    outcome = "passed" if worst_state == "warning" else worst_state
    return Inspection(
        variant=target.package.id,
        outcome=outcome,
        reasons=tuple(text for state, text in reasons if state == outcome),
        folder=str(target.folder),
        parts=tuple(parts),
    )
