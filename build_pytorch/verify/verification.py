"""A run of checks, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, structs

from build_pytorch.base.console import counted, grouped
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Tree
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import (
    check,
    fact_checks,
    file_checks,
    matrix_checks,
    recipe_facts,
    text_checks,
)
from build_pytorch.verify.check import Check, CheckOutcome, CheckSkipped, Finding, State
from build_pytorch.verify.context import Context, Pages

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
    tree: Tree | None = None,
) -> VerificationResult:
    """Run checks on the recipes and docs below a root. Nothing is written there.

    With a selection of variants, checks that need all of them are left out. Raises
    BuildPytorchError for an unknown check, and if the pinned nixpkgs is not available.
    """
    context = Context(matrix, root, variants, pinned=pinned, pages=pages, tree=tree)
    checks = [each for each in check.chosen(only) if context.has_subjects(each)]
    if not checks:
        why = "this project has nothing that these checks look at"
        if not context.is_whole:
            why = "these checks need all variants; leave the patterns out"
        raise BuildPytorchError(why)
    needs_nix = [each for each in checks if each.category in {"evaluation", "hooks"}]
    results = [_run(each, context) for each in checks if each not in needs_nix]
    results += _run_facts(needs_nix, context) if needs_nix else []
    return _result(context, results, strict=strict)


class _Ran(NamedTuple):
    """A check that ran: what it found, its number of subjects, how many it left out, and why."""

    check: Check
    findings: Sequence[Finding]
    subjects: int
    skipped: int = 0
    reason: str = ""


def _run(each: Check, context: Context) -> _Ran:
    """Run the test of a check that needs no facts: of each recipe, or of all files together."""
    name = each.id.replace("-", "_")
    test = next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    found: list[Finding] = []
    if each.subjects not in {"tree", "selection"}:
        recipes = context.subjects(each)
        for package, recipe in recipes:
            found += (structs.replace(it, path=recipe.path) for it in test(package, recipe))
        reason = "" if recipes else "no such recipe to look at"
        return _Ran(each, found, len(recipes), reason=reason)
    try:
        for finding in test(context):
            found.append(finding)
    except CheckSkipped as skipped:
        return _Ran(each, found, 1, 1, str(skipped))
    return _Ran(each, found, 1)


def _run_facts(checks: Sequence[Check], context: Context) -> Iterator[_Ran]:
    """Run the checks of facts."""
    given = recipe_facts.facts_of(context)
    findings, looked_at = fact_checks.compare(context, given)
    by_check = grouped((finding.check, finding) for finding in findings)
    for each in checks:
        paths = {recipe.path for _, recipe in context.subjects(each)} or {each.file}
        skipped = len(paths - looked_at[each.id])
        reason = given.missing or (given.no_hooks if each.category == "hooks" else "")
        if skipped and not reason:
            reason = "not evaluated, or without such facts"
        yield _Ran(each, by_check.get(each.id, []), len(paths), skipped, reason)


def _result(context: Context, results: Sequence[_Ran], *, strict: bool) -> VerificationResult:
    """Return the result of checks that ran."""
    findings = [_completed(it, ran.check, context) for ran in results for it in ran.findings]
    outcomes = [_outcome(ran) for ran in results]
    states = Counter(outcome.state for outcome in outcomes)
    severities = Counter(finding.severity for finding in findings)
    present = sum(package.companion is None for package, _ in context.present)
    summary = f"{present} of {counted(len(context.variants), 'recipe')}, "
    if companions := len(context.companions):
        found = len(context.present) - present
        summary += f"{found} of {counted(companions, 'companion')}, "
    said = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    summary += f"{counted(len(outcomes), 'check')}: {said}; "
    errors, warnings = severities["error"], severities["warning"]
    summary += f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    is_bad = bool(errors)
    if strict and not errors and states.total() > states["passed"]:
        numbers = {"warning": warnings, "skipped check": states["skipped"]}
        what = " and ".join(counted(number, noun) for noun, number in numbers.items() if number)
        summary += f"; --strict fails on {what}"
        is_bad = True
    return VerificationResult(
        variants=[variant.id for variant in context.variants],
        checks=outcomes,
        findings=findings,
        notes=context.matrix.notes,
        summary=summary,
        exit_code=EXIT_FINDINGS if is_bad else EXIT_OK,
    )


def _completed(finding: Finding, of: Check, context: Context) -> Finding:
    """Return a finding with its check and the way to fix it."""
    fix = finding.fix or of.fix
    recipe, package = context.recipes.get(finding.path), context.by_path.get(finding.path)
    if recipe and package and of.subjects != "tree":
        force = "" if recipe.is_ours else " --force"
        fix = f"run `invoke {package.phase.command}{force}`, or: {fix}"
    return structs.replace(finding, check=of.id, fix=fix)


def _outcome(ran: _Ran) -> CheckOutcome:
    """Return the outcome of a check: the worst of its findings; without subjects, skipped."""
    state: State = "passed" if ran.subjects and not ran.skipped else "skipped"
    if ran.findings:
        is_error = any(finding.severity == "error" for finding in ran.findings)
        state = "failed" if is_error else "warning"
    return CheckOutcome(
        id=ran.check.id,
        title=ran.check.title,
        state=state,
        subjects=ran.subjects,
        failed=min(ran.subjects, len({finding.path for finding in ran.findings})),
        skipped=ran.skipped,
        reason=ran.reason,
    )
