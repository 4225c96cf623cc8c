"""`invoke board`: the state of all packages as one HTML page and as JSON."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from build_pytorch.base import files, outputs, paths
from build_pytorch.base.console import Screen, shortened
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError, LinkError
from build_pytorch.build.build_display import TimedBuild, earlier_seconds, kind_of, remaining
from build_pytorch.build.build_progress import LogDiagnosis, diagnose
from build_pytorch.build.log_reader import ends_below
from build_pytorch.build.log_rules import RULES
from build_pytorch.cli.commands import BoardOptions
from build_pytorch.generate import board, pages
from build_pytorch.generate.board import BoardDocument, BoardFailure, RunningBuild
from build_pytorch.matrix import matrix_reader
from build_pytorch.results.evidence import subject_of
from build_pytorch.results.ledger import Started
from build_pytorch.results.package_selection import chosen_states
from build_pytorch.results.package_state import PackageState, all_events, moment

_EVERY: Final = 5.0  #: seconds between two looks of --watch
_TAIL: Final = 64 << 10  #: bytes of the end of a log that are read
_EXCERPT: Final = 20  #: lines of a log that are shown
_RULES: Final = {rule.id: rule for rule in RULES}


def run(options: BoardOptions) -> int:
    """Write the board; with --watch, again as long as it runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    wanted = options.selection
    named = (*wanted.variants, wanted.release, *wanted.gpu, *wanted.isa, *wanted.state)
    selection = " ".join(filter(None, named))
    path = _place(options, selection)
    screen = Screen(sys.stderr)
    summary = ""

    def write(*, is_live: bool) -> None:
        nonlocal summary
        events = all_events(options.root)
        states = chosen_states(matrix, wanted, events, store=options.store)
        document = board_document(options.root, states, selection, is_live=is_live)
        data = board.json_bytes(document)
        json_name = path.with_suffix(".json").name
        page = board.page(options.root, data, json_name).encode()
        with files.write_errors():
            outputs.make_state(options.root)
            files.write_all(path.parent, {path.name: page, json_name: data}, sync=False)
        if summary != (summary := board.summary(document.variants)):
            screen.line(f"{summary}; open {os.path.relpath(path)}")

    try:
        write(is_live=options.watch)
        while options.watch:
            time.sleep(_EVERY)
            write(is_live=True)
    except KeyboardInterrupt:
        if not options.watch:
            raise
        write(is_live=False)
        screen.line("no longer kept up to date")
    return EXIT_OK


def _place(options: BoardOptions, selection: str) -> Path:
    """Return the path of the page. Raises BuildPytorchError for a wrong --output.

    A selection has a file of its own, and never replaces the board of the whole matrix.
    """
    path = options.output
    if path is None:
        name = "board-selection.html" if selection else "board.html"
        return options.root / paths.STATE / name
    if path.suffix != ".html":
        raise BuildPytorchError(f"--output {path}: the name must end in .html; the JSON is beside")
    generator = f'content="{pages.GENERATOR}"'.encode()
    outputs.check_output(path, "a board", lambda old: generator in old)
    data = path.with_suffix(".json")
    outputs.check_output(data, "a board", lambda old: b'"build-pytorch board' in old)
    if selection:
        what = "a board of a selection"
        outputs.check_output(data, what, lambda old: b'"selection":""' not in old)
    return path.parent.resolve() / path.name


def board_document(
    root: Path, states: Collection[PackageState], selection: str = "", *, is_live: bool = False
) -> BoardDocument:
    """Return the board of packages; `selection`: what a person asked for, if not for all."""
    events = [event for state in states for event in state.events]
    earlier = earlier_seconds(events, map(_timed_build, states))
    rows = []
    for state in states:
        before = earlier.get(subject_of(state.package))
        running = _running_build(root, state, before) if state.is_building else None
        failure = _failure(root, state)
        rows.append(board.board_package(state, running, failure))
    return BoardDocument(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        name=root.name,
        is_live=is_live,
        selection=selection,
        variants=tuple(rows),
    )


def _timed_build(state: PackageState) -> TimedBuild:
    """Return what decides how long the next build takes: with seeds, if the last one had them."""
    begun = [event for event in state.events if isinstance(event, Started)]
    reads_seeds = bool(begun) and begun[-1].shared
    return TimedBuild(subject_of(state.package), reads_seeds, kind_of(state.package))


def _running_build(root: Path, state: PackageState, before: float | None) -> RunningBuild | None:
    """Return how far a build is; `before`: the seconds of an earlier build."""
    if not (started := state.unfinished):
        return None
    since = moment(started.at)
    elapsed = max(0.0, (datetime.now(UTC) - since).total_seconds()) if since else 0.0
    seen = _diagnosis(root, started.log, state)
    done, total = seen.progress if seen and seen.progress else (0, 0)
    left = remaining(elapsed, done, total, elapsed, before)
    phase = seen.phase if seen else ""
    return RunningBuild(elapsed=elapsed, phase=phase, done=done, total=total, left=left)


def _failure(root: Path, state: PackageState) -> BoardFailure | None:
    """Return why the package failed: its last build, or a test of its result."""
    if state.failure == "build":
        return _failed_build(root, state)
    test = state.smoke_test if state.failure == "smoke test" else state.inspection
    if not (test and state.failure):
        return None
    command = f"invoke {test.by} {state.package.id}"
    return BoardFailure(
        what="inspection" if test.by == "inspect" else "smoke test",
        at=test.at,
        reason=test.reason or "see its report",
        fix=f"read the report, correct the recipe, build again, then `{command}`",
        log=test.report,
    )


def _failed_build(root: Path, state: PackageState) -> BoardFailure | None:
    if not (last := state.last):
        return None
    diagnosis, rule = _diagnosis(root, state.log, state), _RULES.get(last.cause)
    fix = rule.fix if rule else "read the end of the log, or `invoke diagnose LOG`"
    return BoardFailure(
        what="build",
        at=last.at,
        cause=last.cause,
        reason=rule.meaning if rule else "a reason that no log rule names",
        line=shortened(last.message, 500),
        excerpt="\n".join(diagnosis.tail[-_EXCERPT:]) if diagnosis else "",
        fix=f"{fix.replace('LOG', state.log)}; then `invoke build {state.package.id}`",
        log=state.log,
    )


def _diagnosis(root: Path, log: str, state: PackageState) -> LogDiagnosis | None:
    """Return what the end of a log says, or None if it cannot be read."""
    with suppress(OSError, LinkError, ValueError):
        head, tail = ends_below(root, log, _TAIL)
        return diagnose([head, *tail.split(b"\n")], state.package)
    return None
