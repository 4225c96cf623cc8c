"""Whether recipes and docs are what matrix and templates yield, and the docs' numbers are true.

The one category that calls the renderer, and only to compare.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from build_pytorch.base import digest, paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.generate import docs, rendering
from build_pytorch.verify.check import Check, CheckSkipped, Context, Problem, TreeCheck

_NUMBER: Final = re.compile(
    r"\b(\d+)\s+(?:(?:GPU|CPU|CPU-only|ARM|x86|Nix|buildable|impossible-host|generated)\s+){0,3}"
    r"(?:variants|recipes|packages)\b"
)


def _recipes(context: Context) -> Iterator[Problem]:
    context.skip_without_recipes()
    try:
        texts = rendering.texts(context.matrix)
    except BuildPytorchError as error:
        yield Problem(path="templates", found=str(error), expected="templates that render")
        return
    for variant, recipe in context.present():
        wanted = texts[variant.path]
        if recipe.text == wanted:
            continue
        if not digest.has_digest(recipe.text) and _is_kept(variant.path, context):
            continue
        pairs = zip(recipe.text.splitlines(), wanted.splitlines(), strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
        intact = digest.is_intact(recipe.text)
        yield Problem(
            path=recipe.path,
            line=same + 1,
            found="a text that is out of date" if intact else "a text that was edited by hand",
            expected="what matrix.toml and the templates yield",
            fix=f"run `invoke phase{variant.phase.number}{'' if intact else ' --force'}`; "
            "to keep the edit, make it in matrix.toml or templates/",
        )


def _is_kept(path: str, context: Context) -> bool:
    return any(
        path == f"{release.folder}/{entry.file}" and entry.action == "keep"
        for release in context.matrix.releases.values()
        for entry in release.cleanup
    )


def _docs(context: Context) -> Iterator[Problem]:
    try:
        tree = Tree(context.root)
        planned = docs.plan(context.matrix, rendering.texts(context.matrix), tree)
    except BuildPytorchError as error:
        yield Problem(path="docs", found=str(error), expected="docs and templates that can be read")
        return
    for change in planned:
        if change.action is Action.SKIPPED:
            yield Problem(
                path=change.path,
                found=change.reason,
                expected="generated regions that can be compared",
                fix="bring the page or its markers back",
                severity="warning",
            )
        elif change.action is not Action.UNCHANGED:
            yield Problem(path=change.path, found=change.reason, expected="as generated")


def _reference(context: Context) -> Iterator[Problem]:
    if context.pages is None or not (context.root / paths.MATRIX.name).exists():
        raise CheckSkipped("no reference pages to compare with")
    tree = Tree(context.root)
    for path, text in context.pages().items():
        change = plan_text(tree, path, text)
        if change.action is not Action.UNCHANGED:
            yield Problem(path=path, found=change.reason, expected="as generated")


def _listing(context: Context) -> Iterator[Problem]:
    """docs/variants.md names each package once, and each release's total, read as plain text."""
    text = context.read(paths.VARIANTS_DOC)
    if text is None:
        raise CheckSkipped(f"no {paths.VARIANTS_DOC}")
    listed = Counter(re.findall(r"`([a-z0-9][a-z0-9_-]*)` \|", text))
    expected = Counter(variant.package for variant in context.matrix.variants)
    for package in sorted(expected.keys() | listed.keys()):
        if listed[package] != expected[package]:
            yield Problem(
                path=paths.VARIANTS_DOC,
                found=f"{package} listed {listed[package]} times",
                expected=f"{expected[package]} times",
            )


def _numbers(context: Context) -> Iterator[Problem]:
    """Numbers of variants or recipes in prose are numbers that the matrix yields."""
    allowed = _true_numbers(context)
    pages = docs.pages(context.matrix)
    texts = {page: text for page in pages if (text := context.read(page)) is not None}
    if not texts:
        raise CheckSkipped(f"none of {', '.join(pages)}")
    for page, text in texts.items():
        prose = docs.outside_regions(text)
        for match in _NUMBER.finditer(prose):
            if int(match[1]) not in allowed:
                yield Problem(
                    path=page,
                    line=prose.count("\n", 0, match.start()) + 1,
                    found=" ".join(match[0].split()),
                    expected=f"a number of the matrix: {', '.join(map(str, sorted(allowed)))}",
                    fix="correct the number, or move it between markers",
                )


def _true_numbers(context: Context) -> set[int]:
    matrix = context.matrix
    numbers = {len(matrix.variants)}
    for name in matrix.releases:
        variants = matrix.of_release(name)
        numbers.add(len(variants))
        for fact in (
            lambda v: v.group.title,
            lambda v: v.group.kind,
            lambda v: v.gpu_key,
            lambda v: v.cpu_key,
            lambda v: v.status,
        ):
            numbers.update(Counter(map(fact, variants)).values())
    return numbers


CHECKS: tuple[Check, ...] = (
    TreeCheck(
        id="generated-recipes",
        title="Committed recipes equal generated ones",
        why="An edit in one recipe is lost at the next change, and the others lack it.",
        fix="run `invoke all`",
        source="seed 004: one pattern, 44 recipes",
        test=_recipes,
    ),
    TreeCheck(
        id="generated-docs",
        title="Generated docs and the schema are up to date",
        why="Two of five commits by hand were doc fixes.",
        fix="run `invoke phase5`",
        source="seed 004, Phase 5",
        test=_docs,
    ),
    TreeCheck(
        id="reference-docs",
        title="The generated reference pages are up to date",
        why="A command or check that changed would be described as it was before.",
        fix="run `invoke phase5`",
        source="docs/reference",
        test=_reference,
    ),
    TreeCheck(
        id="docs-listing",
        title="docs/variants.md lists every package once",
        why="People copy package names from it.",
        fix="run `invoke phase5`",
        source="seed 002, Post-Refactor Documentation Updates",
        test=_listing,
    ),
    TreeCheck(
        id="docs-numbers",
        title="Numbers of variants in prose are true",
        why="A count outside the generated regions goes stale unseen.",
        fix="correct the number",
        source="seed 004, Phase 5: update README.md variant counts",
        test=_numbers,
    ),
)
