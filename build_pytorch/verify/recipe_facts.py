"""The values of evaluated recipes, as subjects of checks."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from build_pytorch.base import digest, paths
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES
from build_pytorch.verify.check import Context, Finding, Subjects
from build_pytorch.verify.recipe_evaluation import EvaluatedRecipe, evaluated

_NO_VARIANT: Final = "its variant does not evaluate"


class Facts(dict[str, Any]):
    """The attributes of an evaluated recipe, by the names in nixpkgs_model/facts.nix.

    The methods take names with dots. A hand-written recipe may have a value of any type.
    """

    def value(self, name: str) -> Any:  # noqa: ANN401 - any type
        """Return a fact; None if an attribute on the way is missing."""
        value: Any = self
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def text(self, name: str) -> str:
        """Return a fact that is a string, or the empty string for another value."""
        value = self.value(name)
        return value if isinstance(value, str) else ""

    def list(self, name: str) -> list[Any]:
        """Return a fact that is a list, or the empty list for another value."""
        value = self.value(name)
        return value if isinstance(value, list) else []

    def expect(self, wanted: Mapping[str, Any], *, lenient: bool = False) -> Iterator[Finding]:
        """Yield a finding for each fact that is not the expected value."""
        for name, expected in wanted.items():
            for finding in equal(name, self.value(name), expected):
                yield msgspec.structs.replace(finding, lenient=lenient)


def equal(name: str, found: Any, expected: Any) -> Iterator[Finding]:  # noqa: ANN401 - facts
    """Yield a finding if a value is not the expected one."""
    if found != expected:
        yield Finding(f"{name} = {json.dumps(found)}", f"{name} = {json.dumps(expected)}")


def without_hashes(text: str) -> str:
    """Return a text without the hashes of store paths: overlays change those of inputs."""
    return re.sub(r"(?<=/)[0-9a-z]{32}-", "", text)


def without_packages(text: str, package: Package) -> str:
    """Return a text without the versions of CUDA packages that a variant takes from elsewhere."""
    if package.variant.packages_from is None:
        return text
    names = "|".join(CUDA_PACKAGES)
    return re.sub(rf"/[^/\s]*\b({names})-[^/\s]*?(-lib|-dev|-include)?(?=[/\s]|$)", r"/\1\2", text)


def _results(context: Context) -> Iterator[tuple[str, tuple[Context, EvaluatedRecipe] | str]]:
    evaluation = evaluated(context)
    for package, recipe in context.present:
        result = evaluation.results.get(recipe.path)
        if evaluation.is_stopped(package):
            yield recipe.path, _NO_VARIANT
        else:
            reason = evaluation.reason or "its variant has no recipe that can be read"
            yield recipe.path, (context, result) if result else reason


@functools.cache
def package_facts(context: Context) -> list[tuple[str, tuple[Package, Facts] | str]]:
    """Return the path of each recipe: its package and facts, or why it has none."""
    evaluation = evaluated(context)
    found: list[tuple[str, tuple[Package, Facts] | str]] = []
    for package, recipe in context.present:
        result = evaluation.results.get(recipe.path)
        facts = result.facts if result else None
        reason = evaluation.reason or "does not evaluate"
        found.append((recipe.path, (package, Facts(facts)) if facts else reason))
    return found


def _variant_facts(context: Context) -> Iterator[tuple[str, tuple[Package, Facts] | str]]:
    for path, given in package_facts(context):
        if isinstance(context.by_path[path], Variant):
            yield path, given


def _generated_facts(context: Context) -> Iterator[tuple[str, tuple[Package, Facts] | str]]:
    for path, given in _variant_facts(context):
        if digest.has_digest(context.recipes[path].text):
            yield path, given


def _companion_facts(context: Context) -> Iterator[tuple[str, tuple[Any, ...] | str]]:
    drv_paths = {path: result.drv_path for path, result in evaluated(context).results.items()}
    for path, given in package_facts(context):
        package = context.by_path[path]
        if isinstance(package, CompanionPackage):
            torch = drv_paths.get(package.variant.path)
            with_torch = (*given, torch) if torch else _NO_VARIANT
            yield path, given if isinstance(given, str) else with_torch


def _release(context: Context) -> Iterator[tuple[str, tuple[Context, EvaluatedRecipe] | str]]:
    evaluation = evaluated(context)
    result = evaluation.results.get(paths.RELEASE)
    broken = [r.id for r in evaluation.results.values() if not (r.ok or r is result)]
    absent = [path for path in context.by_path if path not in context.recipes]
    unreadable = [path for path in absent if path in context.unreadable]
    reason = evaluation.reason or "no such file here"
    # release.nix imports all recipes; their own findings say what is wrong.
    if broken:
        reason = f"{broken[0]} does not evaluate"
    elif unreadable:
        reason = f"a recipe cannot be read: {unreadable[0]}"
    elif absent:
        reason = f"a recipe is missing: {absent[0]}"
    yield paths.RELEASE, reason if broken or not result else (context, result)


RESULTS: Final = Subjects(each=_results)
"""Each recipe: the context and the result of the recipe."""
FACTS: Final = Subjects(each=_variant_facts)
"""The recipe of each variant that evaluates: the variant and its facts."""
PACKAGE_FACTS: Final = Subjects(each=package_facts)
"""Each recipe that evaluates, also of a companion: the package and its facts."""
COMPANIONS: Final = Subjects(each=_companion_facts)
"""Each companion that evaluates: it, its facts, and the derivation path of its variant."""
GENERATED_FACTS: Final = Subjects(each=_generated_facts)
"""Recipes of variants without those that are written by hand, which may use other words."""
RELEASE: Final = Subjects(each=_release, needs_all=True)
"""release.nix: the context and the result, whose fact `packages` has name and system of each."""
