"""A run of checks, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from build_pytorch.base.console import counted, grouped
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Tree
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import (
    check,
    compiler_checks,
    fact_checks,
    generated_checks,
    matrix_checks,
    recipe_facts,
    text_checks,
)
from build_pytorch.verify.check import Check, CheckOutcome, CheckSkipped, Finding
from build_pytorch.verify.context import Context, Pages
from build_pytorch.verify.recipe_facts import RecipeFacts

_MODULES: Final = (matrix_checks, text_checks, generated_checks, compiler_checks)


class VerificationResult:
    """The outcome of all checks. With `strict`, warnings and skipped checks fail as well.

    `derivations`: the derivation path of each variant; empty if they come from the model.
    """

    def __init__(
        self,
        context: Context,
        outcomes: Sequence[CheckOutcome],
        facts: RecipeFacts,
        *,
        strict: bool = False,
    ) -> None:
        self.context = context
        self.outcomes = outcomes
        self.strict = strict
        self.findings = [finding for outcome in outcomes for finding in outcome.findings]
        self.states = Counter(outcome.state for outcome in outcomes)
        self.severities = Counter(finding.severity for finding in self.findings)
        paths = {variant.id: variant.path for variant in context.variants if context.pinned}
        found = {id_: facts.facts.get(path, {}).get("drvPath") for id_, path in paths.items()}
        self.derivations: dict[str, str] = {id_: drv for id_, drv in found.items() if drv}

    @property
    def exit_code(self) -> int:
        """1 if a finding is an error; if strict, also for a warning or a skipped check."""
        return EXIT_FINDINGS if self.severities["error"] or self.strict_reason else EXIT_OK

    @property
    def strict_reason(self) -> str:
        """Why only `strict` fails the run; empty if it does not."""
        is_perfect = self.states.total() == self.states["passed"]
        if not self.strict or is_perfect or self.severities["error"]:
            return ""
        numbers = {"warning": self.severities["warning"], "skipped check": self.states["skipped"]}
        what = " and ".join(counted(number, noun) for noun, number in numbers.items() if number)
        return f"No errors, but --strict also fails on {what}."

    @property
    def summary(self) -> str:
        """One line with all counts."""
        context = self.context
        companions = len(context.companions)
        present = sum(package.companion is None for package, _ in context.present)
        found = f"{present} of {counted(len(context.variants), 'recipe')}"
        if companions:
            found += f", {len(context.present) - present} of {counted(companions, 'companion')}"
        states = ", ".join(f"{number} {state}" for state, number in sorted(self.states.items()))
        errors, warnings = (self.severities[name] for name in ("error", "warning"))
        checks = f"{counted(len(self.outcomes), 'check')}: {states}"
        return f"{found}, {checks}; {counted(errors, 'error')}, {counted(warnings, 'warning')}"


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
    checks = [each for each in check.chosen(only) if _applies(each, context)]
    if not checks and not context.is_whole:
        raise BuildPytorchError("these checks need all variants; leave the patterns out")
    if not checks:
        raise BuildPytorchError("this project has nothing that these checks look at")
    needs_nix = [each for each in checks if each.category in {"evaluation", "hooks"}]
    # Nix takes longest. It works while the other categories are checked.
    running = recipe_facts.start(context) if needs_nix else None
    outcomes = [_run(each, context) for each in checks if each not in needs_nix]
    facts = running.finish() if running else RecipeFacts(missing=recipe_facts.why_none(context))
    found = grouped((finding.check, finding) for finding in fact_checks.compare(context, facts))
    outcomes += [_of_facts(each, context, facts, found.get(each.id, [])) for each in needs_nix]
    return VerificationResult(context, outcomes, facts, strict=strict)


def _applies(each: Check, context: Context) -> bool:
    """Return whether the selected variants have subjects of a check."""
    match each.subjects:
        case "tree":
            return context.is_whole
        case "companions":
            return bool(context.companions)
        case "gpu" | "cpu-only" as kind:
            return any(variant.kind == kind for variant in context.variants)
    return True


def _run(each: Check, context: Context) -> CheckOutcome:
    """Run the test of a check that needs no facts: of each recipe, or of all files together."""
    name = each.id.replace("-", "_")
    test = next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    if each.subjects in {"tree", "selection"}:
        return _outcome(each, context, test(context))
    subjects = context.subjects(each)
    found = (
        structs.replace(finding, path=recipe.path)
        for package, recipe in subjects
        for finding in test(package, recipe)
    )
    return _outcome(each, context, found, len(subjects))


def _outcome(
    each: Check, context: Context, findings: Iterator[Finding], subjects: int = 1, not_run: int = 0
) -> CheckOutcome:
    """Return the outcome of a test that yields findings and may raise CheckSkipped after them."""
    found: list[Finding] = []
    reason = "does not evaluate" if not_run else "" if subjects else "no such recipe to look at"
    try:
        for finding in findings:
            fix = finding.fix or each.fix
            recipe, package = context.recipes.get(finding.path), context.by_path.get(finding.path)
            if recipe and package and each.subjects != "tree":
                force = "" if recipe.is_ours else " --force"
                fix = f"run `invoke {package.phase.command}{force}`, or: {fix}"
            found.append(structs.replace(finding, check=each.id, fix=fix))
    except CheckSkipped as skipped:
        reason, not_run = str(skipped), subjects
    return CheckOutcome(
        check=each, subjects=subjects, not_run=not_run, reason=reason, findings=tuple(found)
    )


def _of_facts(
    each: Check, context: Context, facts: RecipeFacts, found: Sequence[Finding]
) -> CheckOutcome:
    """Return the outcome of a check of facts, from its findings."""
    paths = {recipe.path for _, recipe in context.subjects(each)}
    number = 1 if each.subjects == "tree" else len(paths)
    reason = facts.missing or (facts.no_hooks if each.category == "hooks" else "")
    if reason:
        return CheckOutcome(check=each, subjects=number, not_run=number, reason=reason)
    if test := fact_checks.OF_ALL.get(each.id):
        return _outcome(each, context, test(context, facts), number)
    not_run = paths - facts.comparable - {finding.path for finding in found}
    return _outcome(each, context, iter(found), number, len(not_run))
