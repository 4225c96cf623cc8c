"""The board: the state of every variant as one HTML page, and the same data as JSON.

docs/reference/board.md is generated from the structs: the meaning of a key is its `#:` comment.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base.console import counted, masked, visible
from build_pytorch.generate import matrix_reference, pages
from build_pytorch.generate.recipes import render_file

BoardState = Literal[
    "building",
    "failed",
    "published",
    "tested",
    "built",
    "interrupted",
    "outdated",
    "not built",
    "impossible-host",
]

STATES: Final[dict[BoardState, tuple[str, str]]] = {
    "building": ("▶", "A build of it runs."),
    "failed": ("✗", "Its last build or test failed, or its recipe has an error."),
    "published": ("★", "The result of the current recipe is published."),
    "tested": ("✓", "The result passed an inspection or a smoke test."),
    "built": ("●", "The current recipe is built and no test has passed yet."),
    "interrupted": ("‖", "Its last build was interrupted; build it again."),
    "outdated": ("↻", "Only another recipe than the current one is built."),
    "not built": ("○", "Nothing is built, or the result is gone."),
    "impossible-host": ("-", "No machine has that GPU with that CPU."),
}
"""Every state with its sign and its meaning, in the order of the page."""


class BoardStep(Struct, frozen=True, kw_only=True):
    """One step on the way of a variant."""

    outcome: str = "-"  #: what became of it: the words of `invoke status`; `-`: nothing yet
    is_done: bool = False  #: whether it succeeded for the current recipe
    at: str = ""  #: when, in UTC
    detail: str = ""  #: the GPU of a smoke test, the organizations of a publication, a reason


class BoardBuild(Struct, frozen=True, kw_only=True):
    """The build that made the newest result of a variant."""

    at: str = ""  #: when it ended, in UTC
    seconds: float | None = None  #: how long it took
    peak_memory: int | None = None  #: bytes; null if it was not measured
    where: str = ""  #: the remote builder, or `this machine`
    backend: str = ""  #: `flox`, `nix` or `remote`
    cores: int = 0  #: compile jobs; 0 if unknown
    size: int | None = None  #: bytes of the result in the store; null if it is not there


class BoardFailure(Struct, frozen=True, kw_only=True):
    """Why a variant has the state `failed`."""

    what: str  #: `recipe`, `build`, `inspection` or `smoke test`
    at: str = ""  #: when, in UTC
    cause: str = ""  #: id of the log rule that names the failure, or of the check
    reason: str  #: what went wrong
    line: str = ""  #: the line of the log that says so
    excerpt: str = ""  #: the end of the log
    fix: str  #: what to do
    log: str = ""  #: the log or the report, below the root


class RunningBuild(Struct, frozen=True, kw_only=True):
    """A build that runs."""

    since: str  #: when it started, in UTC
    elapsed: float  #: seconds since then
    phase: str = ""  #: phase of the build
    done: int = 0  #: steps that are done
    total: int = 0  #: all steps; 0 if unknown
    left: float | None = None  #: estimate of the seconds that it still takes
    message: str = ""  #: last line of its log
    log: str = ""  #: its log, below the root


class BoardEvent(Struct, frozen=True, kw_only=True):
    """One event in the history of a variant."""

    at: str  #: when, in UTC
    what: str  #: such as `build`, `inspection`, `smoke test`, `publication`
    outcome: str  #: such as `built`, `failed`, `passed`
    seconds: float | None = None  #: how long a build took
    detail: str = ""  #: machine, reason or organization


class BoardVariant(Struct, frozen=True, kw_only=True):
    """One variant."""

    package: str  #: package name
    variant: str  #: id of the variant or companion, as commands take it; unique on the board
    release: str  #: name of the release
    gpu: str  #: key of the GPU architecture; `cpu` without
    isa: str  #: key of the CPU ISA
    title: str  #: GPU family and CPU ISA in words
    platform: str  #: platform
    state: BoardState  #: the one state that the variant is in
    reason: str = ""  #: why it can run on no machine
    recipe: BoardStep  #: whether the recipe is what the matrix yields
    verified: BoardStep  #: whether the recipe passed verification
    built: BoardStep  #: whether there is a result of the current recipe
    inspected: BoardStep  #: inspection of that result
    smoke: BoardStep  #: smoke test of that result
    published: BoardStep  #: publication of the current recipe
    build: BoardBuild | None = None  #: the build that made the newest result
    running: RunningBuild | None = None  #: the build that runs now
    failure: BoardFailure | None = None  #: why the state is `failed`
    history: tuple[BoardEvent, ...] = ()  #: the newest events, newest first
    earlier: int = 0  #: number of older events, which are in the ledger


class BoardDocument(Struct, frozen=True, kw_only=True):
    """The whole board."""

    format: Literal["build-pytorch board 1"] = "build-pytorch board 1"  #: changes with the keys
    at: str  #: when the board was written, in UTC
    name: str  #: name of the checkout's folder
    is_live: bool  #: whether `--watch` keeps the files up to date
    ledger_lines: int  #: events of these variants in the ledger
    variants: tuple[BoardVariant, ...]  #: every variant, in the order of the matrix


def json_bytes(document: BoardDocument) -> bytes:
    """Return the board as JSON: secrets masked, control characters escaped as text.

    What others wrote (logs, ledger, reports) is cleaned here for the page as well, since the page
    is made from this JSON.
    """
    raw = msgspec.json.decode(masked(msgspec.json.encode(document)))
    return msgspec.json.encode(_visible(raw)) + b"\n"


def _visible(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_visible(each) for each in value]
    if isinstance(value, dict):
        return {key: _visible(each) for key, each in value.items()}
    return value


def page(root: Path, data: bytes, json_name: str) -> str:
    """Return the HTML page of a board from its JSON, which lies beside it. Raises TemplateError."""
    document = msgspec.json.decode(data, type=BoardDocument)
    rows = document.variants
    counts = Counter(row.state for row in rows)
    return pages.page(
        root,
        "board",
        board=document,
        json_name=json_name,
        empty=BoardBuild(),
        states={name: (*STATES[name], counts[name]) for name in STATES},
        totals=_totals(rows),
        filters={
            "release": _distinct(row.release for row in rows),
            "gpu": _distinct(row.gpu for row in rows),
            "isa": _distinct(row.isa for row in rows),
            "state": [name for name in STATES if counts[name]],
        },
        plots=list(_plots(rows)),
        show={
            "time": _moment,
            "day": lambda text: _moment(text)[:10],
            "took": duration,
            "size": size,
            "spark": _spark,
        },
    )


def reference_page(root: Path) -> str:
    """Return docs/reference/board.md: every key of the JSON."""
    comments = matrix_reference.comments_of(sys.modules[__name__])
    tables = [
        (kind.__name__, *comments[kind.__name__])
        for kind in (
            *(BoardDocument, BoardVariant, BoardStep, BoardBuild, RunningBuild),
            *(BoardFailure, BoardEvent),
        )
    ]
    return render_file(root, "docs/board.md.j2", tables=tables, states=STATES)


def duration(seconds: float | None) -> str:
    """Return such as `45 s`, `12 min` or `3 h 05 min`; a dash if unknown."""
    if seconds is None:
        return "-"
    if seconds < 90:  # noqa: PLR2004 - below, minutes say too little
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"


def size(number: float | None) -> str:
    """Return bytes as such as `512 MiB` or `12.3 GiB`; a dash if unknown."""
    if number is None:
        return "-"
    if number < 1 << 20:
        return f"{number / (1 << 10):.0f} KiB"
    if number < 1 << 30:
        return f"{number / (1 << 20):.0f} MiB"
    return f"{number / (1 << 30):.1f} GiB".replace(".0 ", " ")


def _moment(text: str) -> str:
    """Return a time of the ledger to the minute in UTC; one that is none as it is."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return text[:40]


