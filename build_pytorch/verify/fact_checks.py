"""Findings of facts: the one loop that compares, and the checks of all recipes together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base import digest, paths
from build_pytorch.base.console import counted, shortened
from build_pytorch.matrix.model import Package
from build_pytorch.nix.evaluation import EvaluatedRecipe
from build_pytorch.verify import check, expected
from build_pytorch.verify.check import Finding
from build_pytorch.verify.context import Context
from build_pytorch.verify.expected import Contains, Within
from build_pytorch.verify.recipe_facts import Facts, RecipeFacts

_SHOWN: Final = 200  #: characters of a value in a finding


def compare(context: Context, given: RecipeFacts) -> Iterator[Finding]:
    """Yield the findings of all recipes, each with its check."""
    for package, recipe in context.present:
        facts, pin = given.facts.get(recipe.path), given.pins.get(recipe.path)
        if facts is None or pin is None:
            yield from _not_evaluated(given, package)
            continue
        torch = given.facts.get(package.variant.path, {}).get("drvPath", "")
        is_generated = digest.has_digest(recipe.text)
        wanted = expected.expected(package, pin, facts, torch, is_generated=is_generated)
        found = expected.compared(facts)
        for name in sorted(found.keys() | wanted.keys()):
            value, expectation = found.get(name), wanted.get(name)
            if value != expectation and not _holds(expectation, value):
                own = check.check_of(name)
                is_warning = name == "warnings" or (own.forgives(name) and not recipe.is_ours)
                shown, wanted_text = _difference(name, value, expectation)
                yield Finding(
                    found=shown,
                    expected=wanted_text,
                    path=recipe.path,
                    line=1 + recipe.text.count("\n", 0, max(0, recipe.code.find(own.word))),
                    severity="warning" if is_warning else "error",
                    check=own.id,
                )


def _holds(expectation: Any, value: Any) -> bool:  # noqa: ANN401 - facts
    return isinstance(expectation, Contains | Within) and expectation.holds(value)


def _not_evaluated(given: RecipeFacts, package: Package) -> Iterator[Finding]:
    """Yield why a recipe has no facts, unless its variant is the cause."""
    result = given.results.get(package.path)
    error = result.error if result else ""
    if result is None or result.needs:
        return
    if error and package is package.variant:
        needs = [
            r for r in given.results.values() if r.needs == package.path and r.id != paths.RELEASE
        ]
        error += f"; it also stops {counted(len(needs), 'companion')}" if needs else ""
    elif not error:
        error = (
            f"the package of the pinned nixpkgs: {given.pin_errors.get(package.path, 'unknown')}"
        )
    yield Finding(
        found=error,
        expected="a package",
        path=package.path,
        line=result.line,
        column=result.column,
        check="evaluates",
    )


def _difference(name: str, value: Any, expectation: Any) -> tuple[str, str]:  # noqa: ANN401 - facts
    """Return what was found and what is expected, with the parts that differ."""
    kind, _, rest = name.partition(".")
    label = rest if kind in {"attr", "env", "file"} else name
    if isinstance(expectation, Contains):
        found = f"{label} without {', '.join(map(_shown, expectation.missing(value)))}"
        return found, f"{label} with them"
    if isinstance(expectation, Within):
        expectation = list(expectation.items)
    if isinstance(value, list) and isinstance(expectation, list):
        added = [_shown(item) for item in value if item not in expectation]
        missing = [_shown(item) for item in expectation if item not in value]
        parts = [f"{label} with {', '.join(added)}"] if added else []
        parts += [f"{label} without {', '.join(missing)}"] if missing else []
        found = " and ".join(parts) or f"{label} in another order, or an element twice"
        return found, f"{label} = {shortened(_shown(expectation), _SHOWN)}"
    value, expectation = _where_different(value, expectation)
    sign = "=" if kind == "env" else " = " if kind != "file" else ": "
    absent = {"env": "not exported", "file": "as after the hooks of nixpkgs"}.get(kind, "nothing")

    def said(it: Any) -> str:  # noqa: ANN401 - a fact
        return (
            f"{label} {absent}" if it is None else f"{label}{sign}{shortened(_shown(it), _SHOWN)}"
        )

    return said(value), said(expectation)


def _where_different(value: Any, expectation: Any) -> tuple[Any, Any]:  # noqa: ANN401 - facts
    """Return two texts of many lines from the first line in which they differ."""
    if isinstance(value, str) and isinstance(expectation, str) and "\n" in value + expectation:
        pair = value.split("\n"), expectation.split("\n")
        same = next(
            (n for n, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), min(map(len, pair))
        )
        value, expectation = ("\n".join(lines[same : same + 2]) for lines in pair)
    return value, expectation


def _shown(value: Any) -> str:  # noqa: ANN401 - a fact
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def eval_distinct(context: Context, given: RecipeFacts) -> Iterator[Finding]:
    """Yield recipes with the derivation of another one of their catalog."""
    firsts: dict[tuple[str, str], str] = {}
    for package, recipe in context.present:
        facts = given.facts.get(recipe.path)
        if facts is not None:
            key = package.release.catalog, facts["drvPath"]
            first = firsts.setdefault(key, recipe.path)
            if first != recipe.path:
                found = f"the same derivation as {first}"
                yield Finding(found=found, expected="a build of its own", path=recipe.path)


def eval_release_nix(context: Context, given: RecipeFacts) -> Iterator[Finding]:
    """Yield what release.nix evaluates to beside the packages of the matrix.

    Raises CheckSkipped if it is missing, or a recipe that it imports is wrong.
    """
    result = given.results.get(paths.RELEASE)
    if absent := [path for path in context.by_path if path not in context.recipes]:
        raise check.CheckSkipped(f"a recipe is missing or cannot be read: {absent[0]}")
    if result is None:
        raise check.CheckSkipped("no such file here")
    if result.needs:
        raise check.CheckSkipped(f"{result.needs} does not evaluate")
    if not result.facts:
        yield Finding(
            found=result.error,
            expected="a set of packages",
            path=paths.RELEASE,
            line=result.line,
            column=result.column,
        )
        return
    yield from _set_findings(context, given, result)


def _set_findings(
    context: Context, given: RecipeFacts, result: EvaluatedRecipe
) -> Iterator[Finding]:
    facts: Facts = result.facts or {}
    packages, possible = dict(facts["packages"]), set(facts["possible"])
    for package in context.matrix.packages:
        name, platform = f"{package.pname}-{package.version}", package.platform
        drv = packages.pop(
            package.attribute, {"name": "nothing", "system": "nothing", "drvPath": None}
        )
        own = given.facts[package.path]["drvPath"]
        # Nix puts the Python of nixpkgs before the name; offline, it is that of the model.
        if drv["name"].partition("-")[2] != name or drv["system"] != platform:
            shown = f"{package.package} = {drv['name']} for {drv['system']}"
            yield Finding(found=shown, expected=f"{name} for {platform}", path=paths.RELEASE)
        elif drv["drvPath"] not in {None, own}:
            shown = f"{package.package} = {drv['drvPath']}"
            wanted = f"{own}, as from its recipe alone"
            yield Finding(found=shown, expected=wanted, path=paths.RELEASE)
        if (package.attribute in possible) == bool(package.impossible):
            shown = f"{package.package} {'with' if package.impossible else 'without'}"
            shown += " impossibleHosts = false"
            wanted = "the packages that a machine can run"
            yield Finding(found=shown, expected=wanted, path=paths.RELEASE)
    for name in packages:
        found = f"{name}, which is no variant"
        yield Finding(found=found, expected="the variants", path=paths.RELEASE)


OF_ALL: Final = {"eval-distinct": eval_distinct, "eval-release-nix": eval_release_nix}
"""The checks of all recipes together, by id."""
