"""Checks that the rules of the matrix are needed and agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from build_pytorch.base import paths
from build_pytorch.matrix import rules
from build_pytorch.matrix.toml_lines import TomlLines
from build_pytorch.verify.check import TREE, CheckList, Context, Finding

CHECKS: Final = CheckList(TREE)


@CHECKS.add(
    id="rules-needed",
    title="Every rule applies to a variant, and its `until` does not hold for all of them",
    why="A rule that no longer applies hides a mistake in its condition, or is no longer needed.",
    fix="correct `when` or remove the rule from matrix.toml",
)
def _needed(context: Context) -> Iterator[Finding]:
    yield from _findings(context, is_error=False)


@CHECKS.add(
    id="rules-agree",
    title="No two rules set a switch of one variant to different values",
    why="Which value counts would depend on the order of the rules.",
    fix="narrow `when` of one rule, or switch it off for the variants with a setting",
)
def _agree(context: Context) -> Iterator[Finding]:
    yield from _findings(context, is_error=True)


def _findings(context: Context, *, is_error: bool) -> Iterator[Finding]:
    matrix = context.matrix
    found = [p for p in rules.problems(matrix.rules, matrix.variants) if p.is_error == is_error]
    lines = TomlLines(matrix.text if found else "")
    for problem in found:
        yield Finding(
            problem.found,
            problem.expected,
            path=paths.MATRIX.name,
            line=lines.of(("rule", matrix.rules.index(problem.rule))),
            severity="error" if is_error else "warning",
        )
