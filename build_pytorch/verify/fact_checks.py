"""Findings of facts: the one loop that compares them with those that are expected."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base import digest, paths
from build_pytorch.base.console import counted, shortened
from build_pytorch.matrix.model import Package
from build_pytorch.verify.check import Finding, check_of
from build_pytorch.verify.context import Context
from build_pytorch.verify.expected import compared, expected, is_forgiven
from build_pytorch.verify.recipe_facts import RecipeFacts

_SHOWN: Final = 200  #: characters of a value in a finding


def compare(context: Context, given: RecipeFacts) -> tuple[list[Finding], dict[str, set[str]]]:
    """Return the findings of all recipes, and the recipes that each check looked at."""
    findings: list[Finding] = []
    looked_at: dict[str, set[str]] = defaultdict(set)
    builds: dict[tuple[str, str], str] = {}
    for package, recipe in context.present:
        pair = given.of(recipe.path)
        if pair is None:
            findings += _not_evaluated(given, package)
            continue
        facts, pin = pair
        torch = given.facts.get(package.variant.path, {}).get("drvPath", "")
        is_generated = digest.has_digest(recipe.text)
        wanted = expected(package, pin, facts, torch, is_generated=is_generated)
        found = compared(facts)
        for name in sorted(found.keys() | wanted.keys()):
            own = check_of(name)
            looked_at[own.id].add(own.file or recipe.path)
            value, expectation = found.get(name), wanted.get(name)
            if value == expectation:
                continue
            is_warning = name == "warnings" or (
                not recipe.is_ours and is_forgiven(name, value, pin)
            )
            shown, wanted_text = _difference(name, value, expectation)
            finding = Finding(
                found=shown,
                expected=wanted_text,
                path=own.file or recipe.path,
                line=1 + recipe.text.count("\n", 0, max(0, recipe.code.find(own.word))),
                severity="warning" if is_warning else "error",
                check=own.id,
            )
            findings.append(finding)
        looked_at["evaluates"].add(recipe.path)
        looked_at["eval-distinct"].add(recipe.path)
        first = builds.setdefault((package.release.catalog, facts["drvPath"]), recipe.path)
        if first != recipe.path:
            same = f"the same derivation as {first}"
            expected_ = "a build of its own"
            findings.append(
                Finding(found=same, expected=expected_, path=recipe.path, check="eval-distinct")
            )
    findings += _of_release(context, given)
    for finding in findings:
        looked_at[finding.check].add(finding.path)
    return findings, looked_at


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
    yield Finding(
        found=error,
        expected="a package",
        path=package.path,
        line=result.line,
        column=result.column,
        check="evaluates",
    )


def _of_release(context: Context, given: RecipeFacts) -> Iterator[Finding]:
    """Yield why release.nix has no packages, and those that are no variants."""
    result = given.results.get(paths.RELEASE)
    if result is None:
        return
    if result.error:
        yield Finding(
            found=result.error,
            expected="a set of packages",
            path=paths.RELEASE,
            line=result.line,
            column=result.column,
            check="eval-release-nix",
        )
    names = {package.attribute for package in context.matrix.packages}
    for name in (result.facts or {}).get("packages", {}):
        if name not in names:
            yield Finding(
                found=f"{name}, which is no variant",
                expected="the variants",
                path=paths.RELEASE,
                check="eval-release-nix",
            )


def _difference(name: str, value: Any, wanted: Any) -> tuple[str, str]:  # noqa: ANN401 - facts
    """Return what was found and what is expected, with the parts that differ."""
    kind, _, rest = name.partition(".")
    label = rest if kind in {"attr", "env", "file"} else name
    if isinstance(value, list) and isinstance(wanted, list):
        added = [_shown(item) for item in value if item not in wanted]
        missing = [_shown(item) for item in wanted if item not in value]
        parts = [f"with {', '.join(added)}"] if added else []
        parts += [f"without {', '.join(missing)}"] if missing else []
        how = " and ".join(parts) or "in another order, or an element twice"
        return f"{label} {how}", f"{label} = {_shown(wanted)}"
    if isinstance(value, str) and isinstance(wanted, str):
        value, wanted = _from_first_difference(value, wanted)
    absent = {"env": "not exported", "file": "as after the hooks of nixpkgs"}.get(kind, "nothing")
    texts = [
        f"{label} {absent}" if it is None else f"{label} = {_shown(it)}" for it in (value, wanted)
    ]
    return texts[0], texts[1]


def _from_first_difference(value: str, wanted: str) -> tuple[str, str]:
    """Return two texts of many lines from the first line in which they differ."""
    lines, others = value.split("\n"), wanted.split("\n")
    while len(lines) > 1 and len(others) > 1 and lines[0] == others[0]:
        del lines[0], others[0]
    return "\n".join(lines[:2]), "\n".join(others[:2])


def _shown(value: Any) -> str:  # noqa: ANN401 - a fact
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return shortened(text, _SHOWN)
