"""The report for programs, as JSON."""

from __future__ import annotations

from typing import Any, TextIO

from build_pytorch.base.console import print_json
from build_pytorch.verify.verification import VerificationResult


def write(result: VerificationResult, stream: TextIO) -> None:
    """Print the report on a stream."""
    print_json(document(result), stream)


def document(result: VerificationResult) -> dict[str, Any]:
    """Return the report as a JSON object."""
    return {
        "root": str(result.context.root),
        "variants": [variant.id for variant in result.context.variants],
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
            for outcome in result.outcomes
        ],
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity,
                "file": finding.path,
                "line": finding.line,
                "column": finding.column,
                "found": finding.found,
                "expected": finding.expected,
                "fix": finding.fix,
            }
            for finding in result.findings
        ],
        "derivations": result.derivations(),
        "warnings": result.context.matrix.warnings,
        "exit_code": result.exit_code,
    }
