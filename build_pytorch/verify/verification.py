"""A run of checks, and its result."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from build_pytorch.base import digest, paths
from build_pytorch.base.console import counted, shortened
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.verify import check, recipe_facts, tree_checks
from build_pytorch.verify.check import Check, CheckOutcome, Context, Finding, RecipeFile, State
from build_pytorch.verify.expected import expected
from build_pytorch.verify.recipe_facts import RecipeFacts

_RELEASE: Final = "eval-release-nix"
_SHOWN: Final = 200  #: characters of a value in a finding
_SENTENCES: Final = {"error": "a package", "sameAs": "a build of its own"}
"""Facts that are there only if they are wrong, and what is expected in their place."""


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
    pages: Mapping[str, str] | None = None,
) -> VerificationResult:
    """Run checks on the recipes and docs below a root. Nothing is written there.

    With a selection of variants, checks that need all of them are left out. Raises
    BuildPytorchError for an unknown check, and if the pinned nixpkgs is not available.
    """
    context = Context(matrix, root, variants, pinned=pinned, pages=pages)
    checks = {id_: it for id_, it in check.chosen(only).items() if context.has(it.needs)}
    if not checks:
        why = "these checks need all variants, or what this project does not have"
        raise BuildPytorchError(f"{why}; leave --packages out, or name others")
    of_facts = {id_ for id_, it in checks.items() if it.facts}
    of_tree = checks.keys() - of_facts
    with ThreadPoolExecutor(1) as pool:
        results = pool.map(lambda id_: tree_checks.findings_of(context, id_), of_tree)
        findings, reasons = _compare(context, of_facts) if of_facts else ([], {})  # waits for Nix
    for id_, (found, reason) in zip(of_tree, results, strict=True):
        findings += [structs.replace(finding, check=id_) for finding in found]
        reasons[id_] = reason
    findings = [
        structs.replace(finding, fix=finding.fix or checks[finding.check].fix)
        for finding in sorted(findings, key=lambda finding: [*checks].index(finding.check))
    ]
    outcomes = []
    for id_, it in checks.items():
        severities = {finding.severity for finding in findings if finding.check == id_}
        state: State = "skipped" if reasons[id_] else "passed"
        if severities:
            state = "failed" if "error" in severities else "warning"
        outcomes.append(CheckOutcome(id=id_, title=it.title, state=state, reason=reasons[id_]))
    summary, is_bad = _summary(context, outcomes, findings, strict=strict)
    return VerificationResult(
        variants=[variant.id for variant in context.variants],
        checks=outcomes,
        findings=findings,
        notes=matrix.notes,
        summary=summary,
        exit_code=EXIT_FINDINGS if is_bad else EXIT_OK,
    )


def _compare(context: Context, ids: Collection[str]) -> tuple[list[Finding], dict[str, str]]:
    """Compare all facts with those that are expected, for some checks.

    Return the findings, and what each check did not look at.
    """
    checks = {id_: check.load().check[id_] for id_ in ids}
    given = RecipeFacts()
    if {it.category for it in checks.values()} & {"evaluation", "hooks"}:
        given = recipe_facts.facts_of(context)
    findings = list(_of_release(context, given)) if _RELEASE in checks else []
    names, not_evaluated = {"error", "sameAs"}, 0
    builds: dict[tuple[str, str], str] = {}
    for package, recipe in context.present:
        values, wanted = recipe_facts.of_text(package, recipe)
        own, pin = given.facts.get(recipe.path), given.facts.get(given.pins.get(recipe.path, ""))
        if own is None or pin is None:
            not_evaluated += 1
            values["error"] = _error(given, recipe.path)
        else:
            torch = given.facts.get(package.variant.path, {}).get("drvPath", "")
            by_hand = digest.is_intact(recipe.text) is None
            wanted |= expected(package, pin, own, torch, by_hand=by_hand)
            values |= own
            first = builds.setdefault((package.release.catalog, own["drvPath"]), recipe.path)
            values["sameAs"] = f"the same derivation as {first}" if first != recipe.path else None
        both = values.keys() | wanted.keys()
        names |= both
        for name in sorted(it for it in both if values.get(it) != wanted.get(it)):
            if (id_ := check.check_of(name)) in checks:
                pair = values.get(name), wanted.get(name)
                finding = _finding(name, checks[id_], package, recipe, pair)
                line = given.results[recipe.path].line if name == "error" else finding.line
                findings.append(structs.replace(finding, check=id_, line=line))
    looked_at = {check.check_of(name) for name in names}
    reasons = {id_: "" if id_ in looked_at else "no such facts" for id_ in checks}
    for id_ in [id_ for id_, it in checks.items() if it.category != "text"]:
        missing = f"{counted(not_evaluated, 'recipe')} not evaluated" if not_evaluated else ""
        reasons[id_] = given.missing or missing or reasons[id_]
    return findings, reasons


def _error(given: RecipeFacts, path: str) -> str | None:
    """Return why a recipe has no facts; None if its variant is the cause."""
    result = given.results.get(path)
    if result is None or result.needs:
        return None
    if not result.error:
        pin = given.results.get(given.pins[path])
        return f"the package of the pinned nixpkgs: {pin.error if pin else 'unknown'}"
    stopped = [it for it in given.results.values() if it.needs == path and it.id in given.pins]
    also = f"; it also stops {counted(len(stopped), 'companion')}" if stopped else ""
    return result.error + also


def _of_release(context: Context, given: RecipeFacts) -> Iterator[Finding]:
    """Yield why release.nix has no packages, and those that are no variants."""
    result = given.results.get(paths.RELEASE)
    if result is None:
        return
    found = {result.error: "a set of packages"} if result.error else {}
    names = {package.attribute for package in context.matrix.packages}
    others = (result.facts or {}).get("packages", {}).keys() - names
    found |= {f"{name}, which is no variant": "the variants" for name in sorted(others)}
    for said, expects in found.items():
        line = result.line
        yield Finding(found=said, expected=expects, path=paths.RELEASE, line=line, check=_RELEASE)


def _finding(
    name: str, of: Check, package: Package, recipe: RecipeFile, pair: tuple[Any, Any]
) -> Finding:
    """Return the finding of a fact: a pair of its value and of that which is expected."""
    value, wanted = pair
    kind, _, rest = name.partition(".")
    label = f"{rest if kind in {'attr', 'env', 'file', 'text'} else name}:"
    gone, come = recipe_facts.changed_words(wanted, value, _SHOWN)
    found = f"with {come}" if come else "in another order or layout, or a part twice"
    if gone:
        found = f"{come} in place of {gone}" if come else f"without {gone}"
    if value in (None, "", []) or wanted in (None, "", []):
        found = _shown(value)
    found, expects = f"{label} {found}", f"{label} {_shown(wanted)}"
    if name in _SENTENCES:
        found, expects = value, _SENTENCES[name]
    added = [it for it in value if it not in (wanted or ())] if isinstance(value, list) else []
    is_intact = digest.is_intact(recipe.text) is True
    is_forgiven = not is_intact and any(
        name.startswith(prefix) and re.fullmatch(pattern, str(value), re.DOTALL)
        for prefix, pattern in of.by_hand.items()
    )
    force = "" if is_intact else " --force"
    return Finding(
        found=found,
        expected=expects,
        path=of.file or recipe.path,
        line=1 if of.file else recipe.line_of(of.word or next(iter(added), "\nlet\n")),
        fix="" if of.file else f"run `invoke {package.phase.command}{force}`, or: {of.fix}",
        severity="warning" if name == "warnings" or is_forgiven else "error",
    )


def _shown(value: Any) -> str:  # noqa: ANN401 - a fact
    if value in (None, "", []):
        return "nothing"
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    return shortened(text if isinstance(text, str) else json.dumps(text), _SHOWN)


def _summary(
    context: Context, outcomes: Sequence[CheckOutcome], findings: Sequence[Finding], *, strict: bool
) -> tuple[str, bool]:
    """Return the numbers of recipes, checks and findings, and whether the verification fails."""
    states = Counter(outcome.state for outcome in outcomes)
    severities = Counter(finding.severity for finding in findings)
    parts = [
        f"{sum(it.path in context.recipes for it in packages)} of {counted(len(packages), noun)}"
        for noun, packages in (("recipe", context.variants), ("companion", context.companions))
        if packages
    ]
    said = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    parts.append(f"{counted(len(outcomes), 'check')}: {said}")
    numbers = [counted(severities[severity], severity) for severity in ("error", "warning")]
    summary = f"{', '.join(parts)}; {', '.join(numbers)}"
    if strict and not severities["error"] and states.total() > states["passed"]:
        return f"{summary}; --strict fails on warnings and skipped checks", True
    return summary, severities["error"] > 0
