"""Checks of matrix.toml itself: rules that are needed and agree, versions and hashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from build_pytorch.base import paths
from build_pytorch.base.versions import in_range
from build_pytorch.matrix import rules
from build_pytorch.matrix.source_tables import required_torch, version_for
from build_pytorch.matrix.toml_lines import line_of
from build_pytorch.verify.check import Finding
from build_pytorch.verify.context import Context

_ADD_PAIR: Final = "compare the pair with its source and add it there, with source and date"


def rules_needed(context: Context) -> Iterator[Finding]:
    """Yield rules that apply to no variant, or whose `until` holds for all of them."""
    yield from _rule_findings(context, is_error=False)


def rules_agree(context: Context) -> Iterator[Finding]:
    """Yield rules that contradict each other."""
    yield from _rule_findings(context, is_error=True)


def _rule_findings(context: Context, *, is_error: bool) -> Iterator[Finding]:
    matrix = context.matrix
    found = [p for p in rules.problems(matrix.rules, matrix.variants) if p.is_error == is_error]
    for problem in found:
        yield Finding(
            found=problem.found,
            expected=problem.expected,
            path=paths.MATRIX,
            line=line_of(matrix.text, ("rule", matrix.rules.index(problem.rule))),
            severity="error" if is_error else "warning",
        )


def companion_version(context: Context) -> Iterator[Finding]:
    """Yield companions whose version is for another PyTorch than that of their release."""
    for name, release in context.matrix.releases.items():
        torch = release.torch.version
        for place, source in release.sources.items():
            if source is release.torch:
                continue
            companion = place[-1]
            table = f"[release.{name}.{'.'.join(place)}]"
            found = f"{companion} {source.version} with PyTorch {torch}"
            required = required_torch(companion, source.version)
            wanted = version_for(torch, companion)
            if (
                required is None
                or release.torch.is_nightly
                or not (wanted or in_range(torch, required))
            ):
                expected = "a pair that build_pytorch/matrix/companion_versions.toml has"
                finding = context.matrix_finding(table, found, expected, fix=_ADD_PAIR)
                yield structs.replace(finding, severity="warning")
            elif not in_range(torch, required):
                expected = f"{companion} {wanted}"
                found += f"; it is for PyTorch {required.removeprefix('==')}"
                yield context.matrix_finding(table, found, expected)


def stale_hash(context: Context) -> Iterator[Finding]:
    """Yield sources without a hash, or with the hash of another revision."""
    for source in context.matrix.sources():
        table = ".".join(map(str, source.place))
        expected = f"the hash of {source.taken_for}"
        fix = f"run `invoke prefetch --only {source.name}`, which sets {source.trail[-1]}"
        if source.hash and source.recorded != source.taken_for:
            found = f"{table}: the hash of {source.recorded or 'an unknown revision'}"
            yield context.matrix_finding(f"[{table}]", found, expected, fix)
        elif not (source.hash or source.may_wait):
            found = f"{table}: no hash yet; recipes evaluate, and cannot be built"
            finding = context.matrix_finding(f"[{table}]", found, expected, fix)
            yield structs.replace(finding, severity="warning")
