"""`invoke board`: the state of all packages as one HTML page and as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from build_pytorch.base import files, paths
from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.build.build_outcome import clock
from build_pytorch.cli.board_document import board_document
from build_pytorch.cli.commands import BoardOptions
from build_pytorch.cli.status import recipe_errors, verified_states
from build_pytorch.generate import board, pages
from build_pytorch.generate.board import BoardDocument
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages
from build_pytorch.results.evidence import recipe_digest
from build_pytorch.results.package_state import package_states
from build_pytorch.verify.check import Finding

_DEFAULT: Final = f"{paths.STATE}/board.html"
_EVERY: Final = 5.0  #: seconds between two looks of --watch


def run(options: BoardOptions) -> int:
    """Write the board; with --watch, again as long as it runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    packages = _packages(matrix, options)
    folder, name = _place(options)
    screen = Screen(sys.stderr)
    digests: list[str] = []
    errors: dict[str, list[Finding]] = {}

    def write(*, is_live: bool) -> BoardDocument:
        nonlocal digests, errors
        current = [recipe_digest(options.root, package) for package in packages]
        if current != digests:  # verification takes seconds
            digests, errors = current, recipe_errors(matrix, options.root, packages)
        states = verified_states(matrix, options.root, packages, errors)
        document = board_document(options.root, list(states.values()), errors, is_live=is_live)
        data = board.json_bytes(document)
        json_name = Path(name).with_suffix(".json").name
        contents = {name: board.page(options.root, data, json_name).encode(), json_name: data}
        with files.write_errors():
            files.make_state(options.root)
            files.write_all(folder, contents, sync=False)
        return document

    try:
        document = write(is_live=options.watch)
        path, here = folder / name, Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        screen.line(f"{_summary(document)}; open {shown}")
        while options.watch:
            before = _summary(document)
            time.sleep(_EVERY)
            document = write(is_live=True)
            if _summary(document) != before:
                screen.line(_summary(document))
    except KeyboardInterrupt:
        if not options.watch:
            raise
        screen.line(f"{_summary(write(is_live=False))}; no longer kept up to date")
    return EXIT_OK


def _packages(matrix: Matrix, options: BoardOptions) -> Sequence[Package]:
    """Return the packages that are named; if none is, variants and the companions with events."""
    selected = select_packages(matrix, options.variants, options.release)
    if options.variants:
        return selected
    chosen = {package.path for package in selected}
    companions = [each for each in matrix.companions if each.variant.path in chosen]
    states = package_states(options.root, companions)
    return [*selected, *(each for each in companions if states[each.id].events)]


def _place(options: BoardOptions) -> tuple[Path, str]:
    """Return the folder and the name of the page. Raises BuildPytorchError for a wrong --output."""
    path = options.output
    if path is None:
        return options.root / paths.STATE, Path(_DEFAULT).name
    if path.suffix != ".html":
        raise BuildPytorchError(f"--output {path}: the name must end in .html; the JSON is beside")
    if not path.parent.is_dir():
        raise BuildPytorchError(f"--output {path}: no such folder; make it first")
    signs = {
        path: f'content="{pages.GENERATOR}"',
        path.with_suffix(".json"): '"build-pytorch board',
    }
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


def _summary(document: BoardDocument) -> str:
    """Return one line: the number of packages in each state, and the builds that run."""
    states = [row.state for row in document.variants]
    counts = [f"{states.count(state)} {state}" for state in board.STATES if state in states]
    running = [
        f"{row.variant} {row.running.phase or 'waiting'}"
        + (f" [{row.running.done}/{row.running.total}]" if row.running.total else "")
        + (f", about {clock(row.running.left)} left" if row.running.left is not None else "")
        for row in document.variants
        if row.running
    ]
    return "; ".join([f"{counted(len(states), 'variant')}: {', '.join(counts)}", *running])
