"""The values of evaluated recipes, as subjects of checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from build_pytorch.base import digest, paths
from build_pytorch.matrix.model import CompanionPackage, Package
from build_pytorch.matrix.source_tables import CUDA_PACKAGES
from build_pytorch.verify.check import Context, Finding, RecipeFile, Subjects
from build_pytorch.verify.recipe_evaluation import EvaluatedRecipe, Evaluation, evaluated, prepare

_NO_VARIANT: Final = "its variant does not evaluate"


class Facts(dict[str, Any]):
    """The attributes of an evaluated recipe, by the names in nixpkgs_model/facts.nix.

    The methods take names with dots. A hand-written recipe may have a value of any type.
    """

    def value(self, name: str) -> Any:  # noqa: ANN401 - any type
        """Return a fact; None if an attribute on the way is missing."""
        if "." not in name:
            return self.get(name)
        found: Any = self
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def text(self, name: str) -> str:
        """Return a fact that is a string, or the empty string for another value."""
        found = self.value(name)
        return found if isinstance(found, str) else ""

    def shell(self, name: str) -> str:
        """Return a fact that is a shell script, without its comments."""
        return re.sub(r"(?m)^\s*#.*$", "", self.text(name))

    def list(self, name: str) -> list[Any]:
        """Return a fact that is a list, or the empty list for another value."""
        found = self.value(name)
        return found if isinstance(found, list) else []

    def expect(self, wanted: Mapping[str, Any], *, lenient: bool = False) -> Iterator[Finding]:
        """Yield a finding for each fact that is not the expected value."""
        for name, expected in wanted.items():
            for finding in equal(name, self.value(name), expected):
                yield msgspec.structs.replace(finding, lenient=lenient)


def equal(name: str, found: Any, expected: Any) -> Iterator[Finding]:  # noqa: ANN401 - facts
    """Yield a finding if a value is not the expected one."""
    if found != expected:
        yield Finding(f"{name} = {json.dumps(found)}", f"{name} = {json.dumps(expected)}")


class CompanionFacts(NamedTuple):
    """A companion with the facts of its recipe, and the derivation path of its variant's recipe."""

    companion: CompanionPackage
    facts: Facts
    torch: str


def without_hashes(text: str) -> str:
    """Return a text without the hashes of store paths: overlays change those of inputs."""
    return re.sub(r"(?<=/)[0-9a-z]{32}-", "", text)


def without_packages(text: str, package: Package) -> str:
    """Return a text without the versions of CUDA packages that a variant takes from elsewhere."""
    if package.variant.packages_from is None:
        return text
    names = "|".join(CUDA_PACKAGES)
    return re.sub(rf"/[^/\s]*\b({names})-[^/\s]*?(-lib|-dev|-include)?(?=[/\s]|$)", r"/\1\2", text)


def _results(context: Context) -> Iterator[tuple[str, tuple[Evaluation, EvaluatedRecipe] | str]]:
    evaluation = evaluated(context)
    for _, recipe in context.present_packages():
        result = evaluation.results.get(recipe.path)
        reason = evaluation.reason or "its variant has no recipe that can be read"
        if evaluation.is_stopped(recipe.path):
            result, reason = None, _NO_VARIANT
        yield recipe.path, (evaluation, result) if result else reason


def _facts(context: Context) -> Iterator[tuple[str, tuple[Package, Facts] | str]]:
    return _facts_of(context, context.present())


def _package_facts(context: Context) -> Iterator[tuple[str, tuple[Package, Facts] | str]]:
    return _facts_of(context, context.present_packages())


def _facts_of(
    context: Context, present: Iterable[tuple[Package, RecipeFile]]
) -> Iterator[tuple[str, tuple[Package, Facts] | str]]:
    evaluation = evaluated(context)
    for package, recipe in present:
        result = evaluation.results.get(recipe.path)
        facts = result.facts if result else None
        reason = evaluation.reason or "does not evaluate"
        yield recipe.path, (package, Facts(facts)) if facts else reason


def _companions(context: Context) -> Iterator[tuple[str, CompanionFacts | str]]:
    evaluation = evaluated(context)
    for companion, recipe in context.present_companions():
        result = evaluation.results.get(recipe.path)
        variant = evaluation.results.get(companion.variant.path)
        facts = result.facts if result else None
        reason = evaluation.reason or "does not evaluate"
        if facts and variant and variant.drv_path:
            yield recipe.path, CompanionFacts(companion, Facts(facts), variant.drv_path)
        else:
            yield recipe.path, reason if facts is None else _NO_VARIANT


def _release(context: Context) -> Iterator[tuple[str, tuple[Context, EvaluatedRecipe] | str]]:
    evaluation = evaluated(context)
    broken = [r.id for r in evaluation.results.values() if not (r.ok or r.id == paths.RELEASE)]
    result = evaluation.results.get(paths.RELEASE)
    if broken:  # its own finding says why; release.nix imports all recipes
        yield paths.RELEASE, f"{broken[0]} does not evaluate"
    else:
        reason = evaluation.reason or _why_no_release(context)
        yield paths.RELEASE, (context, result) if result else reason


def _why_no_release(context: Context) -> str:
    """Return why release.nix was not evaluated together with the recipes that it imports."""
    absent = [path for path in context.by_path if path not in context.recipes]
    if unreadable := [path for path in absent if path in context.unreadable]:
        return f"a recipe cannot be read: {unreadable[0]}"
    return f"a recipe is missing: {absent[0]}" if absent else "no such file here"


def _generated(context: Context) -> Iterator[tuple[str, tuple[Package, Facts] | str]]:
    generated = {recipe.path for _, recipe in context.present() if digest.has_digest(recipe.text)}
    return (subject for subject in _facts(context) if subject[0] in generated)


RESULTS: Final = Subjects(each=_results, prepare=prepare)
"""Each recipe: the whole evaluation and the result of the recipe."""
FACTS: Final = Subjects(each=_facts, prepare=prepare)
"""The recipe of each variant that evaluates: the variant and its facts."""
PACKAGE_FACTS: Final = Subjects(each=_package_facts, prepare=prepare)
"""Each recipe that evaluates, also of a companion: the package and its facts."""
COMPANIONS: Final = Subjects(each=_companions, prepare=prepare)
"""Each companion that evaluates, with its facts and the derivation of its variant's recipe."""
GENERATED_FACTS: Final = Subjects(each=_generated, prepare=prepare)
"""The same without recipes that are written by hand, which may use other words."""
RELEASE: Final = Subjects(each=_release, needs_all=True, prepare=prepare)
"""release.nix: the context and the result, whose fact `packages` has name and system of each."""
