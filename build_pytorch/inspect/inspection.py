"""An inspection: the files of a variant, the parts that look at them, the result and its report."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.store import requisites
from build_pytorch.results import evidence
from build_pytorch.results.artefacts import Artefact
from build_pytorch.verify.check import Check, CheckOutcome, Finding

Progress = Callable[[str, int, int], None]
"""Called with what is read, how much of it is done, and how much there is (0: unknown)."""
Findings = Iterator[Finding]
State = Literal["passed", "failed", "skipped"]

_OURS: Final = re.compile(r"lib(?:torch|c10|caffe2|shm)\w*\.so")
"""PyTorch's own libraries, not those that a wheel bundles."""


def error(path: str, found: str, expected: str, fix: str = "") -> Finding:
    """Return a finding that fails the part."""
    return Finding(path=path, found=found, expected=expected, fix=fix)


def warning(path: str, found: str, expected: str, fix: str = "") -> Finding:
    """Return a finding that does not fail the part."""
    return Finding(path=path, found=found, expected=expected, fix=fix, severity="warning")


class Target(Struct, frozen=True, kw_only=True):
    """The built files of a variant. Without an artefact: a folder given by the user."""

    variant: Variant
    folder: Path
    """The folder of libtorch_cpu.so."""
    artefact: Artefact | None = None

    @property
    def output(self) -> str:
        """The store path behind the result link; empty for a folder."""
        return str(self.artefact.output) if self.artefact else ""

    def libraries(self) -> list[Path]:
        """Return PyTorch's own libraries."""
        return sorted(path for path in self.folder.iterdir() if _OURS.fullmatch(path.name))


def has_libtorch(folder: Path) -> bool:
    """Whether a folder has an entry with the name of PyTorch's library, of any file type."""
    return os.path.lexists(folder / "libtorch_cpu.so")


def built_target(variant: Variant, artefact: Artefact) -> Target:
    """Return the built files of a variant; the whole result if PyTorch is not found in it.

    Raises ToolError if the store cannot be queried.
    """
    output = artefact.output
    candidates = [*sorted(output.glob("lib/python3*/site-packages/torch/lib")), output / "lib"]
    folder = next(filter(has_libtorch, candidates), None)
    if folder is None:  # a derivation with a separate output for libraries
        others = (Path(path) / "lib" for path in requisites(str(output)))
        folder = next(filter(has_libtorch, others), output)
    return Target(variant=variant, folder=folder.resolve(), artefact=artefact)


def folder_target(variant: Variant, folder: Path) -> Target:
    """Return the files of a folder given by the user. Raises BuildPytorchError."""
    if not folder.is_dir():
        raise BuildPytorchError(f"--path {folder}: no such folder")
    if not has_libtorch(folder):
        raise BuildPytorchError(
            f"--path {folder}: no libtorch_cpu.so in it; give the folder of PyTorch's libraries, "
            "such as .../site-packages/torch/lib"
        )
    return Target(variant=variant, folder=folder.resolve())


class PartRun:
    """The input of a part, and what it reports besides its findings."""

    def __init__(self, target: Target, progress: Progress) -> None:
        self.target = target
        self.progress = progress
        self.subjects: list[str] = []
        """What the part looks at; the `path` of a finding is one of them."""
        self.figures: dict[str, Any] = {}
        self.undecided = ""
        """What could not be decided; if not empty, the part does not pass."""


class PartResult(Struct, frozen=True, kw_only=True):
    """The outcome of one part, with its measurements."""

    outcome: CheckOutcome
    figures: dict[str, Any] = {}

    @property
    def state(self) -> Literal["passed", "failed", "warning", "skipped"]:
        """The state of the outcome. Undecided counts as skipped, not as a warning."""
        state = self.outcome.state
        return "skipped" if state == "warning" and self.outcome.not_run else state

    @property
    def reason(self) -> str:
        """Why the part did not pass: its first error, or what could not be decided."""
        errors = [f for f in self.outcome.findings if f.severity == "error"]
        why = f"{errors[0].path}: {errors[0].found}" if errors else self.outcome.reason
        return f"{self.outcome.check.id}: {why}"

    def as_dict(self) -> dict[str, Any]:
        """Return the document for --json and for the report."""
        outcome, keys = self.outcome, ("path", "severity", "found", "expected")
        return {
            "id": outcome.check.id,
            "title": outcome.check.title,
            "state": self.state,
            "reason": outcome.reason,
            "passed": outcome.passed,
            "failed": outcome.failed,
            "findings": [
                {**{key: getattr(each, key) for key in keys}, "fix": each.fix}
                for each in outcome.findings
            ],
            "figures": self.figures,
        }


class Part(Check, frozen=True, kw_only=True):
    """One part of an inspection. `look` yields findings; it raises ToolError if it cannot look."""

    look: Callable[[PartRun], Findings]
    needs_result: bool = False
    """Whether it looks at a store path, so that a folder has nothing for it."""
    needs_files: bool = True
    """Whether it reads the libraries, so that they must be complete."""

    def inspect(self, target: Target, progress: Progress) -> PartResult:
        """Look at the files; skipped if a tool is missing or fails or a file cannot be read."""
        part = PartRun(target, progress)
        try:
            findings = tuple(self.attach(finding) for finding in self.look(part))
        except (ToolError, OSError) as reason:
            return self.skipped(str(reason).split("\n", maxsplit=1)[0])
        bad = {finding.path for finding in findings}
        good = tuple(name for name in part.subjects if name not in bad)
        outcome = CheckOutcome(
            check=self,
            passed=() if part.undecided else good,
            failed=tuple(name for name in part.subjects if name in bad),
            not_run=(good or (self.id,)) if part.undecided else (),
            reason=part.undecided,
            findings=findings,
        )
        return PartResult(outcome=outcome, figures=part.figures)

    def skipped(self, reason: str) -> PartResult:
        """Return the result of a part that could not look."""
        return PartResult(outcome=CheckOutcome(check=self, not_run=(self.id,), reason=reason))


class Inspection(Struct, frozen=True, kw_only=True):
    """The result for one variant. Without a target there was nothing to inspect."""

    variant: Variant
    target: Target | None
    parts: tuple[PartResult, ...] = ()
    problem: str = ""
    """Why there is no target."""
    report: str = ""
    """Path of the report below the root."""
    recorded: bool = False

    @property
    def state(self) -> State:
        """Failed if one part failed, passed if no part was skipped, else skipped."""
        states = {part.state for part in self.parts}
        if "failed" in states:
            return "failed"
        return "passed" if states and "skipped" not in states else "skipped"

    @property
    def outcome(self) -> State | Literal["not run"]:
        """The state for users: "not run" if there was nothing to inspect."""
        return self.state if self.target else "not run"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the variant did not pass."""
        if self.target is None:
            return (self.problem,)
        return tuple(part.reason for part in self.parts if part.state in {"failed", "skipped"})

    def as_dict(self) -> dict[str, Any]:
        """Return the document for --json and for the report."""
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
            "parts": [part.as_dict() for part in self.parts],
        }


def inspect_target(
    parts: Sequence[Part], variant: Variant, target: Target, progress: Progress
) -> Inspection:
    """Run the parts that apply; the first one checks whether the libraries are complete."""
    results: list[PartResult] = []
    for part in parts:
        if part.needs_result and not target.artefact:
            continue
        if part.needs_files and results[0].state == "failed":
            results.append(part.skipped("the libraries are not complete"))
        else:
            results.append(part.inspect(target, progress))
    return Inspection(variant=variant, target=target, parts=tuple(results))


def record(root: Path, result: Inspection) -> Inspection:
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
