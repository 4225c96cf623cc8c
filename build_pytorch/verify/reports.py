"""Reports of a verification: terminal, JSON, workflow commands of GitHub Actions."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final, TextIO

from msgspec import Struct, convert, field

from build_pytorch.base import console
from build_pytorch.base.console import Screen, visible
from build_pytorch.verify.check import CheckOutcome, Finding
from build_pytorch.verify.verification import VerificationResult

_COLOURS: Final = {
    "failed": "red",
    "error": "red",
    "warning": "yellow",
    "skipped": "yellow",
    "passed": "green",
}


def show(result: VerificationResult, screen: Screen, *, verbose: bool = False) -> None:
    """Print findings, how to run what was skipped, and the summary; if verbose, all checks."""
    if verbose:
        _show_checks(result, screen)
    alike = console.grouped(
        ((it.severity, it.check, it.found, it.expected), it) for it in result.findings
    )
    for group in [[finding] for finding in result.findings] if verbose else alike.values():
        _show_finding(group, screen)
    skipped = [outcome for outcome in result.outcomes if outcome.state == "skipped"]
    if skipped and not verbose:
        _show_skipped(skipped, screen)
    if verbose:
        for variant, derivation in result.derivations().items():
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
        screen.fold(
            "    also in:  ", f"{console.counted(len(others), 'place')}: {where}", indent=14
        )


_NAMED: Final = 3
"""Skipped checks that are named; more are counted."""
_DEBIAN: Final = {
    "Nix is not installed": "nix-bin",
    "no gcc for x86_64-linux": "gcc-x86-64-linux-gnu",
    "no gcc for aarch64-linux": "gcc-aarch64-linux-gnu",
    f"no gcc for {platform.machine()}-linux": "gcc",
}
"""The packages of Debian that end a reason to skip checks."""


def _show_skipped(skipped: Sequence[CheckOutcome], screen: Screen) -> None:
    """Print which checks were skipped, and the one command that installs what they lack."""
    names = [outcome.check.id for outcome in skipped]
    what = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} checks"
    screen.fold("skipped: ", f"{what}; -v says why", "yellow")
    said = " ".join(outcome.reason for outcome in skipped)
    if packages := [package for reason, package in _DEBIAN.items() if reason in said]:
        screen.command("  Debian: ", f"apt-get install {' '.join(packages)}")


def _show_checks(result: VerificationResult, screen: Screen) -> None:
    """Print a row for each check: its state, its subjects (of how many), its id and its title.

    Of a single check, the subjects follow.
    """
    for outcome in result.outcomes:
        bad = len(outcome.failed) or len(outcome.not_run)
        total = len(outcome.subjects)
        count = f"{bad} of {total}" if bad else str(total)
        reason = visible(f" ({outcome.reason})") if outcome.reason else ""
        text = f"{count:>8}  {outcome.check.id}: {outcome.check.title}{reason}"
        colour = _COLOURS[outcome.state]
        screen.fold(f"  {outcome.state:<7}  ", text, colour, indent=21)
        states = {"passed": outcome.passed, "failed": outcome.failed, "skipped": outcome.not_run}
        for state, subjects in states.items() if len(result.outcomes) == 1 else ():
            for subject in subjects:
                screen.fold(f"    {state:<7}  ", visible(subject), _COLOURS[state], indent=13)


class CheckRow(Struct, frozen=True, kw_only=True):
    """A check, and how many of its subjects passed, failed and were skipped."""

    id: str
    title: str
    state: str
    passed: int
    failed: int
    skipped: int
    reason: str


class FindingRow(Struct, frozen=True, kw_only=True):
    """A finding: the fields of `Finding` for other programs."""

    check: str
    severity: str
    path: str = field(name="file")
    line: int
    column: int
    found: str
    expected: str
    fix: str


class VerificationDocument(Struct, frozen=True, kw_only=True):
    """The report as a JSON object."""

    root: str
    variants: list[str]
    companions: list[str]
    checks: list[CheckRow]
    findings: list[FindingRow]
    derivations: dict[str, str]
    notes: tuple[str, ...]
    exit_code: int


def document(result: VerificationResult) -> VerificationDocument:
    """Return the report for --json."""
    checks = [
        CheckRow(
            id=outcome.check.id,
            title=outcome.check.title,
            state=outcome.state,
            passed=len(outcome.passed),
            failed=len(outcome.failed),
            skipped=len(outcome.not_run),
            reason=outcome.reason,
        )
        for outcome in result.outcomes
    ]
    return VerificationDocument(
        root=str(result.context.root),
        variants=[variant.id for variant in result.context.variants],
        companions=[companion.id for companion in result.context.companions],
        checks=checks,
        findings=[convert(each, FindingRow, from_attributes=True) for each in result.findings],
        derivations=result.derivations(),
        notes=result.context.matrix.notes,
        exit_code=result.exit_code,
    )


def print_annotations(result: VerificationResult, stream: TextIO) -> None:
    """Print workflow commands, which GitHub Actions shows beside the lines of a change.

    Source: GitHub Docs, "Workflow commands for GitHub Actions", setting an error message.
    """

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    for finding in result.findings:
        place = f"file={value(finding.path)},line={finding.line},col={finding.column}"
        title = value(f"{finding.check}: {result.checks[finding.check].title}")
        text = f"::{finding.severity} {place},title={title}::{data(_sentence(finding))}\n"
        console.write(stream, text)
    for note in result.context.matrix.notes:
        console.write(stream, f"::notice::{data(note)}\n")


def _sentence(finding: Finding) -> str:
    return f"found {visible(finding.found)}; expected {finding.expected}; {finding.fix}"
