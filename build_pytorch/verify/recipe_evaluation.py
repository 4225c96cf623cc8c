"""The evaluation of recipes by one Nix process.

The recipes are evaluated unchanged: offline against nixpkgs_model/, which replaces whatever would
be fetched, or with `pinned` against the nixpkgs that they name.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import files, paths, process
from build_pytorch.base.console import counted
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import CompanionPackage, Package
from build_pytorch.matrix.source_tables import known_companions, version_for
from build_pytorch.nix import nix_evaluation, quoting
from build_pytorch.nix.nix_evaluation import RecipeSource, message_of
from build_pytorch.verify.check import Context

MODEL: Final = Path(__file__).resolve().with_name("nixpkgs_model")

SECONDS: Final = 120.0
"""Limit for a recipe that computes forever; offline, all recipes take less than a second."""

_WARNING: Final = re.compile(r"^(?:trace: (?:evaluation )?|evaluation )warning: (.*)$")
"""A warning of Nix code; Nix's own, such as on its settings, have no word before."""


class EvaluatedRecipe(msgspec.Struct, frozen=True):
    """The result for one recipe: facts, or the error that left none or only some of them."""

    id: str
    ok: bool = False
    problem: str | None = None
    unreadable: tuple[str, ...] = ()
    """Attributes that cannot be evaluated."""
    facts: dict[str, Any] | None = None
    line: int = 1
    column: int = 1

    @property
    def drv_path(self) -> str | None:
        """The derivation path; None if the recipe does not evaluate."""
        path = self.facts["drvPath"] if self.facts else None
        return path if isinstance(path, str) else None


_DECODER: Final = msgspec.json.Decoder(list[EvaluatedRecipe])


class Evaluation(msgspec.Struct):
    """The results of all recipes and the warnings of Nix, by path; or why there are no results."""

    reason: str = ""
    results: dict[str, EvaluatedRecipe] = {}
    warnings: dict[str, list[str]] = {}

    def is_stopped(self, package: Package) -> bool:
        """Return whether a companion does not evaluate, and neither does its variant.

        That is one fault, which is reported for the variant.
        """
        result, variant = self.results.get(package.path), self.results.get(package.variant.path)
        return bool(result and variant and result is not variant and not (result.ok or variant.ok))


def start(context: Context) -> None:
    """Start Nix on all recipes, unless it was started or is not installed."""
    recipes = _sources(context)
    if recipes and context.evaluating is None and nix_evaluation.is_installed():
        context.evaluating = _start(context, recipes)


def abandon(context: Context) -> None:
    """Kill the run that `start` started: its files were written anew."""
    if context.evaluating:
        context.evaluating.kill()


@functools.cache
def evaluated(context: Context) -> Evaluation:
    """Return the results of the run that `start` started. Nix runs again after fatal errors.

    After MOST_ENDED of them, one of the recipes that are left stands for all of these.
    Raises ToolError if the pinned nixpkgs is required and not available.
    """
    start(context)
    recipes = _sources(context)
    if not recipes:
        return Evaluation("no recipe to evaluate")
    if context.evaluating is None:
        if context.pinned:
            raise ToolError("--pinned: nix-instantiate not found; install Nix")
        return Evaluation("Nix is not installed")
    begin, wait = functools.partial(_start, context), functools.partial(_wait, context)
    run = nix_evaluation.run_recipes(recipes, begin, wait, context.evaluating)
    done = Evaluation()
    if run.result.code == 0:
        said = run.result.stderr
        if any(package.untaken_hashes for package in context.by_path.values()):
            # Check stale-hash reports it.
            said = re.sub(r"(?m)^warning: found empty hash, .*\n", "", said)
        done.warnings = warnings_of(said, [recipe.id for recipe in run.recipes])
        decoded = _DECODER.decode(run.result.stdout)
        for recipe, result in zip(run.recipes, decoded, strict=True):
            done.results[recipe.id] = _described(context, recipe, result)
    rest = [recipe for recipe in recipes if recipe.id not in done.results]
    most = max(0, nix_evaluation.MOST_ENDED - run.ended)
    alone = [recipe for recipe in rest if recipe.id not in run.failed]
    for recipe in (*(r for r in rest if r.id in run.failed), *alone[:most]):
        failed = run.failed.get(recipe.id) or _run_one(context, recipe)
        done.results[recipe.id] = _from_single_run(context, recipe, failed)
    if unknown := alone[most:]:
        number = max(run.ended, nix_evaluation.MOST_ENDED)
        what = f"{number} other recipes end Nix; correct these, then `invoke verify` goes on"
        done.reason = f"not evaluated: {what}"
        problem = f"{counted(len(unknown), 'recipe')} {done.reason}"
        done.results[unknown[0].id] = EvaluatedRecipe(unknown[0].id, problem=problem)
    return done


