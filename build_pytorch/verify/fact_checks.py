"""Findings of facts: the one loop that compares them with those that are expected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from build_pytorch.base import digest, paths
from build_pytorch.base.console import counted, grouped, shortened
from build_pytorch.matrix.model import Package
from build_pytorch.verify import recipe_facts
from build_pytorch.verify.check import Check, Finding, check_of
from build_pytorch.verify.context import Context, RecipeFile
from build_pytorch.verify.expected import compared, expected, is_forgiven
from build_pytorch.verify.recipe_facts import Facts, RecipeFacts

_SHOWN: Final = 200  #: characters of a value in a finding


def run(checks: Sequence[Check], context: Context) -> dict[str, tuple[list[Finding], str]]:
    """Return the findings of each check by its id, and what it did not look at."""
    given = recipe_facts.facts_of(context)
    findings, names = _compare(context, given)
    missing = sum(None in given.of(recipe.path) for _, recipe in context.present)
    reason = f"{counted(missing, 'recipe')} not evaluated" if missing else ""
    looked_at = {check_of(name).id for name in names} | {"evaluates", "eval-distinct"}
    by_check = grouped((finding.check, finding) for finding in findings)
    ran = {}
    for each in checks:
        why = given.missing or (given.no_hooks if each.category == "hooks" else "") or reason
        if each.id not in looked_at:
            why = why or "no such facts"
        ran[each.id] = by_check.get(each.id, []), why
    return ran


def _compare(context: Context, given: RecipeFacts) -> tuple[list[Finding], set[str]]:
    """Return the findings of all recipes, and the names of all facts."""
    findings = list(_of_release(context, given))
    names: set[str] = set()
    builds: dict[tuple[str, str], str] = {}
    for package, recipe in context.present:
        facts, pin = given.of(recipe.path)
        if facts is None or pin is None:
            findings += _not_evaluated(given, package)
            continue
        torch = given.facts.get(package.variant.path, {}).get("drvPath", "")
        is_generated = digest.is_intact(recipe.text) is not None
        wanted = expected(package, pin, facts, torch, is_generated=is_generated)
        own = compared(facts)
        names |= own.keys() | wanted.keys()
        for name in sorted(own.keys() | wanted.keys()):
            if own.get(name) != wanted.get(name):
                findings.append(_different(name, recipe, own.get(name), wanted.get(name), pin))
        first = builds.setdefault((package.release.catalog, facts["drvPath"]), recipe.path)
        if first != recipe.path:
            same, of_own = f"the same derivation as {first}", "a build of its own"
            findings.append(_finding("eval-distinct", same, of_own, recipe.path))
    return findings, names


def _finding(check: str, found: str, wanted: str, path: str, line: int = 1) -> Finding:
    return Finding(check=check, found=found, expected=wanted, path=path, line=line)


def _not_evaluated(given: RecipeFacts, package: Package) -> Iterator[Finding]:
    """Yield why a recipe has no facts, unless its variant is the cause."""
    result = given.results.get(package.path)
    if result is None or result.needs:
        return
    error = result.error
    stopped = [r for r in given.results.values() if r.needs == package.path and r.id in given.pins]
    if not error:
        pin = given.results.get(given.pins[package.path])
        error = f"the package of the pinned nixpkgs: {pin.error if pin else 'unknown'}"
    elif stopped:
        error += f"; it also stops {counted(len(stopped), 'companion')}"
    yield _finding("evaluates", error, "a package", package.path, result.line)


def _of_release(context: Context, given: RecipeFacts) -> Iterator[Finding]:
    """Yield why release.nix has no packages, and those that are no variants."""
    result = given.results.get(paths.RELEASE)
    if result is None:
        return
    id_ = "eval-release-nix"
    if result.error:
        yield _finding(id_, result.error, "a set of packages", paths.RELEASE, result.line)
    names = {package.attribute for package in context.matrix.packages}
    for name in (result.facts or {}).get("packages", {}):
        if name not in names:
            found = f"{name}, which is no variant"
            yield _finding(id_, found, "the variants", paths.RELEASE)


def _different(name: str, recipe: RecipeFile, value: Any, wanted: Any, pin: Facts) -> Finding:  # noqa: ANN401 - facts
    """Return the finding of a fact that is not as expected, with the parts that differ."""
    check = check_of(name)
    forgiven = not recipe.is_ours and is_forgiven(name, value, pin)
    kind, _, rest = name.partition(".")
    label = rest if kind in {"attr", "env", "file"} else name
    if isinstance(value, list) and isinstance(wanted, list):
        added = [_shown(item) for item in value if item not in wanted]
        missing = [_shown(item) for item in wanted if item not in value]
        parts = [f"with {', '.join(added)}"] if added else []
        parts += [f"without {', '.join(missing)}"] if missing else []
        how = " and ".join(parts) or "in another order, or an element twice"
        texts = [f"{label} {how}", f"{label} = {_shown(wanted)}"]
    else:
        if isinstance(value, str) and isinstance(wanted, str):
            value, wanted = _from_first_difference(value, wanted)
        absent = {"env": "not exported", "file": "as after the hooks of nixpkgs"}
        nothing = f"{label} {absent.get(kind, 'nothing')}"
        texts = [nothing if it is None else f"{label} = {_shown(it)}" for it in (value, wanted)]
    return Finding(
        found=texts[0],
        expected=texts[1],
        path=check.file or recipe.path,
        line=recipe.line_of(check.word),
        severity="warning" if name == "warnings" or forgiven else "error",
        check=check.id,
    )


def _from_first_difference(value: str, wanted: str) -> tuple[str, str]:
    """Return two texts of many lines from the first line in which they differ."""
    lines, others = value.split("\n"), wanted.split("\n")
    while len(lines) > 1 and len(others) > 1 and lines[0] == others[0]:
        del lines[0], others[0]
    return "\n".join(lines[:2]), "\n".join(others[:2])


def _shown(value: Any) -> str:  # noqa: ANN401 - a fact
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return shortened(text, _SHOWN)
