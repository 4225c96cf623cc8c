"""Reports of a verification: on a terminal, and workflow commands of GitHub Actions."""

from __future__ import annotations

from typing import Final, TextIO

from build_pytorch.base import console
from build_pytorch.base.console import Screen, counted, grouped, some, visible
from build_pytorch.verify import check
from build_pytorch.verify.verification import VerificationResult

_COLOURS: Final = {"failed": "red", "error": "red", "passed": "green"}


def show(result: VerificationResult, screen: Screen, *, verbose: bool = False) -> None:
    """Print findings, why checks were skipped, and the summary; if verbose, all checks.

    Of findings that differ only in their place, the first is printed, and where the others are.
    """
    for outcome in result.checks if verbose else ():
        reason = visible(f" ({outcome.reason})") if outcome.reason else ""
        text = f"{outcome.id}: {outcome.title}{reason}"
        colour = _COLOURS.get(outcome.state, "yellow")
        screen.fold(f"  {outcome.state:<7}  ", text, colour, indent=11)
    groups = grouped(
        ((it.severity, it.check, it.found, it.expected, verbose and it.path), it)
        for it in result.findings
    )
    for finding, *others in groups.values():
        place = f"{visible(finding.path)}:{finding.line}:"
        head = f"{finding.severity}: {finding.check}"
        gap = " " if len(f"{place} {head}") <= console.WIDTH else "\n  "
        colour = _COLOURS.get(finding.severity, "yellow")
        screen.line(f"{place}{gap}{screen.paint(head, colour)}")
        also = f"{counted(len(others), 'place')}: {some([f'{it.path}:{it.line}' for it in others])}"
        parts = {"found": finding.found, "expected": finding.expected, "fix": finding.fix}
        for name, text in {**parts, "also in": also if others else ""}.items():
            if text:
                screen.fold(f"    {name + ':':<10}", visible(text), indent=14)
    reasons = grouped((it.reason, it.id) for it in result.checks if it.state == "skipped")
    if reasons and not verbose:
        said = "; ".join(f"{some(ids, 1)}: {reason}" for reason, ids in reasons.items())
        screen.fold("skipped: ", said, "yellow")
    for note in result.notes if verbose else ():
        screen.fold("note: ", note, "yellow")
    screen.fold("", result.summary, indent=2)


def explain(name: str, screen: Screen) -> None:
    """Print why checks matter and how to fix their findings: one check, or those of a category.

    Raises BuildPytorchError for an unknown name.
    """
    for id_, each in check.chosen([name]).items():
        screen.fold(f"{id_}: ", each.title)
        screen.fold("  Why: ", each.why, indent=7)
        screen.fold("  Fix: ", each.fix, indent=7)


def print_annotations(result: VerificationResult, stream: TextIO) -> None:
    """Print workflow commands, which GitHub Actions shows beside the lines of a change.

    Source: GitHub Docs, "Workflow commands for GitHub Actions", setting an error message.
    """
    of_data = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
    of_value = {**of_data, ord(":"): "%3A", ord(","): "%2C"}
    for it in result.findings:
        said = f"found {visible(it.found)}; expected {it.expected}; {it.fix}".translate(of_data)
        place = f"file={it.path.translate(of_value)},line={it.line},title={it.check}"
        console.write(stream, f"::{it.severity} {place}::{said}\n")
    for note in result.notes:
        console.write(stream, f"::notice::{note.translate(of_data)}\n")
