"""Evaluated recipes as subjects of checks, and functions that compare facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import Context, Finding, Subjects
from build_pytorch.verify.recipe_evaluation import EvaluatedRecipe, Evaluation, Facts


def _results(context: Context) -> Iterator[tuple[str, tuple[Evaluation, EvaluatedRecipe] | str]]:
    evaluation = recipe_evaluation.evaluated(context)
    for _, recipe in context.present():
        path = recipe.path
        yield path, evaluation.reason or (evaluation, evaluation.results[path])


def _facts(context: Context) -> Iterator[tuple[str, tuple[Variant, Facts] | str]]:
    evaluation = recipe_evaluation.evaluated(context)
    for variant, recipe in context.present():
        result = evaluation.results.get(recipe.path)
        facts = result.facts if result else None
        reason = evaluation.reason or "does not evaluate"
        yield recipe.path, (variant, facts) if facts else reason


RESULTS: Final = Subjects(each=_results, prepare=recipe_evaluation.prepare)
"""Each recipe: the whole evaluation and the result of the recipe."""
FACTS: Final = Subjects(each=_facts, prepare=recipe_evaluation.prepare)
"""Each recipe that evaluates: the variant and its facts."""


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
