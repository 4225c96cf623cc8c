"""A run of checks, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from build_pytorch.base.console import counted
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import recipe_evaluation, registry
from build_pytorch.verify.check import CheckOutcome, Context


class VerificationResult:
    """The outcome of all checks. With `strict`, warnings and skipped checks fail as well."""

    def __init__(
        self, context: Context, outcomes: Sequence[CheckOutcome], *, strict: bool = False
    ) -> None:
        self.context = context
        self.outcomes = outcomes
        self.strict = strict
        self.checks = {outcome.check.id: outcome.check for outcome in outcomes}
        self.findings = [finding for outcome in outcomes for finding in outcome.findings]
        self.states = Counter(outcome.state for outcome in outcomes)
        self.severities = Counter(finding.severity for finding in self.findings)

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
        wanted = len(self.context.variants)
        present = len(self.context.present_variants)
        states = ", ".join(f"{number} {state}" for state, number in sorted(self.states.items()))
        companions = len(self.context.companions)
        found = len(self.context.present) - present
        added = f", {found} of {counted(companions, 'companion')}" if companions else ""
        checks = counted(len(self.outcomes), "check")
        return (
            f"{present} of {counted(wanted, 'recipe')}{added}, {checks}: "
            f"{states}; {counted(self.severities['error'], 'error')}, "
            f"{counted(self.severities['warning'], 'warning')}"
        )

    def derivations(self) -> dict[str, str]:
        """Return the derivation path of each variant; empty if they come from the model."""
        if not self.context.pinned:
            return {}
        results = recipe_evaluation.evaluated(self.context).results
        return {
            variant.id: result.drv_path
            for variant, recipe in self.context.present_variants
            if (result := results.get(recipe.path)) and result.drv_path
        }


def verify(  # noqa: PLR0913 - the options of a verification
    matrix: Matrix,
    root: Path,
    *,
    variants: Sequence[Variant] | None = None,
    only: Collection[str] = (),
    strict: bool = False,
    pinned: bool = False,
    pages: Callable[[], Mapping[str, str]] | None = None,
) -> VerificationResult:
    """Run checks on the recipes and docs below a root. Nothing is written there.

    With a selection of variants, checks that need all of them are left out. Raises
    BuildPytorchError for an unknown check, and if the pinned nixpkgs is not available.
    """
    context = Context(matrix, root, variants, pinned=pinned, pages=pages)
    # Nix takes longest. It works while modules are imported and the first categories are checked.
    if not only or {"evaluation", "hooks"} & set(only):
        recipe_evaluation.start(context)
    return run_checks(context, only=only, strict=strict)


def run_checks(
    context: Context, *, only: Collection[str] = (), strict: bool = False
) -> VerificationResult:
    """Run checks on a context, for which Nix may have been started. Raises as `verify`."""
    checks = [check for check in registry.chosen(only) if check.applies(context)]
    if not checks and not context.is_whole:
        raise BuildPytorchError("these checks need all variants; leave the patterns out")
    if not checks:
        raise BuildPytorchError("this project has nothing that these checks look at")
    return VerificationResult(context, [check.run(context) for check in checks], strict=strict)
