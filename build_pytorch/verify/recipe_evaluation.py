"""What recipes evaluate to, in one Nix process: against a model of nixpkgs, or the pinned one.

The recipes are read unchanged. Offline, only what would fetch nixpkgs is answered, by
nixpkgs_model/; with --pinned they get what they name. This is the category that knows what a recipe
does instead of what it says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import ToolError
from build_pytorch.nix import quoting
from build_pytorch.nix.nix_evaluation import NO_NETWORK, message_of, shared_import
from build_pytorch.verify.check import Context, Problem, Recipe

MODEL: Final = Path(__file__).with_name("nixpkgs_model")

_MOST_CULPRITS: Final = 8
"""An error that Nix lets nobody catch ends the process; after so many, recipes go one by one."""

_SECONDS: Final = 120.0
"""A recipe may compute forever; all of ours together take a fraction of a second offline."""

_MEMORY: Final = 8 << 30
"""Bytes that Nix may take offline; a recipe may build an endless list."""

_WARNING: Final = re.compile(r"(?m)^(?:trace: )?(?:evaluation )?warning: (.*)$")


class Facts(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of one evaluated recipe; null where the package does not have it."""

    name: Any = None
    pname: Any = None
    version: Any = None
    system: Any = None
    drv_path: Any = None
    nixpkgs: Any = None
    cuda_support: Any = None
    gpu_targets: Any = None
    arch_list: Any = None
    cuda_version: Any = None
    cuda_versions: Any = None
    magma: Any = None
    src: Any = None
    patches: Any = None
    cmake_flags: Any = None
    ninja_flags: Any = None
    post_patch: Any = None
    pre_configure: Any = None
    pre_build: Any = None
    required_system_features: Any = None
    passthru: Any = None
    meta: Any = None


class EvaluatedRecipe(msgspec.Struct, frozen=True):
    """What came of one recipe: facts, or the problem that left none or only some."""

    id: str
    ok: bool
    problem: str | None
    unreadable: tuple[str, ...]
    facts: Facts | None
    line: int = 1
    column: int = 1


class Warned(msgspec.Struct, frozen=True):
    """What Nix warned of while it evaluated a recipe."""

    path: str
    text: str


