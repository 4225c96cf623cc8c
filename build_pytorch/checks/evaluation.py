"""What recipes evaluate to, in one Nix process, offline, against a model of nixpkgs.

The recipes are read unchanged; only what would fetch nixpkgs is answered by nixpkgs_model/. This
is the road that knows what a recipe does instead of what it says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch import nix, proc
from build_pytorch.checks import syntax
from build_pytorch.checks.base import Context, Problem, Recipe
from build_pytorch.errors import ToolError

MODEL: Final = Path(__file__).with_name("nixpkgs_model")

_MOST_CULPRITS: Final = 8
"""An error that Nix lets nobody catch ends the process; after so many, recipes go one by one."""

_SECONDS: Final = 120.0
"""A recipe may compute forever; all of ours together take a fraction of a second."""


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
    build_inputs: Any = None
    cmake_flags: Any = None
    ninja_flags: Any = None
    post_patch: Any = None
    pre_configure: Any = None
    required_system_features: Any = None
    passthru: Any = None
    meta: Any = None


class Evaluated(msgspec.Struct, frozen=True):
    """What came of one recipe: facts, or the problem that left none or only some."""

    id: str
    ok: bool
    problem: str | None
    unreadable: tuple[str, ...]
    facts: Facts | None
    line: int = 1
    column: int = 1


def prepare(context: Context) -> None:
    """Have Nix evaluate all recipes while other roads look at them."""
    recipes = [recipe for _, recipe in context.present()]
    if recipes and "evaluate" not in context.running and proc.which("nix-instantiate"):
        context.running["evaluate"] = _start(context, recipes, share=True)


@functools.cache
def evaluated(context: Context) -> dict[str, Evaluated] | str:
    """What came of each recipe by its path, or why nothing could be evaluated."""
    running = context.running.pop("evaluate", None)
    recipes = [recipe for _, recipe in context.present()]
    if not recipes:
        return "no recipe to evaluate"
    if running is None:
        return "Nix is not installed"
    try:
        results = _finished(context, recipes, running)
    except ToolError as error:
        return str(error)
    if isinstance(results, str):
        return results
    return {path: _without_root(context, result) for path, result in results.items()}


def _without_root(context: Context, result: Evaluated) -> Evaluated:
    """The same with paths below the root, and the line that nixpkgs' messages name."""
    if result.problem is None:
        return result
    problem = result.problem.replace(f"{_place(context, '.')}/", "")
    named = re.search(rf"(?: in)? {re.escape(result.id)}:(\d+)", problem)
    line = int(named[1]) if named and result.line == 1 else result.line
    return msgspec.structs.replace(
        result, problem=problem.replace(named[0], "") if named else problem, line=line
    )


def _finished(
    context: Context, recipes: list[Recipe], running: proc.Running
) -> dict[str, Evaluated] | str:
    """The answers of a run, taking out one by one the recipes that end it."""
    results: dict[str, Evaluated] = {}
    share = True
    while True:
        answer = running.finish(_SECONDS)
        if answer.code == 0:
            for result in _decoded(answer.stdout):
                results[result.id] = _with_message(context, result)
            return results
        culprit = _culprit(answer.stderr, recipes)
        if culprit:
            results[culprit.path] = _alone(context, culprit)
            recipes = [recipe for recipe in recipes if recipe is not culprit]
        elif share:
            share = False  # what recipes have in common is itself at fault
        else:
            return f"Nix cannot evaluate: {_message(answer.stderr)}"
        if len(results) >= _MOST_CULPRITS:
            return results | {recipe.path: _alone(context, recipe) for recipe in recipes}
        if not recipes:
            return results
        running = _start(context, recipes, share=share)


