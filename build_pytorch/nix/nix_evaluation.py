"""Evaluation of recipes by `nix-instantiate`: command lines, shared imports, failed runs.

Many recipes are evaluated in one process, and an import of nixpkgs that several of them have in
common only once. Each recipe is announced on stderr before it is evaluated: if an error ends the
process, the last announced recipe caused it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from build_pytorch.base import files, process
from build_pytorch.base.console import ProgressLine, shortened
from build_pytorch.base.errors import ToolError
from build_pytorch.nix import quoting
from build_pytorch.nix.source_text import is_movable

_PROGRAM: Final = "nix-instantiate"

_OFFLINE_MEMORY: Final = 8 << 30
"""Bytes that an offline evaluation may use; a recipe may build an endless list."""

_INITIAL_HEAP: Final = "1G"
"""Of Nix's garbage collector: without collections, 1,056 recipes take 1.8 s of CPU, not 2.0 s."""

_PLACE: Final = re.compile(r"at:? (/[^\n]*?):(\d+):(\d+)")
_MOST_ERRORS: Final = 20
MOST_ENDED: Final = 20  #: recipes that may end Nix; after more, the others are not evaluated

_PINNED: Final = re.compile(
    r"^(?:\{ pkgs[^\n]*?)?, nixpkgs_pinned \? (.+?)(?:\n\}:|\n, |, \w+ \?[^\n]*\}:$)",
    re.MULTILINE | re.DOTALL,
)
"""The default of the argument as generated recipes write it. Other forms are not shared."""

_FILE: Final = re.compile(r"^  nixpkgs_\S+ = import (\./\S+\.nix);$", re.MULTILINE)
"""A file with an import of nixpkgs, as release.nix names it."""

_NO_NETWORK: Final = re.compile(
    r"unable to download|[Cc]ould not resolve|[Cc]ouldn't resolve|[Nn]etwork is unreachable"
)


class UnreachablePinError(ToolError):
    """The pinned nixpkgs is not in the store and cannot be downloaded."""


class RecipeSource(NamedTuple):
    """A recipe to evaluate: the id that announces it, its absolute path, its text.

    With `is_set`, it is release.nix: a file that contains a set of packages. `needs`: the id of a
    recipe without which it does not evaluate either.
    """

    id: str
    path: str
    text: str
    is_set: bool = False
    needs: str = ""


def is_installed() -> bool:
    """Return whether `nix-instantiate` is on PATH."""
    return process.which(_PROGRAM) is not None


class NixSyntaxError(NamedTuple):
    """An error that Nix reports for a file; line and column count from 1."""

    message: str
    line: int
    column: int


def syntax_errors(paths: Sequence[str]) -> dict[str, NixSyntaxError | None]:
    """Return the first syntax error of each file, or None; Nix also refuses unbound names.

    Nix stops at the first error, so that each error takes one more run. Files are absent from the
    result after the 20th error, and if Nix itself fails. Raises ToolError.
    """
    errors: dict[str, NixSyntaxError | None] = {}
    rest = list(paths)
    while rest and sum(map(bool, errors.values())) < _MOST_ERRORS:
        # The dummy store is for users who may not use that of the machine.
        result = process.start([_PROGRAM, "--parse", "--store", "dummy://", *rest]).finish()
        if result.code == 0:
            return errors | dict.fromkeys(rest)
        places = [place for place in _PLACE.findall(result.stderr) if place[0] in rest]
        if not places:
            break
        file, line, column = places[-1]
        message = result.stderr.partition("error: ")[2].split("\n")[0].partition(", at /")[0]
        position = rest.index(file)
        errors |= dict.fromkeys(rest[:position])
        errors[file] = NixSyntaxError(message.strip(), int(line), int(column))
        rest = rest[position + 1 :]
    return errors


def start(
    expression: str,
    *,
    search_path: Mapping[str, str] | None = None,
    offline: bool = False,
) -> process.Running:
    """Start Nix on an expression; it prints the value as JSON. Raises ToolError.

    `search_path` replaces NIX_PATH. `offline` allows no network, no file outside the search path,
    and limits memory.
    """
    argv = [_PROGRAM, "--eval", "--strict", "--json"]
    for name, folder in (search_path or {}).items():
        argv += ["-I", f"{name}={folder}"]
    if offline:
        # The dummy store lets any user evaluate: store paths are computed and none is written.
        argv += ["--store", "dummy://", "--option", "restrict-eval", "true"]
    env = {"GC_INITIAL_HEAP_SIZE": _INITIAL_HEAP}
    if search_path is not None:
        env["NIX_PATH"] = ""
    memory = _OFFLINE_MEMORY if offline else None
    return process.start([*argv, "-"], stdin=expression, env=env, memory=memory)