class Evaluation:
    """What came of all recipes: results by path and warnings, or the reason why there are none."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.results: dict[str, EvaluatedRecipe] = {}
        self.warnings: list[Warned] = []


def prepare(context: Context) -> None:
    """Have Nix evaluate all recipes while other categories look at them."""
    recipes = [recipe for _, recipe in context.present()]
    if recipes and "evaluate" not in context.running and process.which("nix-instantiate"):
        context.running["evaluate"] = _start(context, recipes, share=True)


@functools.cache
def evaluated(context: Context) -> Evaluation:
    """What came of each recipe. Asked once, by whichever check comes first.

    Raises ToolError where the pinned nixpkgs was asked for and cannot be had.
    """
    running = context.running.pop("evaluate", None)
    recipes = [recipe for _, recipe in context.present()]
    if not recipes:
        return Evaluation("no recipe to evaluate")
    if running is None:
        if context.pinned:
            raise ToolError("--pinned: nix-instantiate not found; install Nix")
        return Evaluation("Nix is not installed")
    return _finished(context, recipes, running)


def _finished(context: Context, recipes: list[Recipe], running: process.Running) -> Evaluation:
    """The answers of a run, taking out one by one the recipes that end it."""
    done = Evaluation()
    share = True
    while True:
        answer = _wait(context, running, len(recipes))
        if answer.code == 0:
            done.warnings += _warnings(answer.stderr)
            for result in _decoded(answer.stdout):
                done.results[result.id] = _described(context, result)
            return done
        if context.pinned and NO_NETWORK.search(answer.stderr):
            raise ToolError(
                "--pinned: the pinned nixpkgs cannot be downloaded and is not in the store; "
                "run this where there is a network"
            )
        culprit = _culprit(answer.stderr, recipes)
        if culprit:
            failed = _too_slow(culprit) if answer.expired else _alone(context, culprit)
            done.results[culprit.path] = failed
            recipes = [recipe for recipe in recipes if recipe is not culprit]
        elif share:
            share = False  # what recipes have in common is itself at fault
        else:
            break
        if not recipes or (len(done.results) >= _MOST_CULPRITS and not context.pinned):
            break
        running = _start(context, recipes, share=share)
    done.results |= {recipe.path: _alone(context, recipe) for recipe in recipes}
    return done


def _wait(context: Context, running: process.Running, total: int) -> process.ProcessResult:
    """Wait for Nix. The pinned nixpkgs takes minutes, so there people see how far it is."""
    if not context.pinned:
        return running.finish(_SECONDS)
    progress = ProgressLine("evaluating against the pinned nixpkgs", total)
    while running.is_running(0.5):
        progress.at(running.said().count("trace: evaluating "))
    progress.end()
    return running.finish()


def _start(
    context: Context, recipes: Sequence[Recipe], *, share: bool = False, catch: bool = True
) -> process.Running:
    """Start Nix on recipes."""
    imports: dict[str, str] = {}
    items = []
    for recipe in recipes:
        item = f"id = {quoting.literal(recipe.path)}; "
        item += f"path = {quoting.literal(_place(context, recipe.path))};"
        if share and (expression := shared_import(recipe.text)):
            name = imports.setdefault(expression, f"n{len(imports)}")
            item += f" nixpkgs = {quoting.literal(name)};"
        items.append(f"{{ {item} }}")
    shared = " ".join(f"{name} = {expression};" for expression, name in imports.items())
    expression = (
        "import <model/evaluate.nix> {\n"
        f"  announce = true; catch = {quoting.literal(catch)};"
        f" offline = {quoting.literal(not context.pinned)};\n"
        # The scope shadows what would reach the outside, here as in the recipes themselves.
        "  shared = scope: let inherit (scope) builtins import scopedImport fetchTarball fetchGit"
        f" __findFile; in {{ {shared} }};\n"
        f"  recipes = [ {' '.join(items)} ];\n"
        "}"
    )
    argv = ["nix-instantiate", "--eval", "--strict", "--json", "-I", f"model={MODEL}"]
    memory = None if context.pinned else _MEMORY
    if not context.pinned:
        # The dummy store lets any user evaluate: store paths are computed and none is written.
        argv += ["--store", "dummy://", "--option", "restrict-eval", "true"]
        folders = {str(Path(_place(context, recipe.path)).parent) for recipe in recipes}
        for number, folder in enumerate(sorted(folders)):
            argv += ["-I", f"recipes{number}={folder}"]
    return process.start([*argv, "-"], stdin=expression, env={"NIX_PATH": ""}, memory=memory)


def _place(context: Context, path: str) -> str:
    return str((context.root / path).resolve())


def _alone(context: Context, recipe: Recipe) -> EvaluatedRecipe:
    """One recipe in a process of its own, for its own error and the place of it."""
    answer = _start(context, [recipe]).finish(None if context.pinned else _SECONDS)
    if answer.expired:
        return _too_slow(recipe)
    if answer.code == 0:
        return _described(context, _decoded(answer.stdout)[0])
    places = re.findall(rf"{re.escape(Path(recipe.path).name)}:(\d+):(\d+)", answer.stderr)
    line, column = places[-1] if places else (1, 1)
    return EvaluatedRecipe(
        recipe.path,
        ok=False,
        problem=message_of(answer.stderr),
        unreadable=(),
        facts=None,
        line=int(line),
        column=int(column),
    )


def _too_slow(recipe: Recipe) -> EvaluatedRecipe:
    problem = f"no end after {_SECONDS:.0f} s"
    return EvaluatedRecipe(recipe.path, ok=False, problem=problem, unreadable=(), facts=None)


def _described(context: Context, result: EvaluatedRecipe) -> EvaluatedRecipe:
    """The same with the message of what was thrown, its line, and paths below the root.

    Nix tells the message only where nobody catches what is thrown.
    """
    problem = result.problem
    if problem is None:
        return result
    if "keeps the message" in problem:
        recipe = context.recipes[result.id]
        problem = message_of(_start(context, [recipe], catch=False).finish(_SECONDS).stderr)
    problem = problem.replace(f"{_place(context, '.')}/", "")
    named = re.search(rf"(?: in)? {re.escape(result.id)}:(\d+)", problem)
    line = int(named[1]) if named else result.line
    problem = problem.replace(named[0], "") if named else problem
    return msgspec.structs.replace(result, problem=problem, line=line)


def _decoded(text: str) -> list[EvaluatedRecipe]:
    return msgspec.json.decode(text.encode(), type=list[EvaluatedRecipe])


def _culprit(stderr: str, recipes: Sequence[Recipe]) -> Recipe | None:
    """The recipe that ended the process: the last one that was announced."""
    by_path = {recipe.path: recipe for recipe in recipes}
    announced = re.findall(r"(?m)^trace: evaluating (.*)$", stderr)
    return next((by_path[path] for path in reversed(announced) if path in by_path), None)


def _warnings(stderr: str) -> list[Warned]:
    """Warnings with the recipe that was announced before them. A shared import warns but once."""
    path = ""
    found = []
    for line in stderr.splitlines():
        if line.startswith("trace: evaluating "):
            path = line.removeprefix("trace: evaluating ").strip()
        elif warning := _WARNING.match(line):
            found.append(Warned(path, warning[1]))
    return found


def failures(result: EvaluatedRecipe) -> Iterable[Problem]:
    """Why a recipe gives no package."""
    if not result.ok:
        yield Problem(
            line=result.line,
            column=result.column,
            found=result.problem or "no package",
            expected="a package",
        )
    elif result.unreadable:
        yield Problem(
            found=f"{', '.join(result.unreadable)} cannot be evaluated",
            expected="every attribute of the package can be evaluated",
        )
