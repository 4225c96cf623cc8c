"""What came of a proof: for people, for programs, for the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from build_pytorch.base.console import Screen, counted, visible
from build_pytorch.inspect.inspection import Proof, State, Target, state_of
from build_pytorch.matrix.model import Variant
from build_pytorch.results import evidence
from build_pytorch.verify.check import Finding

_COLOURS: Final = {"failed": "red", "warning": "yellow", "skipped": "yellow", "passed": "green"}


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one variant. Without a target there was nothing to look at."""

    variant: Variant
    target: Target | None
    proofs: tuple[Proof, ...] = ()
    reasons: tuple[str, ...] = ()
    report: str = ""
    """Where the whole report is kept, below the root."""
    recorded: bool = False

    @property
    def state(self) -> State:
        """Passed where every part passed."""
        return state_of(self.proofs)

    @property
    def outcome(self) -> State | Literal["not run"]:
        """The same for people and programs: what was not there was not looked at."""
        return self.state if self.target else "not run"

    def as_dict(self) -> dict[str, Any]:
        """For --json and for the report."""
        return {
            "release": self.variant.release_name,
            "variant": self.variant.id,
            "package": self.variant.package,
            "outcome": self.outcome,
            "reasons": list(self.reasons),
            "folder": str(self.target.folder) if self.target else "",
            "output": self.target.output if self.target else "",
            "recorded": self.recorded,
            "report": self.report,
            "parts": [_part(proof) for proof in self.proofs],
        }


def record(root: Path, result: Proved) -> Proved:
    """Save the report and record the inspection of a built result. Raises WriteError."""
    if result.target is None or result.target.artefact is None:
        return result
    report, recorded = evidence.record_evidence(
        root,
        result.variant,
        result.target.artefact,
        test="inspect",
        outcome=result.state,
        reasons=result.reasons,
        document=result.as_dict(),
    )
    return msgspec.structs.replace(result, report=report, recorded=recorded)


def _part(proof: Proof) -> dict[str, Any]:
    outcome = proof.outcome
    return {
        "id": outcome.check.id,
        "title": outcome.check.title,
        "state": proof.state,
        "reason": outcome.reason,
        "passed": outcome.passed,
        "failed": outcome.failed,
        "findings": [
            {
                "path": finding.path,
                "severity": finding.severity,
                "found": finding.found,
                "expected": finding.expected,
                "fix": finding.fix,
            }
            for finding in outcome.findings
        ],
        "figures": proof.figures,
    }


def show(screen: Screen, result: Proved) -> None:
    """Print what came of one variant."""
    painted = screen.paint(result.outcome, _COLOURS.get(result.outcome, "yellow"))
    screen.line(f"{screen.paint(result.variant.id, 'bold')}  {painted}")
    if result.target is None:
        for reason in result.reasons:
            screen.line(visible(f"  {reason}"))
        return
    screen.line(f"  {result.target.folder}")
    width = max(len(proof.outcome.check.id) for proof in result.proofs)
    for proof in result.proofs:
        outcome = proof.outcome
        painted = screen.paint(f"{proof.state:<7}", _COLOURS[proof.state])
        reason = visible(f" ({outcome.reason})") if outcome.reason else ""
        screen.line(f"  {painted}  {outcome.check.id:<{width}}  {outcome.check.title}{reason}")
        for finding in outcome.findings:
            _finding(screen, finding)
    findings = [finding for proof in result.proofs for finding in proof.outcome.findings]
    errors = sum(finding.severity == "error" for finding in findings)
    screen.line(
        f"  {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
        + (f"; report: {result.report}" if result.report else "")
    )
    if result.report and not result.recorded:
        screen.line(f"  not recorded: {evidence.unknown_recipe(result.variant)}")


def _finding(screen: Screen, finding: Finding) -> None:
    colour = "red" if finding.severity == "error" else "yellow"
    screen.line(
        f"    {screen.paint(finding.severity, colour)}  {finding.path}: {visible(finding.found)}"
    )
    screen.line(f"      expected: {finding.expected}")
    screen.line(f"      fix: {finding.fix}")
