"""Reports of a verification: on a terminal, and workflow commands of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TextIO

from build_pytorch.base import console
from build_pytorch.base.console import Screen, visible
from build_pytorch.verify import check
from build_pytorch.verify.check import Finding
from build_pytorch.verify.verification import VerificationResult

_COLOURS: Final = {
    "failed": "red",
    "error": "red",
    "warning": "yellow",
    "skipped": "yellow",
    "passed": "green",
}


def show(result: VerificationResult, screen: Screen, *, verbose: bool = False) -> None:
    """Print findings, why checks were skipped, and the summary; if verbose, all checks."""
    for outcome in result.checks if verbose else ():
        reason = visible(f" ({outcome.reason})") if outcome.reason else ""
        text = f"{outcome.id}: {outcome.title}{reason}"
        screen.fold(f"  {outcome.state:<7}  ", text, _COLOURS[outcome.state], indent=11)
    alike = console.grouped(
        ((it.severity, it.check, it.found, it.expected), it) for it in result.findings
    )
    for group in [[finding] for finding in result.findings] if verbose else alike.values():
        _show_finding(group, screen)
    skipped = [it for it in result.checks if it.state == "skipped" and not verbose]
    reasons = console.grouped((it.reason, it.id) for it in skipped)
    if reasons:
        said = "; ".join(f"{console.some(ids, 1)}: {reason}" for reason, ids in reasons.items())
        screen.fold("skipped: ", said, "yellow")
    for note in result.notes if verbose else ():
        screen.fold("note: ", note, "yellow")
    screen.fold("", result.summary, indent=2)


def _show_finding(group: Sequence[Finding], screen: Screen) -> None:
    """Print the first of findings that differ only in their place, and where the others are."""
    finding, *others = group
    place = f"{visible(finding.path)}:{finding.line}:"
    head = f"{finding.severity}: {finding.check}"
    gap = " " if len(f"{place} {head}") <= console.WIDTH else "\n  "
    screen.line(f"{place}{gap}{screen.paint(head, _COLOURS[finding.severity])}")
    screen.fold("    found:    ", visible(finding.found), indent=14)
    screen.fold("    expected: ", visible(finding.expected), indent=14)
    screen.fold("    fix:      ", visible(finding.fix), indent=14)
    if others:
        where = console.some([f"{each.path}:{each.line}" for each in others], 2)
        places = f"{console.counted(len(others), 'place')}: {where}"
        screen.fold("    also in:  ", places, indent=14)


def explain(name: str, screen: Screen) -> None:
    """Print why checks matter and how to fix their findings: one check, or those of a category.

    Raises BuildPytorchError for an unknown name.
    """
    for each in check.chosen([name]):
        screen.fold(f"{each.id}: ", each.title)
        screen.fold("  Why: ", each.why, indent=7)
        screen.fold("  Fix: ", each.fix, indent=7)


def print_annotations(result: VerificationResult, stream: TextIO) -> None:
    """Print workflow commands, which GitHub Actions shows beside the lines of a change.

    Source: GitHub Docs, "Workflow commands for GitHub Actions", setting an error message.
    """

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    titles = {outcome.id: outcome.title for outcome in result.checks}
    for finding in result.findings:
        place = f"file={value(finding.path)},line={finding.line}"
        title = value(f"{finding.check}: {titles[finding.check]}")
        said = f"found {visible(finding.found)}; expected {finding.expected}; {finding.fix}"
        console.write(stream, f"::{finding.severity} {place},title={title}::{data(said)}\n")
    for note in result.notes:
        console.write(stream, f"::notice::{data(note)}\n")
