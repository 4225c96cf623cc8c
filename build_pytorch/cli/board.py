"""`invoke board`: the state of the fleet as one HTML page and as JSON."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError, LinkError
from build_pytorch.build import board_data
from build_pytorch.build.board_data import RecipeState
from build_pytorch.build.build_outcome import clock
from build_pytorch.cli.commands import BoardOptions
from build_pytorch.cli.status import recipe_errors, verified_states
from build_pytorch.generate import board, pages, rendering
from build_pytorch.generate.board import BoardDocument
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages
from build_pytorch.results import evidence
from build_pytorch.results.package_state import package_states
from build_pytorch.verify.check import Finding

_DEFAULT: Final = f"{paths.STATE}/board.html"
_VERIFIED: Final = f"{paths.STATE}/verified.json"
_EVERY: Final = 5.0  #: seconds between two looks of --watch


class _StoredErrors(msgspec.Struct, frozen=True):
    """The errors of a verification, with a digest of everything that was verified."""

    key: str
    errors: tuple[Finding, ...]


def run(options: BoardOptions) -> int:
    """Write the board; with --watch, again as long as it runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    packages = _packages(matrix, options)
    folder, name = _place(options)
    screen = Screen(sys.stderr)

    def write(*, is_live: bool) -> BoardDocument:
        recipes = _recipes(matrix, options.root, packages)
        now = datetime.now(UTC)
        found = board_data.board(options.root, packages, recipes, now, is_live=is_live)
        data = board.json_bytes(found)
        json_name = Path(name).with_suffix(".json").name
        contents = {name: board.page(options.root, data, json_name).encode(), json_name: data}
        with files.write_errors():
            files.make_state(options.root)
            files.write_all(folder, contents, sync=False)
        return found

    try:
        found = write(is_live=options.watch)
        path = folder / name
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        screen.line(f"{_summary(found)}; open {shown}")
        while options.watch:
            before = found
            time.sleep(_EVERY)
            found = write(is_live=True)
            if _summary(found) != _summary(before):
                screen.line(_summary(found))
    except KeyboardInterrupt:
        if not options.watch:
            raise
        screen.line(f"{_summary(write(is_live=False))}; no longer kept up to date")
    return EXIT_OK


def _packages(matrix: Matrix, options: BoardOptions) -> Sequence[Package]:
    """Return the packages that are named; if none is, variants and the companions with events."""
    found = select_packages(matrix, options.variants, options.release)
    if options.variants:
        return found
    chosen = {package.path for package in found}
    own = [each for each in matrix.companions if each.variant.path in chosen]
    known = package_states(options.root, own)
    return [*found, *(each for each in own if known[each.id].events)]


def _place(options: BoardOptions) -> tuple[Path, str]:
    """Return the folder and the name of the page. Raises BuildPytorchError for a wrong --output."""
    path = options.output
    if path is None:
        return options.root / paths.STATE, Path(_DEFAULT).name
    if path.suffix != ".html":
        raise BuildPytorchError(f"--output {path}: the name must end in .html; the JSON is beside")
    if not path.parent.is_dir():
        raise BuildPytorchError(f"--output {path}: no such folder; make it first")
    page, data = path, path.with_suffix(".json")
    signs = {page: f'content="{pages.GENERATOR}"', data: '"build-pytorch board 1"'}
    for file, sign in signs.items():
        with suppress(FileNotFoundError):
            try:
                text = files.read_named(file)[:2000]
            except FileNotFoundError:
                raise
            except OSError as error:
                why = error.strerror
                raise BuildPytorchError(f"--output {path}: {file.name}: {why}") from None
            if sign.encode() not in text:
                raise BuildPytorchError(
                    f"--output {path}: {file.name} exists and is no board; choose another name"
                )
    return path.parent.resolve(), path.name


def _summary(found: BoardDocument) -> str:
    """Return one line: the number of variants in each state, and the builds that run."""
    states = [row.state for row in found.variants]
    counts = [f"{states.count(state)} {state}" for state in board.STATES if state in states]
    running = [
        f"{row.variant} {row.running.phase or 'waiting'}"
        + (f" [{row.running.done}/{row.running.total}]" if row.running.total else "")
        + (f", about {clock(row.running.left)} left" if row.running.left is not None else "")
        for row in found.variants
        if row.running
    ]
    return "; ".join([f"{counted(len(states), 'variant')}: {', '.join(counts)}", *running])


def _recipes(matrix: Matrix, root: Path, packages: Sequence[Package]) -> Mapping[str, RecipeState]:
    """Return the state of each recipe and its errors, by id."""
    errors: dict[str, list[Finding]] = {}
    for finding in _errors(matrix, root, packages):
        errors.setdefault(finding.path, []).append(finding)
    states = verified_states(matrix, root, packages, errors)
    return {it.id: (states[it.id].recipe, errors.get(it.path, ())) for it in packages}


def _errors(matrix: Matrix, root: Path, packages: Sequence[Package]) -> Sequence[Finding]:
    """Return the errors of the recipes. Those of recipes that did not change since are kept.

    Verification takes seconds for a fleet of 50 and a minute for one of 1,000.
    """
    hasher = hashlib.sha256(rendering.inputs(matrix)[0].encode())
    for package in packages:
        hasher.update(f"\0{package.path}\0{evidence.recipe_digest(root, package)}".encode())
    key = hasher.hexdigest()
    with suppress(OSError, LinkError, ValueError, RecursionError):
        stored = msgspec.json.decode(files.read_below(root, _VERIFIED), type=_StoredErrors)
        if stored.key == key:
            return stored.errors
    found = recipe_errors(matrix, root, packages)
    errors = tuple(finding for each in found.values() for finding in each)
    with suppress(OSError, LinkError):  # in a read-only checkout nothing is stored
        files.make_state(root)
        stored = _StoredErrors(key, errors)
        files.write_all(root, {_VERIFIED: msgspec.json.encode(stored)}, sync=False)
    return errors
