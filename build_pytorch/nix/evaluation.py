"""Evaluation of recipes by `nix-instantiate`: many in one process, unchanged, with facts of each.

An import of nixpkgs that several recipes have in common is evaluated once.
"""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from build_pytorch.base import files, process
from build_pytorch.base.console import shortened, waiting
from build_pytorch.base.errors import ToolError
from build_pytorch.nix import quoting

_FUNCTION: Final = Path(__file__).resolve().with_name("evaluate.nix")

_MAXIMUM_HEAP: Final = "8G"
"""Memory that an offline evaluation may use; a recipe may build an endless list."""

SECONDS: Final = 120.0
"""Limit for a recipe that computes forever; offline, all recipes take less than a second."""
MOST_ERRORS: Final = 20  #: recipes with an error; after them, the others are not evaluated

_PINNED: Final = re.compile(
    r"^(?:\{ pkgs[^\n]*?)?, nixpkgs_pinned \? (.+?)(?:\n\}:|\n, |, \w+ \?[^\n]*\}:$)",
    re.MULTILINE | re.DOTALL,
)
"""The default of the argument as generated recipes write it. Other forms are not shared."""
_FILE: Final = re.compile(r"^  nixpkgs_\S+ = import (\./\S+\.nix);$", re.MULTILINE)
"""A file with an import of nixpkgs, as release.nix names it."""

_WARNING: Final = re.compile(r"^(?:trace: (?:evaluation )?|evaluation )warning: (.*)$")
"""A warning of Nix code; Nix's own, such as on its settings, have no word before."""
_NO_NETWORK: Final = re.compile(
    r"unable to download|[Cc]ould not resolve|[Cc]ouldn't resolve|[Nn]etwork is unreachable"
)

NO_DAEMON: Final = "Nix's daemon cannot be reached"
_SOCKET: Final = re.compile(r"(?m)cannot connect to (?:socket|daemon)\b.*: (.+)$")


class UnreachablePinError(ToolError):
    """The pinned nixpkgs is not in the store and cannot be downloaded."""


class Recipe(NamedTuple):
    """A file to evaluate: its id, its absolute path and text; for a companion, that of its variant.

    With `is_set`, it is release.nix. `package` names a package of nixpkgs, which has no file.
    `checkout` is what the recipe finds in environment variables.
    """

    id: str
    path: str = ""
    text: str = ""
    variant: str = ""
    is_set: bool = False
    package: str = ""
    checkout: str = ""


class EvaluatedRecipe(msgspec.Struct):
    """The facts of a recipe and the warnings of Nix, or the error with its place in the file."""

    id: str
    facts: dict[str, Any] | None = None
    warnings: list[str] = []
    error: str = ""
    line: int = 1
    column: int = 1
    needs: str = ""
    """The id of the variant that has the error: the recipe itself was not evaluated."""


def evaluate(
    recipes: Sequence[Recipe], arguments: str, title: str, *, is_offline: bool = False
) -> dict[str, EvaluatedRecipe]:
    """Return the results by id. After an error, Nix goes on with the recipe behind it.

    `arguments`: Nix code of the other arguments of evaluate.nix; with `is_offline` it needs no
    store and no network. After MOST_ERRORS, one recipe stands for those that are left. Raises
    ToolError, also if Nix itself does not work, and UnreachablePinError.
    """
    results: dict[str, EvaluatedRecipe] = {}
    rest, share, errors = list(recipes), True, 0
    while rest:
        given = f"{arguments} {_items(rest, share=share)}"
        run = _run(given, f"{title}: {len(rest)}", is_offline=is_offline)
        results |= printed(run.stderr)
        rest = [recipe for recipe in rest if recipe.id not in results]
        if not rest:
            break
        failed, is_working = rest[0], any(result.facts for result in results.values())
        if run.code == 0 or (errors == MOST_ERRORS and not is_working):
            said = message_of(run.stderr)
            raise ToolError(f"nix-instantiate evaluates none of {len(rest)} recipes: {said}")
        if share and not results:
            share = False  # a shared import may be the cause
        elif errors == MOST_ERRORS:
            what = f"{errors} other recipes end Nix; correct these, then `invoke verify` goes on"
            error = f"{len(rest)} recipes not evaluated: {what}"
            results[failed.id] = EvaluatedRecipe(failed.id, error=error)
            break
        else:
            errors += 1
            of_it = [r for r in rest if failed.path and failed.path in {r.path, r.variant}]
            stopped = [*of_it, *(r for r in rest if r.is_set)]
            results |= {r.id: EvaluatedRecipe(r.id, needs=failed.id) for r in stopped}
            results[failed.id] = _failure(failed, run)
            rest = [recipe for recipe in rest if recipe.id not in results]
    return results


