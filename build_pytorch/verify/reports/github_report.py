"""The report as workflow commands, which GitHub Actions shows beside the lines of a change.

Source: GitHub Docs, "Workflow commands for GitHub Actions", setting an error message.
"""

from __future__ import annotations

from typing import TextIO

from build_pytorch.base import console
from build_pytorch.base.console import visible
from build_pytorch.verify.verification import VerificationResult


def write(result: VerificationResult, stream: TextIO) -> None:
    """Print the report on a stream."""
    for finding in result.findings:
        place = f"file={_property(finding.path)},line={finding.line},col={finding.column}"
        title = _property(f"{finding.check}: {result.checks[finding.check].title}")
        text = f"found {visible(finding.found)}; expected {finding.expected}; {finding.fix}"
        command = f"::{finding.severity} {place},title={title}::{_data(text)}\n"
        console.write(stream, command)
    for warning in result.context.matrix.warnings:
        console.write(stream, f"::warning::{_data(warning)}\n")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
