"""The board: the state of every package as one HTML page, and the same data as JSON.

docs/how-to/pages.md lists the keys: the meaning of a key is its `#:` comment.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from build_pytorch.base.console import changed_texts, clock, counted, safe
from build_pytorch.generate import matrix_reference, pages
from build_pytorch.generate.pages import MapCell, ReleaseMap
from build_pytorch.generate.recipes import render_template
from build_pytorch.matrix.model import CompanionPackage
from build_pytorch.results.ledger import Ended, Event, Tested
from build_pytorch.results.package_state import (
    BuiltState,
    OverallState,
    PackageState,
    StepState,
    moment,
)

STATES: Final[dict[OverallState, tuple[str, str]]] = {
    OverallState.BUILDING: ("▶", "A build of it runs."),
    OverallState.FAILED: ("✗", "Its last build or test failed."),
    OverallState.PUBLISHED: ("★", "The result of the current recipe is published."),
    OverallState.TESTED: ("✓", "The result passed an inspection or a smoke test."),
    OverallState.BUILT: ("●", "The current recipe is built and no test has passed yet."),
    OverallState.IMPOSSIBLE: ("-", "No machine has that GPU with that CPU."),
    OverallState.INTERRUPTED: ("‖", "Its last build was interrupted; build it again."),
    OverallState.OUTDATED: ("↻", "Only another recipe than the current one is built."),
    OverallState.NOT_BUILT: ("○", "Nothing is built, or the result is gone."),
}
"""Every state with its sign and its meaning, in the order in which they apply."""
_URGENCY: Final = (
    *(OverallState.FAILED, OverallState.BUILDING, OverallState.INTERRUPTED, OverallState.OUTDATED),
    *(OverallState.NOT_BUILT, OverallState.BUILT, OverallState.TESTED, OverallState.PUBLISHED),
    OverallState.IMPOSSIBLE,
)
"""The states in the order in which a person looks at them."""
STEPS: Final = (
    ("built", "Built"),
    ("inspect", "Inspected"),
    ("smoke", "Smoke test"),
    ("compare", "Compared"),
    ("published", "Published"),
)
"""The steps of a package, each with the head of its column."""
_ROWS: Final = 50
"""Rows of the table that are shown at first."""


class BoardStep(Struct, frozen=True, kw_only=True):
    """One step on the way of a package."""

    outcome: str  #: what became of it: the words of `invoke status`; `-`: nothing yet
    is_done: bool  #: whether it succeeded for the current recipe
    at: str = ""  #: when, in UTC
    detail: str = ""  #: why a test failed, or the organizations of a publication


class BoardFailure(Struct, frozen=True, kw_only=True):
    """Why a package has the state `failed`."""

    what: Literal["build", "inspection", "smoke test"]  #: what failed
    at: str = ""  #: when, in UTC
    cause: str = ""  #: id of the log rule that names the failure
    reason: str  #: what went wrong
    line: str = ""  #: the line of the log that says so
    excerpt: str = ""  #: the end of the log
    fix: str  #: what to do
    log: str = ""  #: the log or the report, below the root


class RunningBuild(Struct, frozen=True, kw_only=True):
    """A build that runs."""

    elapsed: float  #: seconds since it started
    phase: str  #: phase of the build
    done: int  #: steps that are done
    total: int  #: all steps; 0 if unknown
    left: float | None  #: estimate of the seconds that it still takes


class BoardPackage(Struct, frozen=True, kw_only=True):
    """One variant or companion."""

    variant: str  #: id of the package, as commands take it; unique on the board
    package: str  #: package name
    release: str  #: name of the release
    companion: str  #: name of the companion; empty for a variant
    gpu: str  #: key of the GPU architecture; `cpu` without
    isa: str  #: key of the CPU ISA
    family: str  #: the GPU architecture in words
    cpu: str  #: the CPU ISA in words
    platform: str  #: platform
    state: OverallState  #: the one state that the package is in
    reason: str  #: why it can run on no machine
    built: BoardStep  #: whether there is a result of the current recipe
    elsewhere: str  #: where the result is, if not here: a binary cache, or `Flox: NAME`
    inspect: BoardStep  #: inspection of that result
    smoke: BoardStep  #: smoke test of that result
    compare: BoardStep  #: how fast that result is: time / time of another build, the slowest
    published: BoardStep  #: publication of the current recipe
    seconds: float | None  #: how long the build of the newest result took
    running: RunningBuild | None  #: the build that runs now
    failure: BoardFailure | None  #: why the state is `failed`


class BoardDocument(Struct, frozen=True, kw_only=True):
    """The whole board."""

    format: Literal["build-pytorch board 5"] = "build-pytorch board 5"  #: changes with the keys
    at: str  #: when the board was written, in UTC
    name: str  #: name of the checkout's folder
    is_live: bool  #: whether `--watch` keeps the files up to date
    selection: str  #: what was selected; empty for the whole matrix
    variants: tuple[BoardPackage, ...]  #: every package, in the order of the matrix


def board_package(
    state: PackageState, running: RunningBuild | None, failure: BoardFailure | None
) -> BoardPackage:
    """Return the row of a package."""
    package, variant = state.package, state.variant
    organizations = dict.fromkeys(name or "own account" for name in state.organizations)
    return BoardPackage(
        variant=package.id,
        package=package.package,
        release=package.release_name,
        companion=package.name if isinstance(package, CompanionPackage) else "",
        gpu=variant.gpu_key or "cpu",
        isa=variant.cpu_key,
        family=variant.gpu.family if variant.gpu else "No GPU",
        cpu=variant.cpu.title,
        platform=package.platform,
        state=state.overall,
        reason=package.impossible or "",
        built=_step(state.built, state.last, state.elsewhere),
        elsewhere=state.elsewhere,
        inspect=_step(state.inspect, state.inspection),
        smoke=_step(state.smoke, state.smoke_test),
        compare=_step(state.compare, state.comparison, label=state.compare_label),
        published=_step(state.published, state.publication, ", ".join(organizations)),
        seconds=_seconds(state),
        running=running,
        failure=failure,
    )


def _step(
    step: StepState, event: Event | None = None, detail: str = "", label: str = ""
) -> BoardStep:
    if isinstance(event, Tested):
        detail = event.reason
    at = event.at if event else ""
    is_done = step.is_done or step is BuiltState.ELSEWHERE
    return BoardStep(outcome=label or step, is_done=is_done, at=at, detail=detail)


def _seconds(state: PackageState) -> float | None:
    """Return how long the last good build took, if one did more than find the result that one."""
    builds = [e for e in state.events if isinstance(e, Ended) and e.outcome == "built"]
    builds = [build for build in builds if state.output in build.outputs] or builds
    counted = [build for build in builds if build.steps] or builds
    seconds = counted[-1].seconds if counted else -1
    return seconds if 0 <= seconds < 1e8 else None  # noqa: PLR2004 - three years


def json_bytes(document: BoardDocument) -> bytes:
    """Return the board as JSON: secrets masked, control characters escaped as text.

    What others wrote (logs, ledger, reports) is cleaned here for the page as well, since the page
    is made from this JSON.
    """
    return msgspec.json.encode(changed_texts(msgspec.to_builtins(document), safe)) + b"\n"


def _counts(rows: Iterable[BoardPackage]) -> dict[OverallState, int]:
    """Return the number of packages in each state that occurs, in the order of STATES."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in STATES if state in found}