def _sources(context: Context) -> list[RecipeSource]:
    root = context.root.resolve()
    # Nix would wait for a FIFO in the place of a recipe that a companion or release.nix imports.
    found = [
        RecipeSource(recipe.path, f"{root}/{recipe.path}", recipe.text, needs=package.variant.path)
        for package, recipe in context.present
        if package.variant.path in context.recipes
    ]
    is_complete = len(found) == len(context.matrix.packages)
    if found and is_complete and context.is_whole:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = files.read_text_below(root, paths.RELEASE)
            path = str(root / paths.RELEASE)
            found.append(RecipeSource(paths.RELEASE, path, text, is_set=True))
    return found


def start_pairs(
    contexts: tuple[Context, Context], pairs: Sequence[tuple[Package, Package]]
) -> process.Running:
    """Start Nix on pairs of packages of two trees; it prints what differs in each, as JSON.

    The id of a pair is the path of its second recipe.
    """
    before, after = ({recipe.id: recipe for recipe in _sources(c)} for c in contexts)
    items = " ".join(
        f"{{ id = {quoting.literal(new.path)}; before = {quoting.literal(before[old.path].path)}; "
        f"after = {quoting.literal(after[new.path].path)}; }}"
        for old, new in pairs
    )
    recipes = [r for sources in (before, after) for r in sources.values() if not r.is_set]
    return _start(contexts[1], recipes, before=contexts[0], pairs=f"[ {items} ]")


def _wait(context: Context, running: process.Running, total: int) -> process.ProcessResult:
    if not context.pinned:
        return running.finish(SECONDS)
    title = "evaluating against the pinned nixpkgs"
    return nix_evaluation.wait_with_progress(running, title, total)


def _start(  # noqa: PLR0913 - the options of a run
    context: Context,
    recipes: Sequence[RecipeSource],
    *,
    share: bool = True,
    catch: bool = True,
    before: Context | None = None,
    pairs: str = "null",
) -> process.Running:
    """Start Nix on recipes of a context, or on `pairs` of them with those of `before`."""
    contexts = [context, before] if before else [context]
    packages = {
        f"{root}/{path}": (root, package)
        for each in contexts
        for root in [each.root.resolve()]
        for path, package in each.by_path.items()
    }
    imports, items = nix_evaluation.recipe_list(recipes, share=share)
    pinned: dict[str, str] = {}
    names = ""
    for path in (recipe.path for recipe in recipes if not recipe.is_set):
        root, package = packages[path]
        name = pinned.setdefault(_pinned_package(package), f"p{len(pinned)}")
        given = f'pin = "{name}";'
        if package is not package.variant:
            given += f" variant = {quoting.literal(f'{root}/{package.variant.path}')};"
        names += f"{quoting.literal(path)} = {{ {given} }};"
    pins = "\n".join(f"{name} = {expression};" for expression, name in pinned.items())
    revisions = {rev: facts for each in contexts[::-1] for rev, facts in _revisions(each).items()}
    repositories = {url: path for each in contexts for url, path in _repositories(each).items()}
    # The scope hides what reaches the outside from the shared imports, as it does in recipes.
    expression = f"""import <model/evaluate.nix> {{
  catch = {quoting.literal(catch)};
  offline = {quoting.literal(not context.pinned)};
  revisions = builtins.fromJSON {quoting.literal(json.dumps(revisions))};
  repositories = builtins.fromJSON {quoting.literal(json.dumps(repositories))};
  shared = scope:
    let inherit (scope) builtins import scopedImport fetchTarball fetchGit __findFile;
    in {{ {imports} }};
  pins = scope: let inherit (scope) import fetchTarball; in {{ {pins} }};
  recipes = let more = {{ {names} }}; in map (r: more.${{r.path}} or {{ }} // r) {items};
  pairs = {pairs};
}}"""
    search_path = {"model": str(MODEL)}
    if not context.pinned:
        folders = enumerate(folder for each in contexts for folder in _readable(each))
        search_path |= {f"recipes{number}": folder for number, folder in folders}
    return nix_evaluation.start(expression, search_path=search_path, offline=not context.pinned)


