"""`invoke status`: what failed, what runs, and what to do next; a table of few packages."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.results.ledger import Event
    from build_pytorch.results.package_state import PackageState

_FEW: Final = 12  #: packages that are listed without being asked for
_MOST_CAUSES: Final = 4  #: of failures that are named
_COLOURS: Final = {"failed": "red", "published": "green", "tested": "green", "not built": "dim"}
_CLASSES: Final = {"failed": "bad", "published": "good", "tested": "good", "built": "good"}
"""Classes of page.css by state."""
_NEXT: Final = {
    "built": "invoke inspect built",
    "interrupted": "invoke build interrupted,outdated",
    "outdated": "invoke build interrupted,outdated",
    "tested": "invoke publish tested",
    "not built": "invoke build {}",
}
"""What leads on where nothing failed, by state; the first that applies, with its first package."""
_PLACE: Final = re.compile(r"^\S+?(?:[:(]\d+[):,\d]*)*: (?=(?:fatal |catastrophic )?error\b)")
"""The file and the place in it with which a compiler begins an error."""


class PackageRow(NamedTuple):
    """The state of a package, as `--json` has it. Paths are below the root."""

    id: str
    package: str
    state: str
    cause: str  #: id of the log rule; `smoke test`, `inspection`; empty: no rule names it
    reason: str  #: what went wrong: the meaning of the rule, else the error in the log
    at: str  #: of the failure, else of the last event; UTC
    machine: str
    seconds: float | None  #: of the last build, so far if it runs
    steps: Any
    recipe: str
    output: str
    log: str

    @property
    def age(self) -> str:
        """The age as `5 min`, `3 h` or `12 days`; empty if it is unknown."""
        from build_pytorch.results.package_state import moment

        if (since := moment(self.at)) is None:
            return ""
        minutes = max(0, int((datetime.now(UTC) - since).total_seconds()) // 60)
        for unit, length in (("days", 24 * 60), ("h", 60)):
            if minutes >= 2 * length:
                return f"{minutes // length} {unit}"
        return f"{minutes} min"


@command
def status(c: Context, packages: str = "", page: str = "", json: bool = False) -> None:
    """Show what failed, what runs, and what to do next."""
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.results import ledger
    from build_pytorch.results.package_selection import chosen_states

    matrix, screen = load(), Screen(sys.stdout)
    history = ledger.read(matrix.root)
    states = chosen_states(matrix, packages, history)
    rows = [_row(state) for state in states]
    if page:
        _write_page(matrix, states, Path(page).absolute())
        screen.line(f"{page}: written")
    elif json:
        document = {
            "totals": _totals(rows),
            "next": next_command(rows),
            "packages": [row._asdict() for row in rows],
            "skipped": history.skipped,
        }
        print_json(document, sys.stdout)
    elif packages or len(states) <= _FEW:
        _print_table(screen, rows)
    else:
        _print_overview(screen, rows)
        if history.skipped:
            screen.line(f"lines of {ledger.FILE} that cannot be read: {history.skipped}")
        screen.line(f"next: {next_command(rows)}")


def _row(state: PackageState) -> PackageRow:
    from build_pytorch.results.package_state import moment

    build, event = state.last, state.failure or (state.events[-1] if state.events else None)
    seconds = build.seconds if build and build.event == "ended" else None
    if state.overall == "building" and build and (since := moment(build.at)):
        seconds = round((datetime.now(UTC) - since).total_seconds(), 3)
    cause, reason = _why_failed(state.failure) if state.failure else ("", state.package.impossible)
    return PackageRow(
        id=state.package.id,
        package=state.package.package,
        state=state.overall,
        cause=cause,
        reason=reason or "",
        at=event.at if event else "",
        machine=event.where or event.host if event else "",
        seconds=seconds,
        steps=state.steps,
        recipe=state.package.path,
        output=state.output,
        log=state.log,
    )


def _why_failed(event: Event) -> tuple[str, str]:
    """Return the cause of a failed build or test, and the reason in words."""
    from build_pytorch.base.console import shortened
    from build_pytorch.build.log_rules import RULES_BY_ID
    from build_pytorch.results.package_state import TEST_NAMES

    if event.event != "ended":
        return TEST_NAMES[event.by or "smoke"], event.reason or "see its report"
    rule = RULES_BY_ID.get(event.cause)
    said = rule.meaning if rule else _PLACE.sub("", event.message)
    return event.cause, shortened(said or "no log rule names the failure", 200)


def next_command(rows: Sequence[PackageRow]) -> str:
    """Return the command that leads on."""
    if any(row.steps.recipe == "-" for row in rows):
        return "invoke all"
    if failed := _failed(rows):
        row = failed[0][0]
        is_test = row.cause in {"smoke test", "inspection"}
        return f"invoke {'show' if is_test else 'diagnose'} {row.id}"
    first = {row.state: row.id for row in reversed(rows)}
    commands = (text.format(first[state]) for state, text in _NEXT.items() if state in first)
    return next(commands, "invoke recommend")


def _failed(rows: Sequence[PackageRow]) -> list[list[PackageRow]]:
    """Return what failed of one cause and reason together, those of most packages first."""
    from build_pytorch.base.console import grouped

    failed = sorted((row for row in rows if row.state == "failed"), key=lambda row: row.at)
    groups = grouped(((row.cause, row.reason), row) for row in reversed(failed))
    return sorted(groups.values(), key=len, reverse=True)


def _totals(rows: Sequence[PackageRow]) -> dict[str, int]:
    """Return the number of packages in each state, in the order of states."""
    from build_pytorch.results.package_state import Mark

    found = Counter(row.state for row in rows)
    return {mark: found[mark] for mark in Mark if mark in found}


def _print_overview(screen: Screen, rows: Sequence[PackageRow]) -> None:
    """Print counts, failures by cause, what runs; with what follows at most 15 lines."""
    from build_pytorch.base.console import WIDTH, clock, counted, shortened, some

    counts = ", ".join(f"{number} {state}" for state, number in _totals(rows).items())
    screen.fold(f"{counted(len(rows), 'package')}: ", counts)
    groups = _failed(rows)
    for latest, *others in groups[:_MOST_CAUSES]:
        what = f"{latest.cause}: {latest.reason}" if latest.cause else latest.reason
        where = f" on {latest.machine}" if latest.machine else ""
        screen.line(shortened(f"failed {1 + len(others):>3}  {what}", WIDTH))
        ids = some([latest.id, *(row.id for row in others)])
        screen.line(shortened(f"{'':12}{latest.age} ago{where}: {ids}", WIDTH))
    if rest := sum(map(len, groups[_MOST_CAUSES:])):
        screen.line(f"failed {rest:>3}  of other causes: `invoke status --packages failed`")
    if running := [f"{r.id} ({clock(r.seconds or 0)})" for r in rows if r.state == "building"]:
        screen.fold("running: ", some(running))
    if missing := [row.recipe for row in rows if row.steps.recipe == "-"]:
        screen.line(f"{counted(len(missing), 'recipe')} missing or unreadable: {missing[0]}")


def _print_table(screen: Screen, rows: Sequence[PackageRow]) -> None:
    """Print a line for each package: state, age, duration, cause or tests."""
    from build_pytorch.base.console import WIDTH, clock, shortened, visible

    ids, width = (max(len(getattr(row, name)) for row in rows) for name in ("id", "state"))
    head = f"{'package':<{ids}}  {'state':<{width}}  {'age':>7}  {'took':>8}  cause or tests"
    screen.line(screen.paint(head, "bold"))
    for row in rows:
        steps = row.steps
        tests = {"inspect": steps.inspected, "smoke": steps.tested, "compare": steps.compared}
        notes = ", ".join(f"{name} {mark}" for name, mark in tests.items() if mark != "-")
        if row.state == "failed":
            notes = row.cause or row.reason
        state = screen.paint(f"{row.state:<{width}}", _COLOURS.get(row.state, "yellow"))
        took = "" if row.seconds is None else clock(row.seconds)
        place = f"{row.id:<{ids}}  {state}  {row.age:>7}  {took:>8}"
        room = max(3, WIDTH - len(head) + len("cause or tests"))
        screen.line(f"{place}  {shortened(visible(notes), room)}".rstrip())


def _write_page(matrix: Matrix, states: Sequence[PackageState], path: Path) -> None:
    """Write the page with the states of packages. Raises WriteError."""
    from build_pytorch.base import digest, files
    from build_pytorch.base.errors import WriteError
    from build_pytorch.generate.site_page import State, render

    known = {each.package.id: each.overall for each in states if each.events}
    shown = {
        name: State(mark, f"{mark}, by the ledger", _CLASSES.get(mark, "plain"))
        for name, mark in known.items()
    }
    with files.write_errors(path):
        if path.exists() and not digest.has_digest(files.read_named(path).decode(errors="replace")):
            raise WriteError(f"{path}: not a page of ours and not overwritten; name another file")
        files.write_all(path.parent, {path.name: render(matrix, shown).encode()})