def _start(
    context: Context, recipes: Sequence[Recipe], *, share: bool = False, catch: bool = True
) -> proc.Running:
    """Start Nix on recipes. The dummy store lets any user evaluate; nothing is written there."""
    imports: dict[str, str] = {}
    items = []
    for recipe in recipes:
        item = f"id = {nix.literal(recipe.path)}; "
        item += f"path = {nix.literal(_place(context, recipe.path))};"
        if share and (expression := _pinned_import(recipe)):
            name = imports.setdefault(expression, f"n{len(imports)}")
            item += f" nixpkgs = {nix.literal(name)};"
        items.append(f"{{ {item} }}")
    shared = " ".join(f"{name} = {expression};" for expression, name in imports.items())
    expression = (
        "import <model/evaluate.nix> {\n"
        f"  announce = true; catch = {nix.literal(catch)};\n"
        # The scope shadows what would reach the outside, here as in the recipes themselves.
        "  shared = scope: let inherit (scope) builtins import scopedImport fetchTarball fetchGit"
        f" __findFile; in {{ {shared} }};\n"
        f"  recipes = [ {' '.join(items)} ];\n"
        "}"
    )
    folders = {str(Path(_place(context, recipe.path)).parent) for recipe in recipes}
    argv = ["nix-instantiate", "--eval", "--strict", "--json", "--store", "dummy://"]
    argv += ["--option", "restrict-eval", "true", "-I", f"model={MODEL}"]
    for number, folder in enumerate(sorted(folders)):
        argv += ["-I", f"recipes{number}={folder}"]
    return proc.start([*argv, "-"], stdin=expression, env={"NIX_PATH": ""})


def _pinned_import(recipe: Recipe) -> str | None:
    """The default of a recipe's argument nixpkgs_pinned, where it means the same elsewhere."""
    head = re.search(r"(?ms)^\{.*?^\}:", recipe.text)
    text = syntax.default_of(head[0], "nixpkgs_pinned") if head else None
    is_relative = text is not None and re.search(r"(?<![\w.])\.{1,2}/", text)
    return None if is_relative else text


def _place(context: Context, path: str) -> str:
    return str((context.root / path).resolve())


def _alone(context: Context, recipe: Recipe) -> Evaluated:
    """One recipe in a process of its own, for its own error and the place of it."""
    answer = _start(context, [recipe]).finish(_SECONDS)
    if answer.code == 0:
        return _with_message(context, _decoded(answer.stdout)[0])
    places = re.findall(rf"{re.escape(Path(recipe.path).name)}:(\d+):(\d+)", answer.stderr)
    line, column = places[-1] if places else (1, 1)
    return Evaluated(
        recipe.path,
        ok=False,
        problem=_message(answer.stderr),
        unreadable=(),
        facts=None,
        line=int(line),
        column=int(column),
    )


def _with_message(context: Context, result: Evaluated) -> Evaluated:
    """The same with the message of what was thrown, which Nix tells only when it is not caught."""
    if "keeps the message" not in (result.problem or ""):
        return result
    answer = _start(context, [context.recipes[result.id]], catch=False).finish(_SECONDS)
    return msgspec.structs.replace(result, problem=_message(answer.stderr))


def _decoded(text: str) -> list[Evaluated]:
    return msgspec.json.decode(text.encode(), type=list[Evaluated])


def _culprit(stderr: str, recipes: Sequence[Recipe]) -> Recipe | None:
    """The recipe that ended the process: the last one that was announced."""
    path = stderr.rpartition("trace: evaluating ")[2].split("\n")[0].strip()
    return next((recipe for recipe in recipes if recipe.path == path), None)


def _message(stderr: str) -> str:
    """The error itself, without the places and excerpts that follow it."""
    errors = re.findall(r"(?m)^error: ?(.*(?:\n(?!\s*$| *at |\s*\d*\|).+)*)", stderr)
    text = errors[-1] if errors else stderr.strip().split("\n")[-1]
    text = re.sub(r",? at:? /\S+:\d+:\d+.*", "", " ".join(text.split()))
    return text or "Nix says nothing"


def facts_of(context: Context) -> Iterator[tuple[str, Facts]]:
    """The recipes that have facts."""
    results = evaluated(context)
    if not isinstance(results, str):
        for path, result in results.items():
            if result.facts:
                yield path, result.facts


def failures(result: Evaluated) -> Iterable[Problem]:
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