def _readable(context: Context) -> list[str]:
    """Return the folders that recipes may read offline, and release.nix."""
    root = context.root.resolve()
    copied = [v.packages_from for v in context.variants if v.packages_from]
    names = {paths.RELEASE, *context.matrix.folders, paths.COMPANION_FUNCTION.rpartition("/")[0]}
    names |= {packages.folder for packages in copied if packages.is_copied}
    return sorted(str(root / name) for name in names if (root / name).exists())


def _revisions(context: Context) -> dict[str, dict[str, Any]]:
    """Return what the model of nixpkgs has to know of each revision."""
    fields = ("torch", "python", "cuda", "has")
    known = {}
    for pin in context.matrix.pins.values():
        companions = {
            name: version_for(pin.torch, name) or "0" for name in (*known_companions(), "triton")
        }
        facts = {"companions": companions, "cccl": pin.cccl}
        known[pin.rev] = {name: getattr(pin, name) for name in fields} | facts
    return known


def _repositories(context: Context) -> dict[str, str]:
    """Return the tarballs of repositories with CUDA packages: the path of each below github.com."""
    found = [v.packages_from for v in context.matrix.variants if v.packages_from]
    paths_ = {f"{it.owner}/{it.repo}/archive/{it.rev}" for it in found if not it.is_copied}
    return {f"https://github.com/{path}.tar.gz": path for path in paths_}


def _pinned_package(package: Package) -> str:
    """Return Nix code for the package of the pin to compare with: the CUDA of the release only."""
    variant = package.variant
    pin, cuda = variant.pin, variant.cuda
    url = f"https://github.com/NixOS/nixpkgs/archive/{pin.rev}.tar.gz"
    sha256 = f"sha256 = {quoting.literal(pin.sha256)};" if pin.sha256 else ""
    overlay = f"(final: prev: {{ cudaPackages = final.{cuda.package_set}; }})" if cuda else ""
    support = quoting.literal(cuda is not None)
    name = package.name if isinstance(package, CompanionPackage) else "torch"
    arguments = f"cudaSupport = {support};"
    if name == "torch" and variant.group.blas != "openblas":
        arguments += f" blas = p.blas.override {{ blasProvider = p.{variant.group.blas}; }};"
    return f"""let p = import (fetchTarball {{ url = {quoting.literal(url)}; {sha256} }}) {{
    system = {quoting.literal(variant.cpu.platform)};
    config = {{ allowUnfree = true; allowBroken = true; cudaSupport = {support}; }};
    overlays = [ {overlay} ];
  }}; in p.{variant.python_set}.{name}.override {{ {arguments} }}"""


def _run_one(
    context: Context, recipe: RecipeSource, *, catch: bool = True
) -> process.ProcessResult:
    limit = None if context.pinned else SECONDS  # the pinned nixpkgs takes minutes
    return _start(context, [recipe], share=False, catch=catch).finish(limit)


def _from_single_run(
    context: Context, recipe: RecipeSource, run: process.ProcessResult
) -> EvaluatedRecipe:
    """Return the result of a run in which this recipe was the only one, or caused the error."""
    if run.expired:
        return EvaluatedRecipe(recipe.id, problem=f"no end after {SECONDS:.0f} s")
    if run.code == 0:
        return _described(context, recipe, _DECODER.decode(run.stdout)[0])
    places = re.findall(rf"{re.escape(recipe.path)}:(\d+):(\d+)", run.stderr)
    line, column = map(int, places[-1]) if places else (1, 1)
    return EvaluatedRecipe(recipe.id, problem=message_of(run.stderr), line=line, column=column)


def _described(context: Context, recipe: RecipeSource, result: EvaluatedRecipe) -> EvaluatedRecipe:
    """Return a result with the message that was thrown, its line, and paths below the root.

    Nix prints the message only if nothing catches the error.
    """
    problem = result.problem
    if problem is None:
        return result
    if "message was discarded" in problem:
        problem = message_of(_run_one(context, recipe, catch=False).stderr)
    problem = problem.replace(f"{context.root.resolve()}/", "")
    line = result.line
    if named := re.search(rf"(?: in)? {re.escape(recipe.id)}:(\d+)", problem):
        line, problem = int(named[1]), problem.replace(named[0], "")
    return msgspec.structs.replace(result, problem=problem, line=line)


def warnings_of(stderr: str, ids: Sequence[str]) -> dict[str, list[str]]:
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
