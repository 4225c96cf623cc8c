"""Checks of files: that all are there and no others, as the matrix and the templates yield them.

The only module that calls the renderer, and only to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from build_pytorch.base import paths, process
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action, Change, plan_text, recipes_elsewhere
from build_pytorch.generate import docs, flox_environments, recipes
from build_pytorch.verify.check import CheckSkipped, Finding
from build_pytorch.verify.context import Context


def missing_recipe(context: Context) -> Iterator[Finding]:
    """Yield the packages without a recipe, and recipes that cannot be read."""
    for path, reason in context.unreadable.items():
        yield Finding(found=reason, expected="a readable UTF-8 text file", path=path)
    for package in context.matrix.packages:
        if package.path not in context.recipes and package.path not in context.unreadable:
            expected, fix = f"the recipe of {package.id}", f"run `invoke {package.phase.command}`"
            yield Finding(found="no such file", expected=expected, path=package.path, fix=fix)


def extra_recipe(context: Context) -> Iterator[Finding]:
    """Yield recipes of no package, in the folders of the matrix and generated ones elsewhere."""
    known = {package.path for package in context.matrix.packages}
    expected = "only recipes of the matrix"
    for path in (*context.recipes, *context.unreadable):
        if path not in known:
            yield Finding(found="a recipe of no variant", expected=expected, path=path)
    for path in recipes_elsewhere(context.tree, context.matrix.folders):
        found = "a generated recipe in a folder that matrix.toml does not name"
        yield Finding(found=found, expected=expected, path=path)


def shell_files(context: Context) -> Iterator[Finding]:
    """Yield shell files that builds use and Bash cannot read. Raises CheckSkipped without Bash."""
    if not process.which("bash"):
        raise CheckSkipped("no bash")
    path = paths.in_use(context.root, paths.COMPILER_CACHE)
    result = process.start(["bash", "-n", str(path)]).finish()
    if result.code:
        found = result.last_line.replace(f"{path}: ", "")
        yield Finding(found=found, expected="valid Bash", path=paths.COMPILER_CACHE)


def generated_recipes(context: Context) -> Iterator[Finding]:
    """Yield recipes and imports of nixpkgs that differ from the rendered text.

    Raises CheckSkipped if there is no recipe.
    """
    if not context.recipes:
        raise CheckSkipped("no recipe to compare")
    try:
        texts = recipes.render(context.matrix)
    except BuildPytorchError as error:
        yield Finding(found=str(error), expected="templates that render", path="templates")
        return
    kept = {path for release in context.matrix.releases.values() for path in release.kept}
    packages = {package.path for package in context.matrix.packages}
    for path, text in texts.items():
        if path in context.recipes or path not in packages:
            mode: Literal["keep", "refuse"] = "keep" if path in kept else "refuse"
            yield from _outdated(plan_text(context.tree, path, text, hand_written=mode))


def generated_docs(context: Context) -> Iterator[Finding]:
    """Yield pages, generated regions and the schema that are out of date."""
    pages: Mapping[str, str] = {}
    if context.pages and paths.is_clone(context.root):
        pages = context.pages()
    try:
        planned = docs.plan(context.matrix, context.tree)
    except BuildPytorchError as error:
        expected = "docs and templates that can be read"
        yield Finding(found=str(error), expected=expected, path="docs")
        return
    for change in (*planned, *(plan_text(context.tree, *page) for page in pages.items())):
        yield from _outdated(change)


def _outdated(change: Change) -> Iterator[Finding]:
    """Yield a finding for a file that is not as generated, unless a person keeps it."""
    if change.action not in {Action.UNCHANGED, Action.KEPT}:
        yield Finding(found=change.reason, expected="as generated", path=change.path)


def flox_environment(context: Context) -> Iterator[Finding]:
    """Yield what is wrong in the files of Flox environments."""
    if not (context.root / paths.MATRIX).exists():
        raise CheckSkipped("no matrix.toml here")
    for path, found, expected in flox_environments.faults(context.matrix, context.tree):
        yield Finding(found=found, expected=expected, path=path)
