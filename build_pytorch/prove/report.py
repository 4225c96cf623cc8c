"""What came of a proof: for people, for programs, for the ledger."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch import digest, paths
from build_pytorch.builds.ledger import REPORTS, Ended, Ledger, Tested, now
from build_pytorch.checks.base import Finding
from build_pytorch.console import Screen, counted, visible
from build_pytorch.errors import BuildPytorchError, WriteError
from build_pytorch.model import Variant
from build_pytorch.prove.parts import Proof, State, Target, state_of

_COLOURS: Final = {"failed": "red", "warning": "yellow", "skipped": "yellow", "passed": "green"}


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one variant. Without a target there was nothing to look at."""

    variant: Variant
    target: Target | None
    proofs: tuple[Proof, ...] = ()
    reason: str = ""
    report: str = ""

    @property
    def state(self) -> State:
        """Passed where every part passed."""
        return state_of(self.proofs)

    def as_dict(self) -> dict[str, Any]:
        """For --json and for the report."""
        return {
            "release": self.variant.release_name,
            "variant": self.variant.id,
            "package": self.variant.package,
            "outcome": self.state,
            "reason": self.reason,
            "folder": str(self.target.folder) if self.target else "",
            "output": self.target.output if self.target else "",
            "report": self.report,
            "parts": [_part(proof) for proof in self.proofs],
        }


def record(root: Path, result: Proved) -> Proved:
    """Write the report and a line of the ledger."""
    variant, target = result.variant, result.target
    if target is None:
        return result
    moment = now()
    stamp = moment[:19].replace(":", "").replace("-", "")
    name = f"prove-{variant.release_name}-{variant.id}-{stamp}.json"
    report = f"{paths.STATE}/{REPORTS}/{name}"
    result = msgspec.structs.replace(result, report=report)
    _write(root, report, {"at": moment, **result.as_dict()})
    ledger = Ledger(root)
    ledger.append(
        Tested(
            at=moment,
            release=variant.release_name,
            variant=variant.id,
            digest=_digest(root, variant, target.output, ledger),
            by="binary",
            outcome=result.state,
            output=target.output,
            reason=result.reason,
            report=report,
        )
    )
    return result


def _digest(root: Path, variant: Variant, output: str, ledger: Ledger) -> str:
    """The digest of the recipe that the output was built from: the ledger knows, or it is today's.

    A recipe that changed after its build was not proved by what it built before.
    """
    for event in reversed(ledger.of(variant)):
        if isinstance(event, Ended) and output in event.outputs:
            return event.digest
    try:
        return digest.of_bytes(paths.read_file(root / variant.path))
    except OSError as error:
        raise BuildPytorchError(f"{variant.path}: cannot be read: {error.strerror}") from None


def _write(root: Path, report: str, document: dict[str, Any]) -> None:
    """Write a report whole or not at all. Raises WriteError."""
    path = root / report
    beside = path.with_name(f".{path.name}.tmp")
    try:
        paths.make_state(root / paths.STATE)
        path.parent.mkdir(exist_ok=True)
        with beside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None


def _part(proof: Proof) -> dict[str, Any]:
    outcome = proof.outcome
    return {
        "id": outcome.check.id,
        "title": outcome.check.title,
        "state": outcome.state,
        "reason": outcome.reason,
        "passed": outcome.passed,
        "failed": outcome.failed,
        "findings": [
            {
                "path": finding.problem.path,
                "severity": finding.problem.severity,
                "found": finding.problem.found,
                "expected": finding.problem.expected,
                "mend": finding.mend,
            }
            for finding in outcome.findings
        ],
        "figures": proof.figures,
    }


def show(screen: Screen, result: Proved) -> None:
    """Print what came of one variant."""
    state = result.state if result.target else "not run"
    painted = screen.paint(state, _COLOURS.get(state, "yellow"))
    screen.line(f"{screen.paint(result.variant.id, 'bold')}  {painted}")
    if result.target is None:
        screen.line(f"  {result.reason}")
        return
    screen.line(f"  {result.target.folder}")
    width = max(len(proof.outcome.check.id) for proof in result.proofs)
    for proof in result.proofs:
        outcome = proof.outcome
        painted = screen.paint(f"{outcome.state:<7}", _COLOURS[outcome.state])
        reason = f" ({outcome.reason})" if outcome.reason else ""
        screen.line(f"  {painted}  {outcome.check.id:<{width}}  {outcome.check.title}{reason}")
        for finding in outcome.findings:
            _finding(screen, finding)
    findings = [finding for proof in result.proofs for finding in proof.outcome.findings]
    errors = sum(finding.problem.severity == "error" for finding in findings)
    screen.line(
        f"  {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
        + (f"; {result.report}" if result.report else "")
    )


def _finding(screen: Screen, finding: Finding) -> None:
    problem = finding.problem
    colour = "red" if problem.severity == "error" else "yellow"
    screen.line(
        f"    {screen.paint(problem.severity, colour)}  {problem.path}: {visible(problem.found)}"
    )
    screen.line(f"      expected: {problem.expected}")
    screen.line(f"      mend: {finding.mend}")
