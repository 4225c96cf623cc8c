"""Checks that recipes and docs are what the matrix and the templates yield.

The only module that calls the renderer, and only to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from build_pytorch.base import digest, paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action, plan_text
from build_pytorch.generate import docs, flox_environments, recipes
from build_pytorch.verify.check import CheckSkipped, Finding
from build_pytorch.verify.context import Context


def generated_recipes(context: Context) -> Iterator[Finding]:
    """Yield recipes and imports of nixpkgs that differ from the rendered text."""
    try:
        texts = recipes.render(context.matrix)
    except BuildPytorchError as error:
        yield Finding(found=str(error), expected="templates that render", path="templates")
        return
    kept = {path for release in context.matrix.releases.values() for path in release.kept}
    for package, recipe in context.present:
        wanted, path = texts[package.path], recipe.path
        if recipe.text == wanted or (path in kept and not digest.has_digest(recipe.text)):
            continue
        pairs = zip(recipe.text.splitlines(), wanted.splitlines(), strict=False)
        line = 1 + next((number for number, (a, b) in enumerate(pairs) if a != b), 0)
        expected = "the text that matrix.toml and the templates yield"
        command = f"invoke phase{package.phase.number}"
        found = "a text that is out of date"
        if not digest.is_intact(recipe.text):
            command, found = f"{command} --force", "a text that was edited by hand"
        fix = f"run `{command}`; to keep the edit, make it in matrix.toml or templates/"
        yield Finding(found=found, expected=expected, path=path, line=line, fix=fix)
    for path, variants in recipes.nixpkgs_imports(context.matrix, texts).items():
        fix = f"run `invoke phase{variants[0].phase.number}`"
        yield from _outdated(context, {path: texts[path]}, fix)


def _outdated(context: Context, texts: Mapping[str, str], fix: str = "") -> Iterator[Finding]:
    """Yield a finding for each file that has not this text."""
    for path, text in texts.items():
        change = plan_text(context.tree, path, text)
        if change.action is not Action.UNCHANGED:
            yield Finding(found=change.reason, expected="as generated", path=path, fix=fix)


def generated_docs(context: Context) -> Iterator[Finding]:
    """Yield pages, generated regions and the schema that are out of date."""
    try:
        planned = docs.plan(context.matrix, context.tree)
    except BuildPytorchError as error:
        expected = "docs and templates that can be read"
        yield Finding(found=str(error), expected=expected, path="docs")
        return
    for change in planned:
        if change.action is Action.SKIPPED:
            yield Finding(
                found=change.reason,
                expected="generated regions that can be compared",
                path=change.path,
                fix="restore the page, with its markers where it has some",
                severity="warning",
            )
        elif change.action is not Action.UNCHANGED:
            yield Finding(found=change.reason, expected="as generated", path=change.path)
    if context.pages and paths.is_clone(context.root):
        yield from _outdated(context, context.pages())


def flox_environment(context: Context) -> Iterator[Finding]:
    """Yield what is wrong in the files of Flox environments."""
    if not (context.root / paths.MATRIX).exists():
        raise CheckSkipped("no matrix.toml here")
    for path, found, expected in flox_environments.faults(context.matrix, context.tree):
        yield Finding(found=found, expected=expected, path=path)
