"""What a check is, what it looks at, and what comes of running all of them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from build_pytorch import nix
from build_pytorch.console import Screen, counted
from build_pytorch.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.model import Matrix, Variant

Severity = Literal["error", "warning"]


class Problem(Struct, frozen=True, kw_only=True):
    """One place where a rule is broken. `path` is filled in for problems of a recipe."""

    found: str
    expected: str
    line: int = 1
    path: str = ""
    mend: str = ""
    severity: Severity = "error"


class Skipped(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised by a check that has nothing to look at; its text says why. Never counts as passed."""


class Recipe:
    """A recipe file as the checks read it, whoever wrote it."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @functools.cached_property
    def code(self) -> str:
        """The text with Nix comments blanked: what is commented out does not count as there."""
        return nix.without_comments(self.text)

    def line_of(self, offset: int) -> int:
        """The line, from 1, of an offset in text or code."""
        return self.text.count("\n", 0, offset) + 1


class Context:
    """What the checks look at: the matrix and the files below a root, each read once."""

    def __init__(self, matrix: Matrix, root: Path) -> None:
        self.matrix = matrix
        self.root = root
        self.recipes: dict[str, Recipe] = {}
        self.unreadable: dict[str, str] = {}
        for folder in dict.fromkeys(r.folder for r in self.matrix.releases.values()):
            for path in sorted((self.root / folder).rglob("*.nix")):
                name = path.relative_to(self.root).as_posix()
                try:
                    self.recipes[name] = Recipe(name, path.read_bytes().decode("utf-8"))
                except UnicodeDecodeError as error:
                    self.unreadable[name] = f"byte {error.start} is not UTF-8"
                except OSError as error:
                    self.unreadable[name] = str(error.strerror)

    def present(self) -> Iterator[tuple[Variant, Recipe]]:
        """The variants whose recipe is there and readable."""
        for variant in self.matrix.variants:
            if recipe := self.recipes.get(variant.path):
                yield variant, recipe

    def skip_without_recipes(self) -> None:
        """Raise Skipped where there is no recipe file: nothing found in nothing is no proof."""
        if not (self.recipes or self.unreadable):
            raise Skipped("no recipe files here")

    def read(self, path: str) -> str | None:
        """The text of another file below the root, or None where there is none to read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None


class Check(Struct, frozen=True, kw_only=True):
    """A rule with everything a person needs who broke it.

    `source` names the document that asks for the rule. Subclasses say what it looks at.
    """

    id: str
    title: str
    why: str
    mend: str
    source: str


class RecipeCheck(Check, frozen=True, kw_only=True):
    """A rule that each recipe (of one kind, or of all) keeps on its own."""

    test: Callable[[Variant, Recipe], Iterable[Problem]]
    kind: Literal["gpu", "cpu-only"] | None = None


class TreeCheck(Check, frozen=True, kw_only=True):
    """A rule about the files together. Its problems carry their own paths."""

    test: Callable[[Context], Iterable[Problem]]


