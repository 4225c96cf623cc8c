"""Checks of the syntax of recipes: valid Nix, and a correct structure.

`nix-instantiate --parse` decides whether a recipe is valid Nix. Without Nix, tree-sitter does;
it also shows the structure, which a text search cannot see.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tree_sitter import Node, Query, QueryCursor, Tree

from build_pytorch.base import process
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import nix_evaluation
from build_pytorch.nix.syntax_tree import NIX, node_text, parse
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import (
    CheckList,
    Context,
    Finding,
    RecipeFile,
    SubjectResults,
    VerifyCheck,
)

_NIX_PLACE: Final = re.compile(r"at:? (/[^\n]*?):(\d+):(\d+)")
_MOST_RUNS: Final = 20
"""Nix stops at the first error of a run; after so many runs tree-sitter does the rest."""

_VALID: Final = "valid Nix"

# (torch.override { ... }).overrideAttrs (...), from the outside in; and the list of overlays.
_QUERY: Final = """
    (apply_expression
      function: (select_expression
        expression: (parenthesized_expression
          expression: (apply_expression
            function: (select_expression attrpath: (attrpath attr: (identifier) @inner .))
            argument: (attrset_expression)))
        attrpath: (attrpath . attr: (identifier) @outer .))
      argument: (parenthesized_expression expression: (function_expression) @function)
      (#eq? @inner "override")
      (#eq? @outer "overrideAttrs"))
    (binding
      attrpath: (attrpath . attr: (identifier) @name .)
      expression: (list_expression) @overlays
      (#eq? @name "overlays"))
    """


@functools.cache
def _query() -> Query:
    return Query(NIX, _QUERY)


@functools.cache
def _captures(recipe: RecipeFile) -> dict[str, list[Node]]:
    """Return the nodes of a recipe that the query finds, by their names in it."""
    return QueryCursor(_query()).captures(_tree(recipe).root_node)


@functools.cache
def _tree(recipe: RecipeFile) -> Tree:
    return parse(recipe.text)


def _first_error(tree: Tree) -> list[Finding]:
    """Return the first place of a tree that is not valid Nix, if there is one."""
    node = tree.root_node
    if not node.has_error:
        return []
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    found = f"no {node.type}" if node.is_missing else node_text(node).split("\n")[0][:40]
    return [_at(node, found or "nothing", _VALID)]


def _at(node: Node, found: str, expected: str) -> Finding:
    line, column = node.start_point
    return Finding(found, expected, line=line + 1, column=column + 1)


def _prepare(context: Context) -> None:
    """Start Nix on the syntax of all recipes, unless Nix evaluates them anyway."""
    paths = [recipe.path for _, recipe in context.present()]
    if paths and not {"parse", "evaluate"} & context.running.keys() and nix_evaluation.is_installed():
        context.running["parse"] = _start(context, paths)


def _start(context: Context, paths: Sequence[str]) -> process.Running:
    return nix_evaluation.start_parsing([str(context.root / path) for path in paths])


def _parse(context: Context) -> SubjectResults:
    recipes = {recipe.path: recipe for _, recipe in context.present()}
    findings = _nix_findings(context, list(recipes))
    for path, recipe in recipes.items():
        yield path, findings[path] if path in findings else _first_error(_tree(recipe))


def _nix_findings(context: Context, paths: Sequence[str]) -> dict[str, list[Finding]]:
    """Return the syntax errors that Nix reports, by recipe: one process, and one for each error.

    Nix also refuses names that are bound nowhere, and attributes that are bound twice. A recipe
    is absent from the result if Nix is not installed or gave no answer for it.
    """
    findings: dict[str, list[Finding]] = {}
    running = context.running.pop("parse", None)
    rest = list(paths)
    if running is None and nix_evaluation.is_installed():
        # A recipe that evaluates is valid; only the others are parsed.
        results = recipe_evaluation.evaluated(context).results
        findings = {path: [] for path in rest if path in results and results[path].ok}
        rest = [path for path in rest if path not in findings]
        running = _start(context, rest) if rest else None
    for _ in range(_MOST_RUNS):
        if not rest or not running:
            break
        files = [str(context.root / path) for path in rest]
        result = running.finish()
        if result.code == 0:
            return findings | {path: [] for path in rest}
        places = [place for place in _NIX_PLACE.findall(result.stderr) if place[0] in files]
        if not places:
            break  # Nix itself is broken
        file, line, column = places[-1]
        failed = files.index(file)
        message = result.stderr.partition("error: ")[2].split("\n")[0].partition(", at /")[0]
        found = message.replace(f"{context.root}/", "").strip()
        findings |= {path: [] for path in rest[:failed]}
        findings[rest[failed]] = [Finding(found, _VALID, line=int(line), column=int(column))]
        rest = rest[failed + 1 :]
        running = _start(context, rest) if rest else None
    return findings


CHECKS: Final = CheckList(
    [
        VerifyCheck(
            id="nix-syntax",
            title="Every recipe is valid Nix",
            why="A missing brace or an unbound name stops `flox build` before it begins.",
            fix="correct the line",
            look=_parse,
            prepare=_prepare,
        )
    ]
)


def _broken(recipe: RecipeFile) -> str:
    return "not valid Nix" if _tree(recipe).root_node.has_error else ""


@CHECKS.recipe(
    id="override-order",
    title="override comes first, overrideAttrs is applied to its result",
    why="In the other order the attributes are lost, or CUDA is never enabled.",
    fix="(nixpkgs_pinned.python3Packages.torch.override { ... }).overrideAttrs (...)",
    unless=_broken,
)
def _order(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    if "function" not in _captures(recipe):
        yield Finding(
            "no overrideAttrs of the result of override",
            "(... .override { ... }).overrideAttrs (oldAttrs: { ... })",
        )


@CHECKS.recipe(
    id="overlay-count",
    title="The number of overlays is the one that the release needs",
    why="One too few means another CUDA, MAGMA or PyTorch; one too many hides one of them.",
    fix="CUDA, MAGMA if the release patches it, PyTorch; without CUDA, PyTorch alone",
    unless=_broken,
)
def _overlays(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = 1 if variant.gpu is None else 2 + (variant.release.magma_patch is not None)
    lists = _captures(recipe).get("overlays", [])
    counts = [sum(child.type != "comment" for child in n.named_children) for n in lists]
    if counts != [wanted]:
        found = f"{' and '.join(map(str, counts)) or 'no'} overlays"
        expected = f"exactly {wanted}"
        yield _at(lists[-1], found, expected) if lists else Finding(found, expected)


@CHECKS.recipe(
    id="attributes-once",
    title="overrideAttrs sets each attribute once",
    why="Nix refuses the second one, or it silently replaces the first.",
    fix="merge the two",
    unless=_broken,
)
def _attributes(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    for function in _captures(recipe).get("function", []):
        body = function.child_by_field_name("body")
        bindings = [
            binding
            for group in (body.named_children if body else [])
            for binding in group.named_children
            if binding.type == "binding"
        ]
        names = [node_text(binding.named_children[0]) for binding in bindings]
        counts = Counter(names)
        for name, binding in zip(names, bindings, strict=True):
            if counts[name] > 1:
                yield _at(binding, f"{name} set {counts[name]} times", "each attribute once")
