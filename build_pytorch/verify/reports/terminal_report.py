"""The report for people: the table of checks, the findings by file, the summary."""

from __future__ import annotations

from typing import Final, TextIO

from build_pytorch.base.console import Screen, visible
from build_pytorch.verify.verification import VerificationResult

_COLOURS: Final = {"failed": "red", "warning": "yellow", "skipped": "yellow", "passed": "green"}
_SEVERITY_COLOURS: Final = {"error": "red", "warning": "yellow"}


def write(result: VerificationResult, stream: TextIO) -> None:
    """Print the report on a stream."""
    show(result, Screen(stream))


def show(result: VerificationResult, screen: Screen) -> None:
    """Print the report."""
    screen.line(screen.paint("Verification", "bold"))
    width = max((len(check) for check in result.checks), default=0)
    screen.line(f"  {'state':<7}  {'check':<{width}}  pass  fail  skip")
    for outcome in result.outcomes:
        state = screen.paint(f"{outcome.state:<7}", _COLOURS[outcome.state])
        subjects = (outcome.passed, outcome.failed, outcome.not_run)
        counts = "  ".join(f"{len(names) or '':>4}" for names in subjects)
        title = outcome.check.title + (f" ({visible(outcome.reason)})" if outcome.reason else "")
        screen.line(f"  {state}  {outcome.check.id:<{width}}  {counts}  {title}")
    for path in dict.fromkeys(finding.path for finding in result.findings):
        screen.line(screen.paint(visible(path), "bold"))
        for finding in result.findings:
            if finding.path == path:
                colour = _SEVERITY_COLOURS[finding.severity]
                head = screen.paint(f"{finding.severity}: {finding.check}", colour)
                screen.line(f"  {visible(path)}:{finding.line}: {head}")
                screen.line(f"    found:    {visible(finding.found)}")
                screen.line(f"    expected: {finding.expected}")
                screen.line(f"    fix:      {finding.fix}")
    for variant, derivation in result.derivations().items():
        screen.line(f"{variant}  {derivation}")
    for warning in result.context.matrix.warnings:
        screen.line(f"{screen.paint('warning:', 'yellow')} {warning}")
    screen.line(result.summary)
