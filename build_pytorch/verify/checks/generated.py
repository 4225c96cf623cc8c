"""Checks that recipes and docs are what the matrix and the templates yield.

The only category that calls the renderer, and only to compare.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from build_pytorch.base import digest, files, paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action, plan_text
from build_pytorch.generate import docs, flox_environments, recipes
from build_pytorch.verify.check import TREE, CheckList, CheckSkipped, Context, Finding, Subjects

CHECKS: Final = CheckList(TREE)


def _is_clone(context: Context) -> bool:
    return paths.is_clone(context.root)


def _has_prose(context: Context) -> bool:
    pages = docs.pages(context.matrix)
    return _is_clone(context) or any((context.root / page).exists() for page in pages)


_CLONE: Final = Subjects(each=TREE.each, needs_all=True, where=_is_clone)
"""All files of a clone of this repository, which alone has reference pages."""
_PROSE: Final = Subjects(each=TREE.each, needs_all=True, where=_has_prose)
"""All files where there are pages with prose; a clone must have them."""

_NUMBER: Final = re.compile(
    r"\b(\d+)\s+(?:(?:GPU|CPU|CPU-only|ARM|x86|Nix|buildable|impossible-host|generated)\s+){0,3}"
    r"(?:variants|recipes|packages)\b"
)


@CHECKS.add(
    "Committed recipes equal generated ones",
    why="An edit of one recipe is lost when it is generated again, and the others lack it.",
    fix="run `invoke all`",
)
def generated_recipes(context: Context) -> Iterator[Finding]:
    context.recipe_paths()
    try:
        texts = recipes.render(context.matrix)
    except BuildPytorchError as error:
        yield Finding(str(error), "templates that render", path="templates")
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
        yield Finding(found, expected, path=path, line=line, fix=fix)
    for path, variants in recipes.nixpkgs_imports(context.matrix, texts).items():
        fix = f"run `invoke phase{variants[0].phase.number}`"
        yield from _outdated(context, {path: texts[path]}, fix)


def _outdated(context: Context, texts: Mapping[str, str], fix: str = "") -> Iterator[Finding]:
    """Yield a finding for each file that has not this text."""
    for path, text in texts.items():
        change = plan_text(context.tree, path, text)
        if change.action is not Action.UNCHANGED:
            yield Finding(change.reason, "as generated", path=path, fix=fix)


@CHECKS.add(
    "Generated docs and the schema are up to date",
    why="Docs that are not generated again describe variants that no longer exist.",
    fix="run `invoke phase5`",
)
def generated_docs(context: Context) -> Iterator[Finding]:
    try:
        planned = docs.plan(context.matrix, context.tree)
    except BuildPytorchError as error:
        yield Finding(str(error), "docs and templates that can be read", path="docs")
        return
    for change in planned:
        if change.action is Action.SKIPPED:
            expected = "generated regions that can be compared"
            fix = "restore the page, with its markers where it has some"
            yield Finding(change.reason, expected, path=change.path, fix=fix, severity="warning")
        elif change.action is not Action.UNCHANGED:
            yield Finding(change.reason, "as generated", path=change.path)


@CHECKS.add(
    "The generated reference pages are up to date",
    _CLONE,
    why="A page that is not generated again describes a check or command as it was before.",
    fix="run `invoke phase5`",
)
def reference_docs(context: Context) -> Iterator[Finding]:
    if context.pages is None:
        raise CheckSkipped("no reference pages to compare with")
    yield from _outdated(context, context.pages())


@CHECKS.add(
    "Each folder of recipes is in a Flox environment for the platforms of its packages",
    why="Without env.json and manifest.toml, `flox build` and `flox publish` stop.",
    fix="correct the file, or delete it and run `invoke phase5`",
)
def flox_environment(context: Context) -> Iterator[Finding]:
    if not (context.root / paths.MATRIX).exists():
        raise CheckSkipped("no matrix.toml here")
    for path, found, expected in flox_environments.faults(context.matrix, context.tree):
        yield Finding(found, expected, path=path)


@CHECKS.add(
    "Numbers of variants in prose are numbers of the matrix",
    _PROSE,
    why="A number outside the generated regions is not updated.",
    fix="correct the number, or move it between markers",
)
def docs_numbers(context: Context) -> Iterator[Finding]:
    allowed = _true_numbers(context)
    for page, text in _read(context, docs.pages(context.matrix)).items():
        prose = docs.outside_regions(text)
        for match in _NUMBER.finditer(prose):
            if int(match[1]) not in allowed:
                found = " ".join(match[0].split())
                expected = f"a number of the matrix: {', '.join(map(str, sorted(allowed)))}"
                line = prose.count("\n", 0, match.start()) + 1
                yield Finding(found, expected, path=page, line=line)


def _read(context: Context, pages: Sequence[str]) -> dict[str, str]:
    """Return the text of each page that can be read. Raises CheckSkipped if there is none."""
    texts = {}
    for page in pages:
        with contextlib.suppress(OSError):
            texts[page] = files.read_text_below(context.root, page)
    if not texts:
        raise CheckSkipped(f"none of {', '.join(pages)}" if pages[1:] else f"no {pages[0]}")
    return texts


def _true_numbers(context: Context) -> set[int]:
    """Return how many variants there are: in all, and of each release, group, GPU, CPU, status."""
    matrix = context.matrix
    numbers = {len(matrix.variants)}
    for name in matrix.releases:
        variants = matrix.of_release(name)
        numbers.add(len(variants))
        facts = ((v.group.title, v.group.kind, v.gpu_key, v.cpu_key, v.status) for v in variants)
        for column in zip(*facts, strict=True):
            numbers.update(Counter(column).values())
    return numbers
