"""Checks of what recipes evaluate to: the kinds of them, and how facts are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import (
    Check,
    CheckOutcome,
    Context,
    Problem,
    Recipe,
    outcome_by_recipe,
)
from build_pytorch.verify.recipe_evaluation import Facts, evaluated, failures, prepare

__all__ = ["DistinctDerivations", "Evaluates", "FactCheck", "NoWarnings", "prepare"]


class Evaluates(Check, frozen=True, kw_only=True):
    """Every recipe gives a package."""

    def run(self, context: Context) -> CheckOutcome:
        """Ask what came of each recipe."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return CheckOutcome(check=self, not_run=_all(context), reason=evaluation.reason)
        return outcome_by_recipe(
            self,
            {
                recipe.path: (variant, failures(evaluation.results[recipe.path]))
                for variant, recipe in context.present()
            },
        )


class FactCheck(Check, frozen=True, kw_only=True):
    """A rule about what a recipe evaluates to. `word` is where it stands in the recipe."""

    test: Callable[[Variant, Facts], Iterable[Problem]]
    word: str

    def run(self, context: Context) -> CheckOutcome:
        """Look at every recipe that gave facts."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return CheckOutcome(check=self, not_run=_all(context), reason=evaluation.reason)
        tested: dict[str, tuple[Variant, Iterable[Problem]]] = {}
        unknown = []
        for variant, recipe in context.present():
            facts = evaluation.results[recipe.path].facts
            if facts is None:
                unknown.append(recipe.path)
            else:
                problems = self.test(variant, facts)
                tested[recipe.path] = (variant, self._placed(recipe, problems))
        return outcome_by_recipe(self, tested, unknown, "does not evaluate")

    def _placed(self, recipe: Recipe, problems: Iterable[Problem]) -> Iterator[Problem]:
        """The problems at the line where the recipe speaks of the matter."""
        for problem in problems:
            offset = recipe.code.find(self.word)
            yield Problem(
                line=recipe.line_of(max(offset, 0)),
                found=problem.found,
                expected=problem.expected,
                severity=problem.severity,
            )


class DistinctDerivations(Check, frozen=True, kw_only=True):
    """No two variants are the same build."""

    def run(self, context: Context) -> CheckOutcome:
        """Compare the derivation paths of all recipes."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return CheckOutcome(check=self, not_run=_all(context), reason=evaluation.reason)
        first: dict[str, str] = {}
        tested: dict[str, tuple[Variant, Iterable[Problem]]] = {}
        unknown = []
        for variant, recipe in context.present():
            facts = evaluation.results[recipe.path].facts
            if facts is None or not isinstance(facts.drv_path, str):
                unknown.append(recipe.path)
                continue
            other = first.setdefault(facts.drv_path, recipe.path)
            found = f"the same derivation as {other}"
            same = [Problem(found=found, expected="a build of its own")]
            tested[recipe.path] = (variant, [] if other == recipe.path else same)
        return outcome_by_recipe(self, tested, unknown, "does not evaluate")


class NoWarnings(Check, frozen=True, kw_only=True):
    """Nix evaluates without a warning."""

    def run(self, context: Context) -> CheckOutcome:
        """Look at what Nix said beside its answer."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return CheckOutcome(check=self, not_run=_all(context), reason=evaluation.reason)
        said: dict[str, list[Problem]] = {path: [] for path in evaluation.results}
        for warned in evaluation.warnings:
            path = warned.path if warned.path in said else next(iter(said))
            said[path].append(
                Problem(severity="warning", found=warned.text, expected="no warning of Nix")
            )
        tested = {
            recipe.path: (variant, said[recipe.path]) for variant, recipe in context.present()
        }
        return outcome_by_recipe(self, tested)


def equal(name: str, found: Any, expected: Any) -> Iterator[Problem]:  # noqa: ANN401 - facts
    """A problem where a fact is not what it has to be."""
    if found != expected:
        yield Problem(
            found=f"{name} = {json.dumps(found)}", expected=f"{name} = {json.dumps(expected)}"
        )


def get(facts: Any, name: str) -> Any:  # noqa: ANN401 - facts of foreign recipes are anything
    """A part of a fact, or None where the fact has no parts."""
    return facts.get(name) if isinstance(facts, dict) else None


def text_of(value: Any) -> str:  # noqa: ANN401 - the same
    """A fact that is text, or nothing where it is something else."""
    return value if isinstance(value, str) else ""


def shell_of(value: Any) -> str:  # noqa: ANN401 - the same
    """A fact that is a script, without its comments: what is commented out is not run."""
    return re.sub(r"(?m)^\s*#.*$", "", text_of(value))


def _all(context: Context) -> tuple[str, ...]:
    return tuple(recipe.path for _, recipe in context.present()) or ("tree",)
