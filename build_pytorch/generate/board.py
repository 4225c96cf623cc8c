"""The board: the state of every package as one HTML page, and the same data as JSON.

docs/how-to/pages.md lists the keys: the meaning of a key is its `#:` comment.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from build_pytorch.base.console import changed_texts, clock, counted, grouped, safe
from build_pytorch.generate import matrix_reference, pages
from build_pytorch.generate.pages import MapCell, ReleaseMap
from build_pytorch.generate.recipes import render_template
from build_pytorch.results.package_state import OverallState, moment

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
_STEPS: Final = ("built", "inspect", "smoke", "compare", "published")
_ROWS: Final = 50  #: rows of the table that are shown at first


class BoardFailure(Struct, frozen=True, kw_only=True):
    """Why a package has the state `failed`."""

    cause: str  #: id of the log rule, `smoke test` or `inspection`; empty: no rule names it
    reason: str  #: what went wrong
    line: str  #: the line of the log that says so
    fix: str  #: what to do
    log: str  #: the log or the report, below the root


class RunningBuild(Struct, frozen=True, kw_only=True):
    """A build that runs."""

    elapsed: float  #: seconds since it started
    phase: str  #: phase of the build
    done: int  #: steps that are done
    total: int  #: all steps; 0 if unknown
    left: float | None  #: estimate of the seconds that it still takes


class BoardPackage(Struct, frozen=True, kw_only=True):
    """One variant or companion."""

    variant: str  #: id of the package
    package: str  #: package name
    release: str  #: name of the release
    companion: str  #: name of the companion; empty for a variant
    gpu: str  #: key of the GPU architecture; `cpu` without
    isa: str  #: key of the CPU ISA
    family: str  #: the GPU architecture in words
    cpu: str  #: the CPU ISA in words
    state: OverallState  #: its state
    reason: str  #: why it can run on no machine
    at: str  #: when its last build or test ended
    machine: str  #: where
    built: str  #: whether the current recipe has a result, as `invoke status` says it
    elsewhere: str  #: where the result is, if not here: a binary cache, or `Flox: NAME`
    inspect: str  #: inspection of that result
    smoke: str  #: smoke test of that result
    compare: str  #: how fast that result is: time / time of another build, the slowest
    published: str  #: publication of the current recipe
    seconds: float | None  #: how long the last build took
    running: RunningBuild | None  #: the build that runs now
    failure: BoardFailure | None  #: why the state is `failed`


class BoardDocument(Struct, frozen=True, kw_only=True):
    """The whole board."""

    format: Literal["build-pytorch board 5"] = "build-pytorch board 5"  #: changes with the keys
    at: str  #: when it was written
    name: str  #: name of the checkout's folder
    is_live: bool  #: whether `--watch` keeps the files up to date
    selection: str  #: what was selected; empty for the whole matrix
    variants: tuple[BoardPackage, ...]  #: every package


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
    releases = _grouped(board.variants, "release")
    failed = sorted(
        filter(attrgetter("failure"), board.variants), key=attrgetter("at"), reverse=True
    )
    failures = _grouped(failed, "failure.cause", "failure.reason").values()
    return pages.page(
        root,
        "board",
        board=board,
        json_name=json_name,
        states={state: (*STATES[state], n) for state, n in _counts(board.variants).items()},
        steps=_STEPS,
        maps=[_map(name, rows) for (name,), rows in releases.items()],
        failures=sorted(failures, key=len, reverse=True),
        shown=_ROWS,
        time=_time,
        took=clock,
    )


def _grouped(rows: Iterable[BoardPackage], *keys: str) -> dict[tuple[str, ...], list[BoardPackage]]:
    return grouped((tuple(attrgetter(key)(row) for key in keys), row) for row in rows)


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

    The second sign is that of the companion that failed, or that is least advanced.
    """
    if not rows:
        return None
    first, *others = sorted(rows, key=lambda row: bool(row.companion))
    ranks = {state: rank for rank, state in enumerate(STATES)} | {OverallState.FAILED: len(STATES)}
    states = [first.state, *sorted({row.state for row in others}, key=ranks.__getitem__)[-1:]]
    texts = [f"{first.state} {first.reason or first.elsewhere}".strip()]
    texts += [f"{row.companion or row.variant}: {row.state}" for row in others]
    return MapCell(
        state=first.state.replace(" ", "-"),
        name=first.variant,
        text="; ".join(texts),
        link="#" + urlencode({"release": first.release, "gpu": first.gpu, "isa": first.isa}),
        signs=tuple((state.replace(" ", "-"), STATES[state][0]) for state in states),
    )


def _time(text: str) -> str:
    """Return a time of the ledger to the minute in UTC; a text that is none as it is."""
    found = moment(text)
    return f"{found:%Y-%m-%d %H:%M}" if found else text[:40]


def reference(root: Path) -> str:
    """Return the list of every key of the JSON, for docs/how-to/pages.md."""
    comments = matrix_reference.comments_of(sys.modules[__name__])
    kinds = (BoardDocument, BoardPackage, RunningBuild, BoardFailure)
    tables = [(kind.__name__, *comments[kind.__name__]) for kind in kinds]
    return render_template(root, "docs/board.md.j2", tables=tables, states=STATES)
