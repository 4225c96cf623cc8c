"""Checks that the rules of the matrix are needed and agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from build_pytorch.base import paths
from build_pytorch.base.versions import in_range
from build_pytorch.matrix import rules
from build_pytorch.matrix.matrix_reader import TomlLines
from build_pytorch.matrix.source_tables import required_torch, version_for
from build_pytorch.verify.check import TREE, CheckList, Context, Finding

CHECKS: Final = CheckList(TREE)

_ADD_PAIR: Final = "compare the pair with its source and add it there, with source and date"


@CHECKS.add(
    "Every rule applies to a variant, and its `until` does not hold for all of them",
    why="A rule that no longer applies hides a mistake in its condition, or is no longer needed.",
    fix="correct `when` or remove the rule from matrix.toml",
)
def rules_needed(context: Context) -> Iterator[Finding]:
    yield from _findings(context, is_error=False)


@CHECKS.add(
    "No two rules set a switch of one variant to different values",
    why="Which value counts would depend on the order of the rules.",
    fix="narrow `when` of one rule, or switch it off for the variants with a setting",
)
def rules_agree(context: Context) -> Iterator[Finding]:
    yield from _findings(context, is_error=True)


@CHECKS.add(
    "Companions have the versions that belong to the PyTorch of their release",
    why="TorchVision and TorchAudio are written for one PyTorch: with another they do not compile, "
    "or fail when they are imported.",
    fix="set the version, and take its hash with `invoke prefetch`",
)
def companion_version(context: Context) -> Iterator[Finding]:
    for name, release in context.matrix.releases.items():
        torch = release.torch.version
        for place, source in release.sources.items():
            if source is release.torch:
                continue
            companion = place[-1]
            table = f"[release.{name}.{'.'.join(place)}]"
            found = f"{companion} {source.version} with PyTorch {torch}"
            required = required_torch(companion, source.version)
            if required is None or release.torch.is_nightly:
                expected = "a pair that build_pytorch/matrix/companion_versions.toml has"
                finding = context.matrix_finding(table, found, expected, fix=_ADD_PAIR)
                yield structs.replace(finding, severity="warning")
            elif not in_range(torch, required):
                wanted = version_for(torch, companion)
                expected = f"{companion} {wanted}" if wanted else f"no {companion}"
                found += f"; it is for PyTorch {required.removeprefix('==')}"
                yield context.matrix_finding(table, found, expected)


def _findings(context: Context, *, is_error: bool) -> Iterator[Finding]:
    matrix = context.matrix
    found = [p for p in rules.problems(matrix.rules, matrix.variants) if p.is_error == is_error]
    lines = TomlLines(matrix.text if found else "")
    for problem in found:
        yield Finding(
            problem.found,
            problem.expected,
            path=paths.MATRIX,
            line=lines.of(("rule", matrix.rules.index(problem.rule))),
            severity="error" if is_error else "warning",
        )
