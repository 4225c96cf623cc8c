"""Reports of a verification: terminal, JSON, workflow commands of GitHub Actions."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final, TextIO

from msgspec import Struct

from build_pytorch.base import console
from build_pytorch.base.console import Screen, visible
from build_pytorch.verify import check
from build_pytorch.verify.check import CheckOutcome, Finding, State
from build_pytorch.verify.recipe_facts import NO_NIX
from build_pytorch.verify.verification import VerificationResult

_COLOURS: Final = {
    "failed": "red",
    "error": "red",
    "warning": "yellow",
    "skipped": "yellow",
    "passed": "green",
}
_NAMED: Final = 3
"""Skipped checks that are named; more are counted."""
_DEBIAN: Final = {
    NO_NIX: "nix-bin",
    "no gcc for x86_64-linux": "gcc-x86-64-linux-gnu",
    "no gcc for aarch64-linux": "gcc-aarch64-linux-gnu",
    f"no gcc for {platform.machine()}-linux": "gcc",
}
"""The packages of Debian that end a reason to skip checks."""


def show(result: VerificationResult, screen: Screen, *, verbose: bool = False) -> None:
    """Print findings, how to run what was skipped, and the summary; if verbose, all checks."""
    if verbose:
        for outcome in result.outcomes:
            _show_check(outcome, screen)
    alike = console.grouped(
        ((it.severity, it.check, it.found, it.expected), it) for it in result.findings
    )
    for group in [[finding] for finding in result.findings] if verbose else alike.values():
        _show_finding(group, screen)
    skipped = [outcome for outcome in result.outcomes if outcome.state == "skipped"]
    if skipped and not verbose:
        _show_skipped(skipped, screen)
    if verbose:
        for variant, derivation in result.derivations.items():
            screen.line(f"{variant}  {derivation}")
        for note in result.context.matrix.notes:
            screen.fold("note: ", note, "yellow")
    screen.fold("", result.summary, indent=2)
    if result.strict_reason:
        screen.fold("", result.strict_reason, "yellow")


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


def _show_skipped(skipped: Sequence[CheckOutcome], screen: Screen) -> None:
    """Print which checks were skipped, and the one command that installs what they lack."""
    names = [outcome.check.id for outcome in skipped]
    what = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} checks"
    screen.fold("skipped: ", f"{what}; -v says why", "yellow")
    said = " ".join(outcome.reason for outcome in skipped)
    if packages := [package for reason, package in _DEBIAN.items() if reason in said]:
        screen.command("  Debian: ", f"apt-get install {' '.join(packages)}")


def _show_check(outcome: CheckOutcome, screen: Screen) -> None:
    """Print a row: the state of a check, its subjects (of how many), its id and its title."""
    bad, total = outcome.failed or outcome.not_run, outcome.subjects
    count = f"{bad} of {total}" if bad else str(total)
    reason = visible(f" ({outcome.reason})") if outcome.reason else ""
    text = f"{count:>10}  {outcome.check.id}: {outcome.check.title}{reason}"
    screen.fold(f"  {outcome.state:<7}  ", text, _COLOURS[outcome.state], indent=23)


class CheckRow(Struct, frozen=True, kw_only=True):
    """A check: its state, how many subjects it has, and how many failed or were skipped."""

    id: str
    title: str
    state: State
    subjects: int
    failed: int
    skipped: int
    reason: str


class VerificationDocument(Struct, frozen=True, kw_only=True):
    """The document of --json."""

    variants: list[str]
    checks: list[CheckRow]
    findings: list[Finding]
    derivations: dict[str, str]
    notes: tuple[str, ...]
    exit_code: int


def document(result: VerificationResult) -> VerificationDocument:
    """Return the report for --json."""
    return VerificationDocument(
        variants=[variant.id for variant in result.context.variants],
        checks=[
            CheckRow(
                id=outcome.check.id,
                title=outcome.check.title,
                state=outcome.state,
                subjects=outcome.subjects,
                failed=outcome.failed,
                skipped=outcome.not_run,
                reason=outcome.reason,
            )
            for outcome in result.outcomes
        ],
        findings=result.findings,
        derivations=result.derivations,
        notes=result.context.matrix.notes,
        exit_code=result.exit_code,
    )


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

    titles = {outcome.check.id: outcome.check.title for outcome in result.outcomes}
    for finding in result.findings:
        place = f"file={value(finding.path)},line={finding.line},col={finding.column}"
        title = value(f"{finding.check}: {titles[finding.check]}")
        said = f"found {visible(finding.found)}; expected {finding.expected}; {finding.fix}"
        console.write(stream, f"::{finding.severity} {place},title={title}::{data(said)}\n")
    for note in result.context.matrix.notes:
        console.write(stream, f"::notice::{data(note)}\n")
