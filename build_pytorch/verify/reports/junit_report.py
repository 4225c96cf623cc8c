"""The report as JUnit XML: a suite for each check, a case for each subject of the check."""

from __future__ import annotations

from typing import TextIO
from xml.etree import ElementTree as ET

from build_pytorch.base.console import visible
from build_pytorch.verify.verification import VerificationResult


def write(result: VerificationResult, stream: TextIO) -> None:
    """Print the report on a stream."""
    suites = ET.Element("testsuites", name="build-pytorch")
    for outcome in result.outcomes:
        name = outcome.check.id
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=name,
            tests=str(len(outcome.passed) + len(outcome.failed) + len(outcome.not_run)),
            failures=str(len(outcome.failed)),
            errors="0",
            skipped=str(len(outcome.not_run)),
        )
        for subject in (*outcome.passed, *outcome.failed, *outcome.not_run):
            case = ET.SubElement(suite, "testcase", classname=name, name=visible(subject))
            if subject in outcome.failed:
                failure = ET.SubElement(case, "failure", message=outcome.check.title)
                failure.text = "\n".join(
                    f"{visible(f.path)}:{f.line}: found {visible(f.found)}; "
                    f"expected {f.expected}; {f.fix}"
                    for f in outcome.findings
                    if f.subject == subject
                )
            elif subject in outcome.not_run:
                ET.SubElement(case, "skipped", message=visible(outcome.reason))
    ET.indent(suites)
    ET.ElementTree(suites).write(stream, encoding="unicode", xml_declaration=True)
