"""Whether recipes are Nix, and whether their parts stand in the right order.

`nix-instantiate --parse` answers the first where Nix is installed; tree-sitter, which every
installation has, answers it elsewhere, and shows the structure that no text search can see.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tree_sitter import Node, Query, QueryCursor, Tree

from build_pytorch.base import process
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.syntax_tree import NIX, node_text, parse
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import (
    Check,
    CheckOutcome,
    Context,
    Problem,
    Recipe,
    outcome_by_recipe,
)

_NIX_PLACE: Final = re.compile(r"at:? (/[^\n]*?):(\d+):(\d+)")
_MOST_FAILURES: Final = 20
"""Nix stops at the first error of a run; after so many runs tree-sitter does the rest."""

# (torch.override { ... }).overrideAttrs (...), from the outside in; and what overlays are.
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
def _captures(recipe: Recipe) -> dict[str, list[Node]]:
    """What the query finds in a recipe, by the names in it."""
    return QueryCursor(_query()).captures(tree_of(recipe).root_node)


@functools.cache
def tree_of(recipe: Recipe) -> Tree:
    """Return the syntax tree of a recipe, with error nodes where it is not valid Nix."""
    return parse(recipe.text)


def first_error(tree: Tree) -> Problem | None:
    """The first place where a tree is not Nix, or None where all of it is."""
    node = tree.root_node
    if not node.has_error:
        return None
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    line, column = node.start_point
    found = f"no {node.type}" if node.is_missing else node_text(node).split("\n")[0][:40]
    return Problem(line=line + 1, column=column + 1, found=found or "nothing", expected="valid Nix")


class ParseCheck(Check, frozen=True, kw_only=True):
    """Every recipe parses: asked of Nix once for all, of tree-sitter without Nix."""

    @property
    def waits(self) -> bool:
        """For Nix."""
        return True

    def run(self, context: Context) -> CheckOutcome:
        """Parse every recipe."""
        subjects = {recipe.path: (variant, recipe) for variant, recipe in context.present()}
        problems = _nix_problems(context, list(subjects))
        tested = {
            path: (variant, _problem_of(recipe, problems.get(path, _UNKNOWN)))
            for path, (variant, recipe) in subjects.items()
        }
        return outcome_by_recipe(self, tested)


_UNKNOWN: Final = Problem(found="", expected="")
"""Stands for: Nix was not asked about this one."""


def _problem_of(recipe: Recipe, answer: Problem | None) -> list[Problem]:
    problem = first_error(tree_of(recipe)) if answer is _UNKNOWN else answer
    return [problem] if problem else []


def prepare(context: Context) -> None:
    """Have Nix parse all recipes meanwhile, unless it evaluates them anyway."""
    paths = [recipe.path for _, recipe in context.present()]
    if {"parse", "evaluate"} & context.running.keys() or not process.which("nix-instantiate"):
        return
    if paths:
        context.running["parse"] = _parse(context, paths)


def _parse(context: Context, paths: Sequence[str]) -> process.Running:
    return process.start(["nix-instantiate", "--parse", *(str(context.root / p) for p in paths)])


def _nix_problems(context: Context, paths: Sequence[str]) -> dict[str, Problem | None]:
    """What Nix says of each file, as far as it could be asked: one process and one for each error.

    Nix also refuses names that are bound nowhere, and attributes that are bound twice.
    """
    answers: dict[str, Problem | None] = {}
    running = context.running.pop("parse", None)
    rest = list(paths)
    if running is None and process.which("nix-instantiate"):
        # What evaluates was parsed; only for the rest Nix is asked once more.
        results = recipe_evaluation.evaluated(context).results
        answers = {path: None for path in rest if path in results and results[path].ok}
        rest = [path for path in rest if path not in answers]
        running = _parse(context, rest) if rest else None
    for _ in range(_MOST_FAILURES):
        if not rest or not running:
            break
        files = [str(context.root / path) for path in rest]
        result = running.finish()
        if result.code == 0:
            answers.update(dict.fromkeys(rest))
            break
        places = [place for place in _NIX_PLACE.findall(result.stderr) if place[0] in files]
        if not places:
            break  # Nix itself is broken; tree-sitter answers for the rest
        failed = files.index(places[-1][0])
        answers.update(dict.fromkeys(rest[:failed]))
        answers[rest[failed]] = Problem(
            line=int(places[-1][1]),
            column=int(places[-1][2]),
            found=_nix_message(result.stderr, str(context.root)),
            expected="valid Nix",
        )
        rest = rest[failed + 1 :]
        running = _parse(context, rest) if rest else None
    return answers


def _nix_message(stderr: str, root: str) -> str:
    """What Nix says, without the place and the excerpt that follow."""
    message = stderr.partition("error: ")[2].split("\n")[0]
    return message.partition(", at /")[0].replace(f"{root}/", "").strip()


class StructureCheck(Check, frozen=True, kw_only=True):
    """A rule about the syntax tree of each recipe."""

    test: Callable[[Variant, Recipe], Iterable[Problem]]

    def run(self, context: Context) -> CheckOutcome:
        """Look at every recipe that is Nix."""
        tested: dict[str, tuple[Variant, Iterable[Problem]]] = {}
        broken = []
        for variant, recipe in context.present():
            if tree_of(recipe).root_node.has_error:
                broken.append(recipe.path)
            else:
                tested[recipe.path] = (variant, self.test(variant, recipe))
        return outcome_by_recipe(self, tested, broken, "not valid Nix")


def _order(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    del variant
    if "function" not in _captures(recipe):
        yield Problem(
            found="no overrideAttrs of the result of override",
            expected="(... .override { ... }).overrideAttrs (oldAttrs: { ... })",
        )


def _overlays(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    release = variant.release
    wanted = 1 if variant.gpu is None else 2 + (release.magma_patch is not None)
    lists = _captures(recipe).get("overlays", [])
    found = [len(node.named_children) - _comments(node) for node in lists]
    if found != [wanted]:
        line, column = lists[-1].start_point if lists else (0, 0)
        yield Problem(
            line=line + 1,
            column=column + 1,
            found=f"{' and '.join(map(str, found)) or 'no'} overlays",
            expected=f"exactly {wanted}",
        )


def _comments(node: Node) -> int:
    return sum(child.type == "comment" for child in node.named_children)


def _attributes(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    del variant
    for function in _captures(recipe).get("function", []):
        body = function.child_by_field_name("body")
        bindings = [
            binding
            for group in (body.named_children if body else [])
            for binding in group.named_children
            if binding.type == "binding"
        ]
        names = Counter(node_text(binding.named_children[0]) for binding in bindings)
        for binding in bindings:
            name = node_text(binding.named_children[0])
            if names[name] > 1:
                line, column = binding.start_point
                yield Problem(
                    line=line + 1,
                    column=column + 1,
                    found=f"{name} set {names[name]} times",
                    expected="each attribute once",
                )


CHECKS: tuple[Check, ...] = (
    ParseCheck(
        id="nix-syntax",
        title="Every recipe is valid Nix",
        why="A missing brace or an unbound name stops `flox build` before it begins.",
        fix="correct the line",
        source="seed 000, issue 2 and Validation",
    ),
    StructureCheck(
        id="override-order",
        title="override comes first, overrideAttrs is applied to its result",
        why="The other way round, the attributes are lost or CUDA is never switched on.",
        fix="(nixpkgs_pinned.python3Packages.torch.override { ... }).overrideAttrs (...)",
        source="seed 003, Key Changes 1",
        test=_order,
    ),
    StructureCheck(
        id="overlay-count",
        title="There are as many overlays as the release asks for",
        why="One too few is another CUDA, MAGMA or PyTorch; one too many hides one of them.",
        fix="CUDA, MAGMA where it is patched, PyTorch; PyTorch alone without CUDA",
        source="seed 004, Canonical Recipe Pattern",
        test=_overlays,
    ),
    StructureCheck(
        id="attributes-once",
        title="overrideAttrs sets each attribute once",
        why="The second one wins or Nix refuses it; either way one of them is not what it seems.",
        fix="merge the two",
        source="the same fix pasted twice",
        test=_attributes,
    ),
)
