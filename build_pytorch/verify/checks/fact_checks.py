"""Checks of the facts of an evaluated recipe, and functions that compare facts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from msgspec import structs

from build_pytorch.matrix.model import Variant
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import (
    About,
    CheckList,
    Context,
    Finding,
    Findings,
    RecipeFile,
    SubjectResults,
    VerifyCheck,
)
from build_pytorch.verify.recipe_evaluation import EvaluatedRecipe, Evaluation, Facts

FactTest = Callable[[Variant, Facts], Findings]
ResultTest = Callable[[Evaluation, EvaluatedRecipe], Findings | str]


class FactCheckList(CheckList):
    """Checks of evaluated recipes; all of them wait for the same run of Nix."""

    def result(self, **about: Unpack[About]) -> Callable[[ResultTest], ResultTest]:
        """Add a check of each result; the function returns findings, or a reason to skip it."""

        def add(test: ResultTest) -> ResultTest:
            def look(context: Context) -> SubjectResults:
                evaluation = recipe_evaluation.evaluated(context)
                for _, recipe in context.present():
                    found = evaluation.reason or test(evaluation, evaluation.results[recipe.path])
                    yield recipe.path, found

            self._add(look, about)
            return test

        return add

    def fact(self, *, word: str, **about: Unpack[About]) -> Callable[[FactTest], FactTest]:
        """Add a check of the facts of each recipe; `word` gives the line of its findings."""

        def add(test: FactTest) -> FactTest:
            def look(context: Context) -> SubjectResults:
                evaluation = recipe_evaluation.evaluated(context)
                for variant, recipe in context.present():
                    if evaluation.reason:
                        yield recipe.path, evaluation.reason
                    elif facts := evaluation.results[recipe.path].facts:
                        yield recipe.path, _placed(recipe, word, test(variant, facts))
                    else:
                        yield recipe.path, "does not evaluate"

            self._add(look, about)
            return test

        return add

    def _add(self, look: Callable[[Context], SubjectResults], about: About) -> None:
        self.append(VerifyCheck(look=look, prepare=recipe_evaluation.prepare, **about))


def _placed(recipe: RecipeFile, word: str, findings: Findings) -> Iterator[Finding]:
    line = recipe.line_of(max(recipe.code.find(word), 0))
    return (structs.replace(finding, line=line) for finding in findings)


def equal(name: str, found: Any, expected: Any) -> Iterator[Finding]:  # noqa: ANN401 - facts
    """Yield a finding if a fact is not the expected value."""
    if found != expected:
        yield Finding(f"{name} = {json.dumps(found)}", f"{name} = {json.dumps(expected)}")


def get(facts: Any, name: str) -> Any:  # noqa: ANN401 - facts of a foreign recipe are anything
    """Return an attribute of a fact, or None if the fact has no attributes."""
    return facts.get(name) if isinstance(facts, dict) else None


def text_of(value: Any) -> str:  # noqa: ANN401 - the same
    """Return a fact that is a string, or the empty string for another value."""
    return value if isinstance(value, str) else ""


def shell_of(value: Any) -> str:  # noqa: ANN401 - the same
    """Return a fact that is a shell script, without its comments."""
    return re.sub(r"(?m)^\s*#.*$", "", text_of(value))
