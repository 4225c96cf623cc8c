"""Checks of the syntax of recipes: valid Nix, and a correct structure.

`nix-instantiate --parse` decides whether a recipe is valid Nix. Without Nix, tree-sitter does;
it also shows the structure, which a text search cannot see.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

from tree_sitter import Node, Query, QueryCursor, Tree

from build_pytorch.matrix.model import Variant
from build_pytorch.nix import nix_evaluation
from build_pytorch.nix.nix_evaluation import NixSyntaxError
from build_pytorch.nix.syntax_tree import NIX, node_text, parse
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import CheckList, Context, Finding, RecipeFile, Subjects

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


def _first_error(tree: Tree) -> Finding | None:
    """Return the first place of a tree that is not valid Nix, or None."""
    node = tree.root_node
    if not node.has_error:
        return None
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    found = f"no {node.type}" if node.is_missing else node_text(node).split("\n")[0][:40]
    return _at(node, found or "nothing", _VALID)


def _at(node: Node, found: str, expected: str) -> Finding:
    line, column = node.start_point
    return Finding(found, expected, line=line + 1, column=column + 1)


def _files(context: Context) -> dict[str, RecipeFile]:
    return {f"{context.root}/{recipe.path}": recipe for _, recipe in context.present_packages()}


def _prepare(context: Context) -> None:
    """Start Nix on the syntax of all recipes, unless Nix evaluates them anyway."""
    is_started = bool({"parse", "evaluate"} & context.running.keys())
    if nix_evaluation.is_installed() and not is_started and (files := _files(context)):
        context.running["parse"] = nix_evaluation.start_parsing(list(files))


def _parsed(context: Context) -> Iterator[tuple[str, tuple[Finding | None]]]:
    """Yield each recipe with its first syntax error: from Nix, or else from tree-sitter."""
    recipes = _files(context)
    files = list(recipes)
    errors: dict[str, NixSyntaxError | None] = {}
    running = context.running.pop("parse", None)
    if running is None and nix_evaluation.is_installed():
        # A recipe that evaluates is valid; only the others are parsed.
        results = recipe_evaluation.evaluated(context).results.values()
        errors = {f"{context.root}/{result.id}": None for result in results if result.ok}
        if files := [file for file in files if file not in errors]:
            running = nix_evaluation.start_parsing(files)
    if running:
        errors |= nix_evaluation.syntax_errors(files, running)
    for file, recipe in recipes.items():
        finding = None
        if file not in errors:
            finding = _first_error(_tree(recipe))
        elif error := errors[file]:
            found = error.message.replace(f"{context.root}/", "")
            finding = Finding(found, _VALID, line=error.line, column=error.column)
        yield recipe.path, (finding,)


def _valid(context: Context) -> Iterator[tuple[str, tuple[Variant, RecipeFile] | str]]:
    # Companions have no structure of their own: one function makes them.
    for variant, recipe in context.present():
        is_broken = _tree(recipe).root_node.has_error
        yield recipe.path, "not valid Nix" if is_broken else (variant, recipe)


CHECKS: Final = CheckList(Subjects(each=_valid))


@CHECKS.add(
    Subjects(each=_parsed, prepare=_prepare),
    id="nix-syntax",
    title="Every recipe is valid Nix",
    why="A missing brace or an unbound name stops `flox build` before it begins.",
    fix="correct the line",
)
def _is_valid(error: Finding | None) -> list[Finding]:
    return [error] if error else []


@CHECKS.add(
    id="override-order",
    title="override comes first, overrideAttrs is applied to its result",
    why="In the other order the attributes are lost, or CUDA is never enabled.",
    fix="(nixpkgs_pinned.python3Packages.torch.override { ... }).overrideAttrs (...)",
)
def _order(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    if "function" not in _captures(recipe):
        expected = "(... .override { ... }).overrideAttrs (oldAttrs: { ... })"
        yield Finding("no overrideAttrs of the result of override", expected)


@CHECKS.add(
    id="overlay-count",
    title="The number of overlays is the one that the release needs",
    why="One too few means another CUDA, MAGMA or PyTorch; one too many hides one of them.",
    fix="CUDA if the variant has a GPU, MAGMA if a rule changes it, PyTorch if it is not the pin's",
)
def _overlays(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    effects = variant.effects
    wanted = (variant.gpu is not None) + bool(effects.patches or "own-libraries" in effects.fixes)
    wanted += variant.release.changes_python_set
    lists = _captures(recipe).get("overlays", [])
    counts = [sum(child.type != "comment" for child in n.named_children) for n in lists]
    if counts != [wanted]:
        found = f"{' and '.join(map(str, counts)) or 'no'} overlays"
        expected = f"exactly {wanted}"
        yield _at(lists[-1], found, expected) if lists else Finding(found, expected)


@CHECKS.add(
    id="attributes-once",
    title="overrideAttrs sets each attribute once",
    why="Nix refuses the second one, or it silently replaces the first.",
    fix="merge the two",
)
def _attributes(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    for function in _captures(recipe).get("function", []):
        body = function.child_by_field_name("body")
        by_name: dict[str, list[Node]] = {}
        for group in body.named_children if body else ():
            for binding in group.named_children:
                if path := binding.child_by_field_name("attrpath"):
                    by_name.setdefault(node_text(path), []).append(binding)
        for name, bindings in by_name.items():
            for binding in bindings if bindings[1:] else ():
                yield _at(binding, f"{name} set {len(bindings)} times", "each attribute once")
