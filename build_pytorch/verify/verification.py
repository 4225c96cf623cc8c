"""A run of checks, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from build_pytorch.base.console import counted
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import (
    check,
    fact_checks,
    file_checks,
    matrix_checks,
    text_checks,
)
from build_pytorch.verify.check import Check, CheckOutcome, CheckSkipped, Finding, State
from build_pytorch.verify.context import Context, Pages, RecipeFile

_MODULES: Final = (matrix_checks, file_checks, text_checks)


class VerificationResult(Struct, frozen=True, kw_only=True):
    """What all checks found: the document of --json.

    `exit_code` is 1 if a finding is an error; with `strict`, also for a warning or a skipped check.
    """

    variants: list[str]
    checks: list[CheckOutcome]
    findings: list[Finding]
    notes: tuple[str, ...]
    summary: str
    exit_code: int


def verify(  # noqa: PLR0913 - the options of a verification
    matrix: Matrix,
    root: Path,
    *,
    variants: Sequence[Variant] | None = None,
    only: Collection[str] = (),
    strict: bool = False,
    pinned: bool = False,
    pages: Pages | None = None,
) -> VerificationResult:
    """Run checks on the recipes and docs below a root. Nothing is written there.

    With a selection of variants, checks that need all of them are left out. Raises
    BuildPytorchError for an unknown check, and if the pinned nixpkgs is not available.
    """
    context = Context(matrix, root, variants, pinned=pinned, pages=pages)
    checks = [each for each in check.chosen(only) if context.has_subjects(each)]
    if not checks:
        why = "this project has nothing that these checks look at"
        if not context.is_whole:
            why = "these checks need all variants; leave the patterns out"
        raise BuildPytorchError(why)
    of_facts = [each for each in checks if each.category in {"evaluation", "hooks"}]
    ran = {each.id: _run(each, context) for each in checks if each not in of_facts}
    ran |= fact_checks.run(of_facts, context) if of_facts else {}
    findings = [_completed(it, each, context) for each in checks for it in ran[each.id][0]]
    outcomes = [_outcome(each, *ran[each.id]) for each in checks]
    summary, is_bad = _summary(context, outcomes, findings, strict=strict)
    return VerificationResult(
        variants=[variant.id for variant in context.variants],
        checks=outcomes,
        findings=findings,
        notes=matrix.notes,
        summary=summary,
        exit_code=EXIT_FINDINGS if is_bad else EXIT_OK,
    )


def _run(each: Check, context: Context) -> tuple[list[Finding], str]:
    """Run the test of a check: of each recipe, or of all files. Return what it did not look at."""
    name = each.id.replace("-", "_")
    test = next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    findings: list[Finding] = []
    if each.subjects in {"tree", "selection"}:
        try:
            for finding in test(context):
                findings.append(finding)  # noqa: PERF402 - those before an exception count
        except CheckSkipped as skipped:
            return findings, str(skipped)
        return findings, ""
    recipes = context.subjects(each)
    for package, recipe in recipes:
        findings += _of_texts(recipe, *test(package, recipe))
    return findings, "" if recipes else "no such recipe to look at"


def _of_texts(recipe: RecipeFile, found: Sequence[str], wanted: Sequence[str]) -> Iterator[Finding]:
    """Yield the difference of the texts that a recipe has from those that it should have."""
    more, fewer = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
    parts = [f"{text} once more" if text in wanted else text for text in more]
    parts = parts or [f"no {text}" for text in fewer]
    if parts:
        yield Finding(
            found=", ".join(parts),
            expected=", ".join(fewer or wanted) or "none",
            path=recipe.path,
            line=recipe.line_of(next(iter(more), "\nlet\n")),
        )


def _completed(finding: Finding, of: Check, context: Context) -> Finding:
    """Return a finding with its check and the way to fix it."""
    fix = finding.fix or of.fix
    recipe, package = context.recipes.get(finding.path), context.by_path.get(finding.path)
    if recipe and package and of.subjects != "tree":
        force = "" if recipe.is_ours else " --force"
        fix = f"run `invoke {package.phase.command}{force}`, or: {fix}"
    return structs.replace(finding, check=of.id, fix=fix)


def _outcome(of: Check, findings: Sequence[Finding], reason: str) -> CheckOutcome:
    """Return the outcome of a check: the worst of its findings, else skipped with a reason."""
    state: State = "skipped" if reason else "passed"
    if findings:
        is_error = any(finding.severity == "error" for finding in findings)
        state = "failed" if is_error else "warning"
    return CheckOutcome(id=of.id, title=of.title, state=state, reason=reason)


def _summary(
    context: Context,
    outcomes: Sequence[CheckOutcome],
    findings: Sequence[Finding],
    *,
    strict: bool,
) -> tuple[str, bool]:
    """Return the numbers of recipes, checks and findings, and whether the verification fails."""
    states = Counter(outcome.state for outcome in outcomes)
    severities = Counter(finding.severity for finding in findings)
    errors, warnings = severities["error"], severities["warning"]
    present = sum(package.companion is None for package, _ in context.present)
    parts = [f"{present} of {counted(len(context.variants), 'recipe')}"]
    if companions := len(context.companions):
        found = len(context.present) - present
        parts.append(f"{found} of {counted(companions, 'companion')}")
    said = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    parts.append(f"{counted(len(outcomes), 'check')}: {said}")
    summary = f"{', '.join(parts)}; {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    if errors or not strict or states.total() == states["passed"]:
        return summary, bool(errors)
    numbers = {"warning": warnings, "skipped check": states["skipped"]}
    what = " and ".join(counted(number, noun) for noun, number in numbers.items() if number)
    return f"{summary}; --strict fails on {what}", True