def _distinct(values: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _totals(rows: Sequence[BoardVariant]) -> list[tuple[str, int, int]]:
    """Return the steps, each with the number of variants that did it and that can."""
    real = [row for row in rows if row.state != "impossible-host"]
    steps = {
        "recipe current": (rows, [row.recipe for row in rows]),
        "verified": (rows, [row.verified for row in rows]),
        "built": (real, [row.built for row in real]),
        "inspected": (real, [row.inspected for row in real]),
        "smoke-tested": (real, [row.smoke for row in real]),
        "published": (real, [row.published for row in real]),
    }
    return [
        (name, sum(step.is_done for step in found), len(among))
        for name, (among, found) in steps.items()
    ]


def _plots(rows: Sequence[BoardVariant]) -> Iterator[dict[str, Any]]:
    """Yield the plots: a line for each GPU architecture, a dot for each variant."""
    built = [(row, row.build) for row in rows if row.build]
    yield from _plot("Build duration", duration, 3600.0, [(r, b.seconds) for r, b in built])
    gib = float(1 << 30)
    yield from _plot("Size of the result", size, gib, [(r, b.size) for r, b in built])
    memory = [(r, b.peak_memory) for r, b in built]
    yield from _plot("Peak memory of the build", size, gib, memory, has_sum=False)


def _plot(
    title: str,
    show: Callable[[float], str],
    unit: float,
    pairs: Sequence[tuple[BoardVariant, float | None]],
    *,
    has_sum: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield one plot, or none without values. Positions are percentages, heights pixels."""
    known = [(row, value) for row, value in pairs if value is not None]
    if not known:
        return
    values = [value for _, value in known]
    ticks = scale(max(values), unit)

    def place(value: float) -> str:
        return f"{100 * value / ticks[-1]:.2f}"

    lines: dict[str, list[dict[str, str]]] = {}
    for row, value in known:
        dot = {"x": place(value), "text": f"{row.variant}: {show(value)}"}
        lines.setdefault(row.gpu, []).append(dot)
    middle = statistics.median(values)
    total = f", {show(sum(values))} in all" if has_sum else ""
    yield {
        "title": title,
        "lines": [(gpu, 34 + 24 * number, lines[gpu]) for number, gpu in enumerate(lines)],
        "height": 34 + 24 * len(lines),
        "ticks": [(place(tick), show(tick) if tick else "0") for tick in ticks],
        "median": place(middle),
        "summary": f"{counted(len(values), 'variant')}: {show(min(values))} to "
        f"{show(max(values))}, median {show(middle)}{total}",
    }


def scale(highest: float, unit: float) -> list[float]:
    """Return 0 and two to four round numbers, the last at least `highest`.

    Round are 1, 2 and 5 times a power of ten of `unit`; below it, of a sixtieth or a 1024th.
    """
    while highest < unit and unit > 1:
        unit /= 60 if unit in {3600.0, 60.0} else 1024
    power = 10.0 ** math.floor(math.log10(max(highest, unit) / unit))
    steps = [unit * power * factor for factor in (0.25, 0.5, 1, 2, 2.5, 5)]
    step = next((s for s in steps if highest / s <= 4), steps[-1])  # noqa: PLR2004 - see above
    return [step * number for number in range(max(2, math.ceil(highest / step)) + 1)]


def _spark(row: BoardVariant) -> dict[str, str] | None:
    """Return the paths of the bars of a variant's builds, oldest first; failed ones apart."""
    builds = [event for event in reversed(row.history) if event.seconds is not None]
    if not builds:
        return None
    longest = max(event.seconds or 0 for event in builds) or 1
    paths = {"good": "", "bad": ""}
    for number, event in enumerate(builds):
        height = max(2, round(16 * (event.seconds or 0) / longest))
        kind = "good" if event.outcome == "built" else "bad"
        paths[kind] += f"M{4 * number} {16 - height}h3V16h-3z"
    return {**paths, "width": str(4 * len(builds))}