def _run(arguments: str, title: str, *, is_offline: bool) -> process.ProcessResult:
    """Run evaluate.nix."""
    argv = ["nix-instantiate", "--eval", "--strict", "--json"]
    env = {}
    if is_offline:
        # The dummy store lets any user evaluate: store paths are computed and none is written.
        argv += ["--store", "dummy://"]
        env = {"GC_MAXIMUM_HEAP_SIZE": _MAXIMUM_HEAP}
    code = f"import (/. + {quoting.literal(str(_FUNCTION))}) {{ {arguments} }}"
    with tempfile.NamedTemporaryFile(suffix=".nix") as file:
        file.write(code.encode(errors="surrogateescape"))
        file.flush()
        if is_offline:
            return process.run([*argv, file.name], env=env, seconds=SECONDS)
        with waiting(title):
            run = process.run([*argv, file.name])
    if run.code and _NO_NETWORK.search(run.stderr):
        raise UnreachablePinError(
            "the pinned nixpkgs cannot be downloaded and is not in the store; run this with a "
            f"network connection (Nix: {shortened(message_of(run.stderr), 120)})"
        )
    return run


def printed(stderr: str) -> dict[str, EvaluatedRecipe]:
    """Return the results that Nix printed, each with the warnings before it."""
    results: dict[str, EvaluatedRecipe] = {}
    warnings: list[str] = []
    for line in stderr.splitlines():
        if line.startswith('trace: facts {"'):
            result = msgspec.json.decode(line[13:], type=EvaluatedRecipe)
            result.warnings, warnings = warnings, []
            results[result.id] = result
        elif warning := _WARNING.match(line):
            warnings.append(warning[1])
    return results


def _failure(recipe: Recipe, run: process.ProcessResult) -> EvaluatedRecipe:
    """Return the result of the recipe whose error ended a run."""
    if run.expired:
        return EvaluatedRecipe(recipe.id, error=f"no end after {SECONDS:.0f} s")
    message = message_of(run.stderr)
    places = re.findall(rf"{re.escape(recipe.path)}:(\d+):(\d+)", run.stderr) if recipe.path else []
    line, column = map(int, places[-1]) if places else (1, 1)
    root = recipe.path.removesuffix(recipe.id)  # messages name paths below the root
    return EvaluatedRecipe(
        recipe.id, error=message.replace(root or "\0", ""), line=line, column=column
    )


def _items(recipes: Sequence[Recipe], *, share: bool) -> str:
    """Return the arguments of evaluate.nix: the recipes, and the imports that they share."""
    code = functools.cache(_code)
    shareable = [recipe for recipe in recipes if share and not recipe.checkout]
    texts = {recipe.id: shared_import(recipe.text, recipe.path, code) for recipe in shareable}
    counts = Counter(text for text in texts.values() if text)
    common = [text for text, count in counts.items() if count > 1]
    names = {text: f"n{number}" for number, text in enumerate(common)}
    items = []
    paths: dict[str, str] = {}
    for recipe in recipes:
        given = {name: value for name, value in recipe._asdict().items() if value}
        given.pop("text", None)
        if name := names.get(texts.get(recipe.id, "")):
            given["nixpkgs"] = name
        items.append(quoting.literal(given))
        for file in _FILE.findall(recipe.text) if recipe.is_set else ():
            path = str(Path(recipe.path).parent / file)
            if name := names.get(code(path)):
                paths[path] = name
    imports = " ".join(f"{name} = ({text});" for text, name in names.items())
    scope = "scope: let inherit (scope) builtins import fetchTarball; in"
    files_ = quoting.literal(paths)
    return f"recipes = [ {' '.join(items)} ]; imports = {scope} {{ {imports} }}; files = {files_};"


def _code(path: str) -> str:
    """Return the content of a file after its comment; empty if it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return re.sub(r"\A(?:#[^\n]*\n|\n)+", "", files.read_named(Path(path)).decode()).rstrip()
    return ""


def shared_import(text: str, path: str = "", code: Callable[[str], str] = _code) -> str:
    """Return the default of a recipe's argument nixpkgs_pinned; empty if it cannot be shared.

    If that is an import of another file, as in a companion, return what the file contains. A
    relative path would have another meaning outside of its file.
    """
    default = _PINNED.search(text)
    expression = default[1] if default else ""
    if imported := re.fullmatch(r"import (\.[\w./-]+\.nix)", expression):
        expression = code(f"{Path(path).parent}/{imported[1]}")
    return "" if quoting.has_relative_path(expression) else expression


def message_of(stderr: str) -> str:
    """Return the last error message of Nix, without the places, excerpts and hints after it.

    Newer versions (seen in 2.34) begin with `error:` alone and what they were evaluating.
    """
    if socket := _SOCKET.search(stderr):
        fix = "start it, or let root add you to the group of its users (Debian: nix-users)"
        return f"{NO_DAEMON} ({socket[1].strip()}); {fix}"
    errors = re.findall(r"(?m)^ *error: ?(\S.*(?:\n(?!\s*$| *at |\s*\d*\|| *error:).+)*)", stderr)
    text = errors[-1] if errors else stderr.strip().split("\n")[-1]
    text = re.sub(r" at /\S+:\d+:\d+(?= called with)", "", " ".join(text.split()))
    text = re.sub(r",? at:? /\S+:\d+:\d+.*", "", text)
    text = re.sub(r" \(use '--show-trace'[^)]*\)", "", text)
    return text or "Nix printed no message"
