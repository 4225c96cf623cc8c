"""What people and programs are told of a verification: table, JSON, SARIF, JUnit, annotations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from build_pytorch.base.console import Screen, counted, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.verify.check import CheckOutcome, Context, Finding

_COLOURS: Final = {"failed": "red", "warning": "yellow", "skipped": "yellow", "passed": "green"}


class VerificationResult:
    """What came of all checks. With `strict`, warnings and skipped checks fail as well."""

    def __init__(
        self, context: Context, outcomes: Sequence[CheckOutcome], *, strict: bool = False
    ) -> None:
        self.context = context
        self.outcomes = outcomes
        self.strict = strict
        self.findings = [finding for outcome in outcomes for finding in outcome.findings]
        self.states = Counter(outcome.state for outcome in outcomes)
        self.severities = Counter(finding.problem.severity for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """1 where a finding is an error, or anything but passed where strict."""
        if self.severities["error"]:
            return EXIT_FINDINGS
        is_perfect = self.states.total() == self.states["passed"]
        if self.strict and not (is_perfect and not self.context.matrix.warnings):
            return EXIT_FINDINGS
        return EXIT_OK

    @property
    def summary(self) -> str:
        """One line with all counts."""
        wanted = len(self.context.variants)
        present = sum(1 for _ in self.context.present())
        warnings = self.severities["warning"] + len(self.context.matrix.warnings)
        states = ", ".join(f"{number} {state}" for state, number in sorted(self.states.items()))
        return (
            f"{present} of {wanted} recipes, {counted(len(self.outcomes), 'check')}: {states}; "
            f"{counted(self.severities['error'], 'error')}, "
            f"{counted(warnings, 'warning')}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "root": str(self.context.root),
            "variants": [variant.id for variant in self.context.variants],
            "checks": [
                {
                    "id": outcome.check.id,
                    "title": outcome.check.title,
                    "state": outcome.state,
                    "passed": len(outcome.passed),
                    "failed": len(outcome.failed),
                    "skipped": len(outcome.not_run),
                    "reason": outcome.reason,
                }
                for outcome in self.outcomes
            ],
            "findings": [_finding(finding) for finding in self.findings],
            "derivations": self._derivations() if self.context.pinned else {},
            "warnings": self.context.matrix.warnings,
            "exit_code": self.exit_code,
        }

    def _derivations(self) -> dict[str, str]:
        """The derivation path of each variant, which the pinned nixpkgs makes real ones."""
        from build_pytorch.verify.recipe_evaluation import evaluated

        results = evaluated(self.context).results
        return {
            variant.id: result.facts.drv_path
            for variant, recipe in self.context.present()
            if (result := results.get(recipe.path)) and result.facts and result.facts.drv_path
        }

    def print(self, screen: Screen) -> None:
        """Print the table of checks, then the findings by file, then the summary."""
        screen.line(screen.paint("Verification", "bold"))
        width = max((len(outcome.check.id) for outcome in self.outcomes), default=0)
        screen.line(f"  {'state':<7}  {'check':<{width}}  pass  fail  skip")
        for outcome in self.outcomes:
            state = screen.paint(f"{outcome.state:<7}", _COLOURS[outcome.state])
            counts = "  ".join(
                f"{len(subjects) or '':>4}"
                for subjects in (outcome.passed, outcome.failed, outcome.not_run)
            )
            reason = f" ({outcome.reason})" if outcome.reason else ""
            screen.line(
                f"  {state}  {outcome.check.id:<{width}}  {counts}  {outcome.check.title}{reason}"
            )
        for path in dict.fromkeys(finding.problem.path for finding in self.findings):
            screen.line(screen.paint(visible(path), "bold"))
            for finding in self.findings:
                if finding.problem.path == path:
                    _print_finding(screen, finding)
        if self.context.pinned:
            for variant, derivation in self._derivations().items():
                screen.line(f"{variant}  {derivation}")
        for warning in self.context.matrix.warnings:
            screen.line(f"{screen.paint('warning:', 'yellow')} {warning}")
        screen.line(self.summary)


def github_annotations(result: VerificationResult) -> list[str]:
    """Workflow commands that GitHub Actions shows beside the lines of a change.

    Source: GitHub Docs, "Workflow commands for GitHub Actions", setting an error message.
    """
    lines = []
    for finding in result.findings:
        problem = finding.problem
        place = f"file={_property(problem.path)},line={problem.line},col={problem.column}"
        text = f"found {visible(problem.found)}; expected {problem.expected}; {finding.fix}"
        title = _property(f"{finding.check.id}: {finding.check.title}")
        lines.append(f"::{problem.severity} {place},title={title}::{_data(text)}")
    lines.extend(f"::warning::{_data(warning)}" for warning in result.context.matrix.warnings)
    return lines


def write_sarif(result: VerificationResult, path: Path) -> None:
    """Write the result as SARIF 2.1.0 (OASIS standard). Raises OSError."""
    rules = {outcome.check.id: outcome.check for outcome in result.outcomes}
    order = list(rules)
    run = {
        "tool": {
            "driver": {
                "name": "build-pytorch",
                "rules": [
                    {
                        "id": check.id,
                        "shortDescription": {"text": check.title},
                        "fullDescription": {"text": check.why},
                        "help": {"text": f"{check.why} To fix it: {check.fix}."},
                    }
                    for check in rules.values()
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": result.context.root.as_uri() + "/"}},
        "results": [
            {
                "ruleId": finding.check.id,
                "ruleIndex": order.index(finding.check.id),
                "level": finding.problem.severity,
                "message": {
                    "text": f"{finding.check.title}. Found {finding.problem.found}; "
                    f"expected {finding.problem.expected}. To fix it: {finding.fix}."
                },
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {
                                "uri": _uri(finding.problem.path),
                                "uriBaseId": "SRCROOT",
                            },
                            "region": {
                                "startLine": finding.problem.line,
                                "startColumn": finding.problem.column,
                            },
                        }
                    }
                ],
            }
            for finding in result.findings
        ],
    }
    document = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def write_junit(result: VerificationResult, path: Path) -> None:
    """Write the result as JUnit XML: a suite for each check, a case for each recipe it saw."""
    from xml.etree import ElementTree as ET

    suites = ET.Element("testsuites", name="build-pytorch")
    for outcome in result.outcomes:
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=outcome.check.id,
            tests=str(len(outcome.passed) + len(outcome.failed) + len(outcome.not_run)),
            failures=str(len(outcome.failed)),
            errors="0",
            skipped=str(len(outcome.not_run)),
        )
        for subject in outcome.passed:
            ET.SubElement(suite, "testcase", classname=outcome.check.id, name=subject)
        for subject in outcome.failed:
            case = ET.SubElement(suite, "testcase", classname=outcome.check.id, name=subject)
            found = [f for f in outcome.findings if subject in {"tree", f.problem.path}]
            failure = ET.SubElement(case, "failure", message=outcome.check.title)
            failure.text = "\n".join(
                f"{f.problem.path}:{f.problem.line}: found {visible(f.problem.found)}; "
                f"expected {f.problem.expected}; {f.fix}"
                for f in found
            )
        for subject in outcome.not_run:
            case = ET.SubElement(suite, "testcase", classname=outcome.check.id, name=subject)
            ET.SubElement(case, "skipped", message=outcome.reason)
    ET.indent(suites)
    ET.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def _finding(finding: Finding) -> dict[str, Any]:
    problem = finding.problem
    return {
        "check": finding.check.id,
        "severity": problem.severity,
        "file": problem.path,
        "line": problem.line,
        "column": problem.column,
        "found": problem.found,
        "expected": problem.expected,
        "fix": finding.fix,
    }


def _print_finding(screen: Screen, finding: Finding) -> None:
    problem = finding.problem
    colour = "red" if problem.severity == "error" else "yellow"
    head = screen.paint(f"{problem.severity}: {finding.check.id}", colour)
    screen.line(f"  {visible(problem.path)}:{problem.line}: {head}")
    screen.line(f"    found:    {visible(problem.found)}")
    screen.line(f"    expected: {problem.expected}")
    screen.line(f"    fix:     {finding.fix}")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path)
