"""The report as SARIF 2.1.0 (OASIS standard), for code scanning."""

from __future__ import annotations

from typing import Any, Final, TextIO
from urllib.parse import quote

from build_pytorch.base.console import print_json
from build_pytorch.verify.check import Check, Finding
from build_pytorch.verify.verification import VerificationResult

_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def write(result: VerificationResult, stream: TextIO) -> None:
    """Print the report on a stream."""
    checks = result.checks
    indices = {check: index for index, check in enumerate(checks)}
    run = {
        "tool": {"driver": {"name": "build-pytorch", "rules": [_rule(c) for c in checks.values()]}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": result.context.root.as_uri() + "/"}},
        "results": [
            _result(finding, checks[finding.check], indices[finding.check])
            for finding in result.findings
        ],
    }
    print_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, stream)


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": check.why},
        "help": {"text": f"{check.why} Fix: {check.fix}."},
    }


def _result(finding: Finding, check: Check, index: int) -> dict[str, Any]:
    text = f"{check.title}. Found {finding.found}; expected {finding.expected}. Fix: {finding.fix}."
    artifact = {"uri": quote(finding.path), "uriBaseId": "SRCROOT"}
    region = {"startLine": finding.line, "startColumn": finding.column}
    place = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    return {
        "ruleId": check.id,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": text},
        "locations": [place],
    }
