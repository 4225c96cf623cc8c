"""The values of evaluated recipes, from one Nix process.

The recipes are evaluated unchanged: offline against nixpkgs_model/, which replaces whatever would
be fetched, or with `pinned` against the nixpkgs that they name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.nix import nix_evaluation, quoting
from build_pytorch.nix.nix_evaluation import RecipeSource, message_of
from build_pytorch.verify.check import Context

MODEL: Final = Path(__file__).with_name("nixpkgs_model")

_MOST_CULPRITS: Final = 8
"""Some errors end the whole process; after so many, recipes are evaluated one by one."""

_SECONDS: Final = 120.0
"""Limit for a recipe that computes forever; offline, all recipes take less than a second."""

_WARNING: Final = re.compile(r"^(?:trace: )?(?:evaluation )?warning: (.*)$")


Facts = dict[str, Any]
"""The attributes of an evaluated recipe, by the names in nixpkgs_model/facts.nix."""


class EvaluatedRecipe(msgspec.Struct, frozen=True):
    """The result for one recipe: facts, or the error that left none or only some of them."""

    id: str
    ok: bool = False
    problem: str | None = None
    unreadable: tuple[str, ...] = ()
    """Attributes that cannot be evaluated."""
    facts: Facts | None = None
    line: int = 1
    column: int = 1

    @property
    def drv_path(self) -> str | None:
        """The derivation path; None if the recipe does not evaluate."""
        path = self.facts["drvPath"] if self.facts else None
        return path if isinstance(path, str) else None


class Evaluation:
    """The results of all recipes and the warnings of Nix, by path; or why there are no results."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.results: dict[str, EvaluatedRecipe] = {}
        self.warnings: dict[str, list[str]] = {}

    @functools.cached_property
    def first_by_derivation(self) -> dict[str | None, str]:
        """The first recipe of each derivation path."""
        return {r.drv_path: r.id for r in reversed(self.results.values()) if r.drv_path}


def prepare(context: Context) -> None:
    """Start Nix on all recipes, unless it runs already or is not installed."""
    recipes = _sources(context)
    if recipes and "evaluate" not in context.running and nix_evaluation.is_installed():
        context.running["evaluate"] = _start(context, recipes)


@functools.cache
def evaluated(context: Context) -> Evaluation:
    """Return the results of the run that `prepare` started.

    Raises ToolError if the pinned nixpkgs is required and not available.
    """
    running = context.running.pop("evaluate", None)
    recipes = _sources(context)
    if not recipes:
        return Evaluation("no recipe to evaluate")
    if running is None:
        if context.pinned:
            raise ToolError("--pinned: nix-instantiate not found; install Nix")
        return Evaluation("Nix is not installed")
    return _finished(context, recipes, running)


def _sources(context: Context) -> list[RecipeSource]:
    root = context.root
    present = (recipe for _, recipe in context.present())
    return [RecipeSource(r.path, str((root / r.path).resolve()), r.text) for r in present]


def _finished(
    context: Context, recipes: list[RecipeSource], running: process.Running
) -> Evaluation:
    """Return the results of a run. Nix runs again without a recipe that ends the process."""
    done = Evaluation()
    share = True
    while True:
        answer = _wait(context, running, len(recipes))
        if answer.code == 0:
            done.warnings = _warnings(answer.stderr, [recipe.id for recipe in recipes])
            done.results |= {r.id: _described(context, r) for r in _decoded(answer.stdout)}
            return done
        if context.pinned:
            nix_evaluation.require_network(answer.stderr)
        if culprit := nix_evaluation.culprit(answer.stderr, recipes):
            failed = _too_slow(culprit.id) if answer.expired else _alone(context, culprit)
            done.results[culprit.id] = failed
            recipes.remove(culprit)
        elif not share:
            break
        else:
            share = False  # the cause may be a shared import
        if not recipes or (len(done.results) >= _MOST_CULPRITS and not context.pinned):
            break
        running = _start(context, recipes, share=share)
    done.results |= {recipe.id: _alone(context, recipe) for recipe in recipes}
    return done


def _wait(context: Context, running: process.Running, total: int) -> process.ProcessResult:
    if not context.pinned:
        return running.finish(_SECONDS)
    title = "evaluating against the pinned nixpkgs"
    return nix_evaluation.wait_with_progress(running, title, total)


def _limit(context: Context) -> float | None:
    return None if context.pinned else _SECONDS  # the pinned nixpkgs takes minutes


def _start(
    context: Context, recipes: Sequence[RecipeSource], *, share: bool = True, catch: bool = True
) -> process.Running:
    imports, items = nix_evaluation.recipe_list(recipes, share=share)
    # The scope hides what reaches the outside from the shared imports, as it does in recipes.
    expression = f"""import <model/evaluate.nix> {{
  announce = true;
  catch = {quoting.literal(catch)};
  offline = {quoting.literal(not context.pinned)};
  shared = scope:
    let inherit (scope) builtins import scopedImport fetchTarball fetchGit __findFile;
    in {{ {imports} }};
  recipes = {items};
}}"""
    search_path = {"model": str(MODEL)}
    if not context.pinned:
        folders = sorted({str(Path(recipe.path).parent) for recipe in recipes})
        search_path |= {f"recipes{number}": folder for number, folder in enumerate(folders)}
    return nix_evaluation.start(expression, search_path=search_path, offline=not context.pinned)


def _alone(context: Context, recipe: RecipeSource) -> EvaluatedRecipe:
    """Evaluate one recipe in a process of its own, for its own error and the place of the error."""
    answer = _start(context, [recipe], share=False).finish(_limit(context))
    if answer.expired:
        return _too_slow(recipe.id)
    if answer.code == 0:
        return _described(context, _decoded(answer.stdout)[0])
    places = re.findall(rf"{re.escape(Path(recipe.path).name)}:(\d+):(\d+)", answer.stderr)
    line, column = map(int, places[-1]) if places else (1, 1)
    message = message_of(answer.stderr)
    return EvaluatedRecipe(recipe.id, problem=message, line=line, column=column)


def _too_slow(recipe_id: str) -> EvaluatedRecipe:
    return EvaluatedRecipe(recipe_id, problem=f"no end after {_SECONDS:.0f} s")


def _described(context: Context, result: EvaluatedRecipe) -> EvaluatedRecipe:
    """Return a result with the message that was thrown, its line, and paths below the root.

    Nix prints the message only if nothing catches the error.
    """
    problem = result.problem
    if problem is None:
        return result
    if "keeps the message" in problem:
        (source,) = (source for source in _sources(context) if source.id == result.id)
        running = _start(context, [source], share=False, catch=False)
        problem = message_of(running.finish(_limit(context)).stderr)
    problem = problem.replace(f"{context.root.resolve()}/", "")
    named = re.search(rf"(?: in)? {re.escape(result.id)}:(\d+)", problem)
    line = int(named[1]) if named else result.line
    problem = problem.replace(named[0], "") if named else problem
    return msgspec.structs.replace(result, problem=problem, line=line)


def _decoded(text: str) -> list[EvaluatedRecipe]:
    return msgspec.json.decode(text.encode(), type=list[EvaluatedRecipe])


def _warnings(stderr: str, ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the warnings by the recipe announced before them. A shared import warns only once."""
    current = ids[0]
    found: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        name = line.removeprefix("trace: evaluating ")
        if name != line and name.strip() in ids:
            current = name.strip()
        elif warning := _WARNING.match(line):
            found.setdefault(current, []).append(warning[1])
    return found