class Finding(Struct, frozen=True):
    """A problem together with the check that found it."""

    check: Check
    problem: Problem

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "check": self.check.id,
            "severity": self.problem.severity,
            "file": self.problem.path,
            "line": self.problem.line,
            "found": self.problem.found,
            "expected": self.problem.expected,
            "mend": self.problem.mend or self.check.mend,
        }


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of one check: how many of its subjects passed and failed, or why it was skipped."""

    check: Check
    passed: int = 0
    failed: int = 0
    skipped: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> str:
        """failed, warning, skipped or passed."""
        if any(finding.problem.severity == "error" for finding in self.findings):
            return "failed"
        if self.findings:
            return "warning"
        return "passed" if self.passed else "skipped"


class Result:
    """What came of all checks."""

    def __init__(self, context: Context, outcomes: Sequence[Outcome]) -> None:
        self.context = context
        self.outcomes = outcomes
        self.findings = [finding for outcome in outcomes for finding in outcome.findings]
        self.states = Counter(outcome.state for outcome in outcomes)
        self.severities = Counter(finding.problem.severity for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """1 where a finding is an error. Warnings alone do not fail."""
        return EXIT_FINDINGS if self.severities["error"] else EXIT_OK

    @property
    def summary(self) -> str:
        """One line with all counts."""
        wanted = len(self.context.matrix.variants)
        present = sum(1 for _ in self.context.present())
        states = ", ".join(f"{number} {state}" for state, number in sorted(self.states.items()))
        return (
            f"{present} of {wanted} recipes, {counted(len(self.outcomes), 'check')}: {states}; "
            f"{counted(self.severities['error'], 'error')}, "
            f"{counted(self.severities['warning'], 'warning')}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "root": str(self.context.root),
            "variants": len(self.context.matrix.variants),
            "checks": [
                {
                    "id": outcome.check.id,
                    "title": outcome.check.title,
                    "state": outcome.state,
                    "passed": outcome.passed,
                    "failed": outcome.failed,
                    "skipped": outcome.skipped,
                }
                for outcome in self.outcomes
            ],
            "findings": [finding.as_dict() for finding in self.findings],
            "exit_code": self.exit_code,
        }

    def print(self, screen: Screen) -> None:
        """Print the table of checks, then the findings by file, then the summary."""
        colours = {"failed": "red", "warning": "yellow", "skipped": "dim", "passed": "green"}
        screen.line(screen.paint("Verification", "bold"))
        width = max(len(outcome.check.id) for outcome in self.outcomes)
        for outcome in self.outcomes:
            state = screen.paint(f"{outcome.state:<8}", colours[outcome.state])
            detail = outcome.skipped or (
                f"{outcome.failed} of {outcome.passed + outcome.failed}" if outcome.failed else ""
            )
            title = outcome.check.title + (f" ({detail})" if detail else "")
            screen.line(f"  {state}  {outcome.check.id:<{width}}  {title}")
        for path in dict.fromkeys(finding.problem.path for finding in self.findings):
            screen.line(screen.paint(path, "bold"))
            for finding in self.findings:
                if finding.problem.path == path:
                    _print_finding(screen, finding)
        screen.line(self.summary)


def run(check: RecipeCheck | TreeCheck, context: Context) -> Outcome:
    """Run one check. A check that looked at nothing is skipped, never passed."""
    if isinstance(check, RecipeCheck):
        return _run_on_recipes(check, context)
    try:
        problems = list(check.test(context))
    except Skipped as reason:
        return Outcome(check=check, skipped=str(reason))
    findings = tuple(Finding(check, problem) for problem in problems)
    return Outcome(check=check, passed=not findings, failed=len(findings), findings=findings)


def _run_on_recipes(check: RecipeCheck, context: Context) -> Outcome:
    passed = failed = 0
    found: list[Finding] = []
    for variant, recipe in context.present():
        if check.kind and check.kind != variant.group.kind:
            continue
        problems = list(check.test(variant, recipe))
        passed, failed = passed + (not problems), failed + bool(problems)
        mend = f"run `invoke phase{variant.phase.number}`, or: {check.mend}"
        for problem in problems:
            complete = Problem(
                path=recipe.path,
                line=problem.line,
                found=problem.found,
                expected=problem.expected,
                mend=problem.mend or mend,
                severity=problem.severity,
            )
            found.append(Finding(check, complete))
    skipped = "" if passed or failed else "no such recipe to look at"
    return Outcome(
        check=check, passed=passed, failed=failed, skipped=skipped, findings=tuple(found)
    )


def _print_finding(screen: Screen, finding: Finding) -> None:
    problem = finding.problem
    colour = "red" if problem.severity == "error" else "yellow"
    head = screen.paint(f"{problem.severity}: {finding.check.id}", colour)
    screen.line(f"  line {problem.line}: {head}")
    screen.line(f"    found:    {problem.found}")
    screen.line(f"    expected: {problem.expected}")
    screen.line(f"    mend:     {problem.mend or finding.check.mend}")