def summary(rows: Sequence[BoardPackage]) -> str:
    """Return one line: the number of packages in each state."""
    counts = ", ".join(f"{number} {state}" for state, number in _counts(rows).items())
    return f"{counted(len(rows), 'package')}: {counts}"


def page(root: Path, data: bytes, json_name: str) -> str:
    """Return the HTML page of a board from its JSON, which lies beside it. Raises TemplateError."""
    board = msgspec.json.decode(data, type=BoardDocument)
    counts = _counts(board.variants)
    by_release = _grouped(board.variants, "release")
    return pages.page(
        root,
        "board",
        board=board,
        json_name=json_name,
        states={state: (*STATES[state], number) for state, number in counts.items()},
        steps=STEPS,
        maps=[_map(name, rows) for (name,), rows in by_release.items()],
        failures=_failures(board.variants),
        shown=_ROWS,
        time=_time,
        took=clock,
    )


def _grouped(rows: Iterable[BoardPackage], *keys: str) -> dict[tuple[str, ...], list[BoardPackage]]:
    groups: dict[tuple[str, ...], list[BoardPackage]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, key) for key in keys), []).append(row)
    return groups


def _map(release: str, rows: Sequence[BoardPackage]) -> ReleaseMap:
    """Return the grid of a release: the GPUs and ISAs of its packages, in their order."""
    cells = _grouped(rows, "gpu", "isa")
    isas = {row.isa: row.cpu for row in rows}
    return ReleaseMap(
        name=release,
        title=summary(rows),
        columns=isas,
        rows=tuple(
            (gpu, family, tuple(_cell(cells.get((gpu, isa), ())) for isa in isas))
            for gpu, family in {row.gpu: row.family for row in rows}.items()
        ),
    )


def _cell(rows: Sequence[BoardPackage]) -> MapCell | None:
    """Return the cell of a variant and of its companions (and of its wrapper), if there is one.

    The second sign is that of the companion that needs a look first.
    """
    if not rows:
        return None
    first, *others = sorted(rows, key=lambda row: bool(row.companion))
    states = [first.state, *sorted({row.state for row in others}, key=_URGENCY.index)[:1]]
    texts = [f"{first.state} {first.reason or first.elsewhere}".strip()]
    texts += [f"{row.companion or row.variant}: {row.state}" for row in others]
    return MapCell(
        state=first.state.replace(" ", "-"),
        name=first.variant,
        text="; ".join(texts),
        link="#" + urlencode({"release": first.release, "gpu": first.gpu, "isa": first.isa}),
        signs=tuple((state.replace(" ", "-"), STATES[state][0]) for state in states),
    )


def _failures(rows: Iterable[BoardPackage]) -> list[list[tuple[BoardPackage, BoardFailure]]]:
    """Return the failures of each cause, the newest first; the most frequent cause first."""
    groups: dict[tuple[str, str], list[tuple[BoardPackage, BoardFailure]]] = {}
    for row in rows:
        if failure := row.failure:
            groups.setdefault((failure.what, failure.cause), []).append((row, failure))
    for group in groups.values():
        group.sort(key=lambda pair: pair[1].at, reverse=True)
    return sorted(groups.values(), key=len, reverse=True)


def _time(text: str) -> str:
    """Return a time of the ledger to the minute in UTC; a text that is none as it is."""
    found = moment(text)
    return f"{found:%Y-%m-%d %H:%M}" if found else text[:40]


def reference(root: Path) -> str:
    """Return the list of every key of the JSON, for docs/how-to/pages.md."""
    comments = matrix_reference.comments_of(sys.modules[__name__])
    kinds = (BoardDocument, BoardPackage, BoardStep, RunningBuild, BoardFailure)
    tables = [(kind.__name__, *comments[kind.__name__]) for kind in kinds]
    return render_template(root, "docs/board.md.j2", tables=tables, states=STATES)