def recipe_list(recipes: Sequence[RecipeSource], *, share: bool = True) -> tuple[str, str]:
    """Return Nix code: the bindings of all shared imports, and the list of the recipes.

    An item of the list has `id`, `path` and, if the recipe imports nixpkgs in a way that can be
    shared, `nixpkgs`: the name of the binding to pass as the argument nixpkgs_pinned. That of
    release.nix has `isSet` and `files`: the bindings that equal the files it imports.
    """
    code = functools.cache(_code)
    names: dict[str, str] = {}
    items = []
    for recipe in recipes:
        item = f"id = {quoting.literal(recipe.id)}; path = {quoting.literal(recipe.path)};"
        if recipe.is_set:
            folder = Path(recipe.path).parent
            files = (f"{folder}/{name[2:]}" for name in _FILE.findall(recipe.text))
            same = {file: names[code(file)] for file in files if code(file) in names}
            pairs = (f'{quoting.literal(file)} = "{name}";' for file, name in same.items())
            item += f" isSet = true; files = {{ {' '.join(pairs)} }};"
        elif share and (expression := shared_import(recipe.text, recipe.path, code)):
            item += f' nixpkgs = "{names.setdefault(expression, f"n{len(names)}")}";'
        items.append(f"{{ {item} }}")
    bindings = "\n".join(f"{name} = {expression};" for expression, name in names.items())
    return bindings, f"[ {' '.join(items)} ]"


def _code(path: str) -> str:
    """Return the content of a file after its comment; empty if it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return re.sub(r"\A(?:#[^\n]*\n|\n)+", "", files.read_named(Path(path)).decode()).rstrip()
    return ""


def shared_import(text: str, path: str = "", code: Callable[[str], str] = _code) -> str | None:
    """Return the default of a recipe's argument nixpkgs_pinned.

    If that is an import of another file, as in a companion, return what the file contains. None if
    there is no such argument or file, or for a relative path, which would have another meaning
    outside the recipe.
    """
    default = _PINNED.search(text)
    if default is None:
        return None
    expression = default[1]
    if imported := re.fullmatch(r"import (\.[\w./-]+\.nix)", expression):
        expression = code(f"{Path(path).parent}/{imported[1]}") or expression
    return expression if is_movable(expression) else None


class RecipesRun(NamedTuple):
    """The last run of `run_recipes`, its recipes, and the failed run of each other recipe.

    `ended`: how many recipes ended a process.
    """

    result: process.ProcessResult
    recipes: list[RecipeSource]
    failed: dict[str, process.ProcessResult]
    ended: int


def run_recipes(
    recipes: Sequence[RecipeSource],
    start: Callable[..., process.Running],
    wait: Callable[[process.Running, int], process.ProcessResult],
    running: process.Running | None = None,
) -> RecipesRun:
    """Evaluate recipes in one process, and again without each recipe that ends the process.

    `start` takes the recipes and `share`: whether they share imports. `wait` takes a run and the
    number of its recipes. The last run is a failed one if no recipe caused its error, or if too
    many have ended a process. `running` is the first run, if it was started before.
    """
    rest, share = list(recipes), True
    failed: dict[str, process.ProcessResult] = {}
    ended = 0
    while True:
        result = wait(running or start(rest, share=share), len(rest))
        running = None
        by_id = {recipe.id: recipe for recipe in rest}
        # Other announcements are ignored: a recipe may print any text.
        announced = re.findall(r"(?m)^trace: evaluating (.*)$", result.stderr)
        culprit = next((by_id[name] for name in reversed(announced) if name in by_id), None)
        if result.code and culprit:
            ended += 1
            stopped = (r.id for r in rest if r.is_set or culprit.id in {r.id, r.needs})
            failed |= dict.fromkeys(stopped, result)
            # Those before it evaluate; after the others, they delay no further error.
            position = rest.index(culprit)
            rest = [r for r in (*rest[position:], *rest[:position]) if r.id not in failed]
        elif result.code and share:
            share = False  # a shared import may be the cause
        else:
            return RecipesRun(result, rest, failed, ended)
        if not rest or ended > MOST_ENDED:
            return RecipesRun(result, rest, failed, ended)


def wait_with_progress(running: process.Running, title: str, total: int) -> process.ProcessResult:
    """Wait for an evaluation of recipes and show how many of them were announced.

    Raises UnreachablePinError if nixpkgs cannot be downloaded.
    """
    progress = ProgressLine(title, total)
    while running.is_running(0.5):
        progress.at(running.said().count("trace: evaluating "))
    progress.end()
    result = running.finish()
    if result.code and _NO_NETWORK.search(result.stderr):
        raise UnreachablePinError(
            "the pinned nixpkgs cannot be downloaded and is not in the store; run this with a "
            f"network connection (Nix: {shortened(message_of(result.stderr), 120)})"
        )
    return result


def message_of(stderr: str) -> str:
    """Return the last error message of Nix, without the places, excerpts and hints after it.

    Newer versions (seen in 2.34) begin with `error:` alone and what they were evaluating.
    """
    errors = re.findall(r"(?m)^ *error: ?(\S.*(?:\n(?!\s*$| *at |\s*\d*\|).+)*)", stderr)
    text = errors[-1] if errors else stderr.strip().split("\n")[-1]
    text = re.sub(r" at /\S+:\d+:\d+(?= called with)", "", " ".join(text.split()))
    text = re.sub(r",? at:? /\S+:\d+:\d+.*", "", text)
    text = re.sub(r" \(use '--show-trace'[^)]*\)", "", text)
    return text or "Nix printed no message"
