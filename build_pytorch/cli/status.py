"""`invoke status`: what failed, what runs, and what to do next; a table where one is asked for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import (
    WIDTH,
    Screen,
    ago,
    clock,
    counted,
    folded,
    grouped,
    print_json,
    shortened,
    some,
    visible,
)
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.build.build_obstacles import wrong_cpu
from build_pytorch.cli.commands import StatusOptions
from build_pytorch.cli.failures import (
    Failure,
    failure_of,
    failures_by_cause,
    machine_of,
    place,
)
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import CompanionPackage
from build_pytorch.results import ledger
from build_pytorch.results.package_selection import chosen_states
from build_pytorch.results.package_state import Mark, PackageState, Steps, moment

_FEW: Final = 12  #: packages that are listed without being asked for
_MOST_LINES: Final = 12  #: of the overview
_COLOURS: Final = {
    Mark.FAILED: "red",
    Mark.NOT_BUILT: "dim",
    Mark.IMPOSSIBLE: "dim",
    Mark.PUBLISHED: "green",
    Mark.TESTED: "green",
}


class StatusRow(Struct, frozen=True, kw_only=True):
    """The state of one variant or companion. Paths are below the root of the checkout."""

    variant: str  #: id of the package
    package: str
    state: Mark
    cause: str  #: why it failed: id of the log rule, `smoke test`, `inspection`
    reason: str  #: what went wrong, or why no machine can run it
    at: str  #: when it got into this state, in UTC; empty: never built
    machine: str  #: where
    seconds: float | None  #: how long the last build took, or the present one takes so far
    steps: Steps
    recipe: str  #: path
    output: str  #: store path of the result
    log: str  #: path of the log of the last build


class StatusDocument(Struct, frozen=True, kw_only=True):
    """What --json prints."""

    at: str
    totals: dict[Mark, int]  #: of variants
    failures: tuple[Failure, ...]
    next: tuple[str, ...]  #: commands
    variants: tuple[StatusRow, ...]
    companions: tuple[StatusRow, ...]  #: those that are named, or that the ledger knows
    skipped: int  #: lines of the ledger that could not be read


def run(options: StatusOptions) -> int:
    """Print the state of packages. Raises BuildPytorchError for a wrong selection."""
    matrix, now = matrix_reader.load(options.root), datetime.now(UTC)
    history = ledger.read(options.root)
    states = chosen_states(matrix, options.selection, history)
    failures = failures_by_cause(states)
    document = StatusDocument(
        at=now.isoformat(timespec="seconds"),
        totals=_totals([state for state in states if state.package is state.package.variant]),
        failures=failures,
        next=tuple(_next(states, failures)),
        variants=tuple(_row(s, now) for s in states if s.package is s.package.variant),
        companions=tuple(_row(s, now) for s in states if s.package is not s.package.variant),
        skipped=history.skipped,
    )
    screen = Screen(sys.stdout)
    if options.json:
        print_json(document, sys.stdout)
    elif not options.selection.is_narrow and len(states) > _FEW:
        for line in _overview(states, document, now):
            screen.line(line)
    else:
        _print_table(screen, [*document.variants, *document.companions], now)
    return EXIT_OK


def _row(state: PackageState, now: datetime) -> StatusRow:
    package, failure, build = state.package, failure_of(state), state.last
    last = state.events[-1] if state.events else None
    seconds = build.seconds if build and build.event == "ended" else None
    if state.built is Mark.BUILDING and build and (since := moment(build.at)):
        seconds = round((now - since).total_seconds(), 3)
    return StatusRow(
        variant=package.id,
        package=package.package,
        state=state.overall,
        cause=failure.cause if failure else "",
        reason=failure.reason if failure else package.impossible or "",
        at=failure.at if failure else last.at if last else "",
        machine=failure.machines[0] if failure else machine_of(last) if last else "",
        seconds=seconds,
        steps=state.steps,
        recipe=package.path,
        output=state.output,
        log=state.log,
    )


def _totals(states: Sequence[PackageState]) -> dict[Mark, int]:
    found = Counter(state.overall for state in states)
    return {state: found[state] for state in Mark if state in found}


def _next(states: Sequence[PackageState], failures: Sequence[Failure]) -> list[str]:
    """Return the commands that lead on: the first that applies, with what follows it."""
    if any(not state.digest for state in states):
        return ["invoke all"]
    by_state = grouped((state.overall, state.package.id) for state in states)
    if failures:
        is_test = failures[0].cause in {"smoke test", "inspection"}
        command = "show" if is_test else "diagnose"
        failed = (state for state in states if state.overall is Mark.FAILED)
        is_here = not all(wrong_cpu(state.package.variant) for state in failed)
        again = ["invoke build --failed"] if is_here else []
        return [f"invoke {command} {failures[0].packages[0]}", *again]
    if Mark.BUILT in by_state:
        return ["invoke inspect --state built"]
    if Mark.INTERRUPTED in by_state or Mark.OUTDATED in by_state:
        return ["invoke build --state interrupted --state outdated"]
    if Mark.TESTED in by_state:
        return ["invoke publish --state tested"]
    if Mark.NOT_BUILT in by_state:
        return ["invoke recommend", f"invoke build {by_state[Mark.NOT_BUILT][0]}"]
    return []


def _overview(states: Sequence[PackageState], document: StatusDocument, now: datetime) -> list[str]:
    """Return at most _MOST_LINES lines: counts, failures by cause, what runs, what is next."""
    head, tail = [], []
    for noun, kind in (("variant", False), ("companion", True)):
        of_kind = [s for s in states if isinstance(s.package, CompanionPackage) is kind]
        totals = _totals(of_kind).items()
        counts = ", ".join(f"{number} {state}" for state, number in totals)
        head += folded(f"{counted(len(of_kind), noun)}: ", counts) if of_kind else []
    rows = (*document.variants, *document.companions)
    if running := [row for row in rows if row.state is Mark.BUILDING]:
        ids = some([f"{row.variant} ({clock(row.seconds or 0)})" for row in running])
        tail.append(shortened(f"running: {ids}", WIDTH))
    if missing := [state.package.path for state in states if not state.digest]:
        tail.append(f"{counted(len(missing), 'recipe')} missing or unreadable: {missing[0]}")
    if document.skipped:
        tail.append(f"{counted(document.skipped, 'line')} of {ledger.FILE} cannot be read")
    tail += [f"next: {command}" for command in document.next]
    left = _MOST_LINES - len(head) - len(tail)
    shown = document.failures if 2 * len(document.failures) <= left else ()
    shown = shown or document.failures[: (left - 1) // 2]
    middle = [line for group in shown for line in _group_lines(group, now)]
    if rest := document.failures[len(shown) :]:
        number = sum(len(group.packages) for group in rest)
        causes = counted(len(rest), "more cause")
        middle.append(f"failed {number:>3}  {causes}: `invoke status --state failed`")
    return [*head, *middle, *tail]


def _group_lines(group: Failure, now: datetime) -> tuple[str, str]:
    """Return two lines about failures of one cause: why, and when, where and what."""
    what = f"{group.cause}: {group.reason}" if group.cause else group.reason
    at = moment(group.at)
    when = f"{ago((now - at).total_seconds())} ago" if at else "at an unknown time"
    others = f" and {len(group.machines) - 1} more" if len(group.machines) > 1 else ""
    second = f"{when} {place(group.machines[0])}{others}: {some(group.packages, 1)}"
    lines = (f"failed {len(group.packages):>3}  {what}", f"{'':10}  {second}")
    return shortened(lines[0], WIDTH), shortened(lines[1], WIDTH)


def _print_table(screen: Screen, rows: Sequence[StatusRow], now: datetime) -> None:
    """Print a line for each package: state, age, duration, cause or tests."""
    if not rows:
        screen.line("no package is all of that")
        return
    ids, states = (max(len(getattr(row, name)) for row in rows) for name in ("variant", "state"))
    head = f"{'variant':<{ids}}  {'state':<{states}}  {'age':>7}  {'took':>8}  "
    screen.line(screen.paint(f"{head}cause or tests", "bold"))
    for row in rows:
        at = moment(row.at)
        age = ago((now - at).total_seconds()) if at else ""
        took = "" if row.seconds is None else clock(row.seconds)
        state = screen.paint(row.state, _COLOURS.get(row.state, "yellow"))
        state += " " * (states - len(row.state))
        notes = row.cause or row.reason if row.state is Mark.FAILED else _tests(row)
        notes = shortened(visible(notes), max(WIDTH - len(head), len("...")))
        screen.line(f"{row.variant:<{ids}}  {state}  {age:>7}  {took:>8}  {notes}".rstrip())


def _tests(row: StatusRow) -> str:
    steps = row.steps
    tests = {"inspect": steps.inspected, "smoke": steps.tested, "compare": steps.compared}
    done = [n if s is Mark.PASSED else f"{n} {s}" for n, s in tests.items() if s is not Mark.NO]
    done += ["in the catalog"] if steps.built is Mark.ELSEWHERE else []
    return ", ".join(done)
