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
from build_pytorch.build.build_progress import diagnose
from build_pytorch.build.forecast import LONGEST_BUILD, BuildHistory
from build_pytorch.build.log_reader import ends_below
from build_pytorch.build.log_rules import RULES_BY_ID
from build_pytorch.cli.commands import BoardOptions
from build_pytorch.cli.failures import failure_of, machine_of
from build_pytorch.generate import board, pages
from build_pytorch.generate.board import BoardDocument, BoardFailure, BoardPackage, RunningBuild
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import CompanionPackage
from build_pytorch.results.package_selection import chosen_states
from build_pytorch.results.package_state import PackageState, all_events, moment

_EVERY: Final = 5.0  #: seconds between two looks of --watch
_TAIL: Final = 64 << 10  #: bytes of the end of a log that are read


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
        states = chosen_states(matrix, wanted, all_events(options.root), options.store)
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
        return options.root / paths.STATE / f"board{'-selection' if selection else ''}.html"
    if path.suffix != ".html":
        raise BuildPytorchError(f"--output {path}: the name must end in .html; the JSON is beside")
    generator = f'content="{pages.GENERATOR}"'.encode()
    outputs.check_output(path, "a board", lambda old: generator in old)
    outputs.check_output(
        path.with_suffix(".json"),
        "a board of a selection" if selection else "a board",
        lambda old: b'"build-pytorch board' in old and not (selection and b'"selection":""' in old),
    )
    return path.parent.resolve() / path.name


def board_document(
    root: Path, states: Collection[PackageState], selection: str = "", *, is_live: bool = False
) -> BoardDocument:
    """Return the board of packages; `selection`: what a person asked for, if not for all."""
    events = (event for state in states for event in state.events)
    history = BuildHistory(events, [state.package for state in states])
    return BoardDocument(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        name=root.name,
        is_live=is_live,
        selection=selection,
        variants=tuple(_row(root, state, history) for state in states),
    )


def _row(root: Path, state: PackageState, history: BuildHistory) -> BoardPackage:
    package, variant = state.package, state.variant
    last = state.events[-1] if state.events else None
    took = state.last.seconds if state.last else -1.0
    return BoardPackage(
        variant=package.id,
        package=package.package,
        release=package.release_name,
        companion=package.name if isinstance(package, CompanionPackage) else "",
        gpu=variant.gpu_key or "cpu",
        isa=variant.cpu_key,
        family=variant.gpu.family if variant.gpu else "No GPU",
        cpu=variant.cpu.title,
        state=state.overall,
        reason=package.impossible or "",
        at=last.at if last else "",
        machine=machine_of(last) if last else "",
        built=state.built,
        elsewhere=state.elsewhere,
        inspect=state.inspect,
        smoke=state.smoke,
        compare=state.compare_label,
        published=state.published,
        seconds=took if 0 <= took < LONGEST_BUILD else None,
        running=_running_build(root, state, history) if state.is_building else None,
        failure=_failure(state),
    )


def _running_build(root: Path, state: PackageState, history: BuildHistory) -> RunningBuild | None:
    """Return how far a build is, as the end of its log says, if it can be read.

    A log has no times: where a compiler cache may set the pace, only earlier builds say what is
    left.
    """
    if not (started := state.unfinished):
        return None
    since = moment(started.at)
    elapsed = max(0.0, (datetime.now(UTC) - since).total_seconds()) if since else 0.0
    phase, (done, total) = "", (0, 0)
    with suppress(OSError, LinkError, ValueError):
        head, tail = ends_below(root, started.log, _TAIL)
        seen = diagnose([head, *tail.split(b"\n")], state.package)
        phase, (done, total) = seen.phase, seen.progress or (0, 0)
    found = history.duration(started.subject, started.cores, shared=started.shared)
    left = max(0.0, found[0].likely - elapsed) if found else None
    has_cache = started.shared or state.variant.release.build.cache
    if not found and done and not has_cache:
        left = elapsed * (total - done) / done
    return RunningBuild(elapsed=elapsed, phase=phase, done=done, total=total, left=left)


def _failure(state: PackageState) -> BoardFailure | None:
    """Return why the package failed: its last build, or a test of its result."""
    if not (found := failure_of(state)):
        return None
    id_, line, log = state.package.id, "", state.log
    tests = {"smoke test": state.smoke_test, "inspection": state.inspection}
    if test := tests.get(found.cause):
        log = test.report
        fix = f"read the report, correct the recipe, build again, then `invoke {test.by} {id_}`"
    else:
        line = shortened(state.last.message, 500) if state.last else ""
        rule = RULES_BY_ID.get(found.cause)
        fix = rule.advice(state.variant, log) if rule else f"read the log: `invoke log {id_}`"
        fix += f"; then `invoke build {id_}`"
    return BoardFailure(cause=found.cause, reason=found.reason, line=line, fix=fix, log=log)
