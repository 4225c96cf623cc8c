"""Checks of files: that all are there and no others, as the matrix and the templates yield them.

The only module that calls the renderer, and only to compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from build_pytorch.base import paths, process
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action
from build_pytorch.generate import flox_environments, phase_plan
from build_pytorch.matrix.model import Phase
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
    """Yield recipes of no package in the folders of the matrix."""
    known = {package.path for package in context.matrix.packages}
    expected = "only recipes of the matrix"
    for path in (*context.recipes, *context.unreadable):
        if path not in known:
            yield Finding(found="a recipe of no variant", expected=expected, path=path)


def shell_files(context: Context) -> Iterator[Finding]:
    """Yield shell files that builds use and Bash cannot read. Raises CheckSkipped without Bash."""
    if not process.which("bash"):
        raise CheckSkipped("no bash")
    path = paths.in_use(context.root, paths.COMPILER_CACHE)
    result = process.run(["bash", "-n", str(path)])
    if result.code:
        found = result.last_line.replace(f"{path}: ", "")
        yield Finding(found=found, expected="valid Bash", path=paths.COMPILER_CACHE)


def generated_recipes(context: Context) -> Iterator[Finding]:
    """Yield recipes and the files that they import that differ from the rendered text.

    Raises CheckSkipped if there is no recipe.
    """
    if not context.recipes:
        raise CheckSkipped("no recipe to compare")
    yield from _outdated(context, (Phase.GPU_X86, Phase.GPU_ARM, Phase.CPU_ONLY))


def generated_docs(context: Context) -> Iterator[Finding]:
    """Yield pages, generated regions and the schema that are out of date."""
    yield from _outdated(context, [Phase.DOCS])


def _outdated(context: Context, phases: Collection[Phase]) -> Iterator[Finding]:
    """Yield the files that phases would write, unless a person keeps them."""
    is_shown = Phase.DOCS in phases and paths.is_clone(context.root)
    pages = context.pages() if context.pages and is_shown else None
    packages = {package.path for package in context.matrix.packages}
    for phase in phases:
        try:
            changes = phase_plan.plan(phase, context.matrix, context.tree, pages)
        except BuildPytorchError as error:
            expected = "docs and templates that can be read"
            yield Finding(found=str(error), expected=expected, path="templates")
            return
        for change in changes:
            is_missing = change.path in packages and change.path not in context.recipes
            if not is_missing and change.action not in {Action.UNCHANGED, Action.KEPT}:
                yield Finding(found=change.reason, expected="as generated", path=change.path)


def flox_environment(context: Context) -> Iterator[Finding]:
    """Yield what is wrong in the files of Flox environments."""
    if not (context.root / paths.MATRIX).exists():
        raise CheckSkipped("no matrix.toml here")
    for path, found, expected in flox_environments.faults(context.matrix, context.tree):
        yield Finding(found=found, expected=expected, path=path)
