"""`invoke status`: what failed, what runs, and what to do next; a table of few packages."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.results.package_state import PackageState
    from build_pytorch.tasks.failures import Failure

_FEW = 12  #: packages that are listed without being asked for
_MOST_LINES = 12  #: of the overview
_COLOURS = {"failed": "red", "not built": "dim", "impossible-host": "dim"}
_COLOURS |= {"published": "green", "tested": "green"}


@command
def status(c: Context, packages: str = "", page: str = "", json: bool = False) -> None:
    """Show what failed, what runs, and what to do next."""
    from build_pytorch.base.console import Screen, counted, print_json
    from build_pytorch.results import ledger
    from build_pytorch.results.package_selection import chosen_states
    from build_pytorch.tasks.failures import failures_by_cause

    matrix, now = load(), datetime.now(UTC)
    history = ledger.read(matrix.root)
    states = chosen_states(matrix, packages, history)
    failures, screen = failures_by_cause(states), Screen(sys.stdout)
    if page:
        _write_page(matrix, states, page)
        screen.line(f"{page}: written")
    elif json:
        document = {
            "totals": _totals([state for state in states if _is_variant(state)]),
            "failures": failures,
            "next": list(_next(states, failures)),
            "packages": [_row(state, now) for state in states],
            "skipped": history.skipped,
        }
        print_json(document, sys.stdout)
    elif packages or len(states) <= _FEW:
        _print_table(screen, states, now)
    else:
        skipped = f"{counted(history.skipped, 'line')} of {ledger.FILE} cannot be read"
        for line in _overview(states, failures, now, skipped if history.skipped else ""):
            screen.line(line)


def _write_page(matrix: Matrix, states: Sequence[PackageState], place: str) -> None:
    """Write the page with the states of packages. Raises WriteError."""
    from build_pytorch.base import digest, outputs
    from build_pytorch.generate.site_page import State, render

    shown = {
        each.package.id: State(
            each.overall, f"{each.overall}, by the ledger", _CLASSES.get(each.overall, "plain")
        )
        for each in states
        if each.events
    }
    outputs.write_output(
        Path(place).absolute(),
        render(matrix, shown).encode(),
        "a page of this command",
        lambda old: digest.has_digest(old.decode(errors="replace")),
    )


_CLASSES = {"failed": "bad", "published": "good", "tested": "good", "built": "good"}
"""Classes of page.css by state."""


def _row(state: PackageState, now: datetime) -> dict[str, Any]:
    """Return the state of a package for programs; paths are below the root."""
    from build_pytorch.tasks.failures import failure_of, machine_of

    failure, last = failure_of(state), state.events[-1] if state.events else None
    return {
        "id": state.package.id,
        "package": state.package.package,
        "state": state.overall,
        "cause": failure.cause if failure else "",
        "reason": failure.reason if failure else state.package.impossible or "",
        "at": failure.at if failure else last.at if last else "",
        "machine": failure.machines[0] if failure else machine_of(last) if last else "",
        "seconds": _seconds(state, now),
        "steps": state.steps,
        "recipe": state.package.path,
        "output": state.output,
        "log": state.log,
    }


def _seconds(state: PackageState, now: datetime) -> float | None:
    """Return how long the last build took, or the present one takes so far."""
    from build_pytorch.results.package_state import Mark, moment

    build = state.last
    if state.built is Mark.BUILDING and build and (since := moment(build.at)):
        return round((now - since).total_seconds(), 3)
    return build.seconds if build and build.event == "ended" else None


def _is_variant(state: PackageState) -> bool:
    return state.package is state.package.variant


def _totals(states: Sequence[PackageState]) -> dict[str, int]:
    from build_pytorch.results.package_state import Mark

    found = Counter(state.overall for state in states)
    return {state: found[state] for state in Mark if state in found}


def _next(states: Sequence[PackageState], failures: Sequence[Failure]) -> Iterator[str]:
    """Yield the commands that lead on: the first that applies, with what follows it."""
    first = {state.overall.replace(" ", "-"): state.package.id for state in reversed(states)}
    if any(not state.digest for state in states):
        yield "invoke all"
    elif failures:
        from build_pytorch.build.build_obstacles import wrong_cpu

        is_test = failures[0].cause in {"smoke test", "inspection"}
        yield f"invoke {'show' if is_test else 'diagnose'} {failures[0].packages[0]}"
        if any(s.overall == "failed" and not wrong_cpu(s.package.variant) for s in states):
            yield "invoke build failed"
    elif "built" in first:
        yield "invoke inspect built"
    elif {"interrupted", "outdated"} & set(first):
        yield "invoke build interrupted,outdated"
    elif "tested" in first:
        yield "invoke publish tested"
    elif "not-built" in first:
        yield from ("invoke recommend", f"invoke build {first['not-built']}")


def _overview(
    states: Sequence[PackageState], failures: Sequence[Failure], now: datetime, skipped: str
) -> list[str]:
    """Return at most _MOST_LINES lines: counts, failures by cause, what runs, what is next."""
    from build_pytorch.base.console import WIDTH, clock, counted, folded, shortened, some

    head, tail = [], []
    for noun, is_variant in (("variant", True), ("companion", False)):
        of_kind = [s for s in states if _is_variant(s) is is_variant]
        counts = ", ".join(f"{number} {state}" for state, number in _totals(of_kind).items())
        head += folded(f"{counted(len(of_kind), noun)}: ", counts) if of_kind else []
    if running := [state for state in states if state.overall == "building"]:
        ids = some([f"{s.package.id} ({clock(_seconds(s, now) or 0)})" for s in running])
        tail.append(shortened(f"running: {ids}", WIDTH))
    if missing := [state.package.path for state in states if not state.digest]:
        tail.append(f"{counted(len(missing), 'recipe')} missing or unreadable: {missing[0]}")
    tail += [skipped] if skipped else []
    tail += [f"next: {line}" for line in _next(states, failures)]
    left = _MOST_LINES - len(head) - len(tail)
    shown = failures if 2 * len(failures) <= left else failures[: (left - 1) // 2]
    middle = [line for group in shown for line in _group_lines(group, now)]
    if rest := failures[len(shown) :]:
        number = sum(len(group.packages) for group in rest)
        causes = counted(len(rest), "more cause")
        middle.append(f"failed {number:>3}  {causes}: `invoke status --packages failed`")
    return [*head, *middle, *tail]


def _group_lines(group: Failure, now: datetime) -> Iterator[str]:
    """Yield two lines about failures of one cause: why, and when, where and what."""
    from build_pytorch.base.console import WIDTH, ago, shortened, some
    from build_pytorch.results.package_state import moment
    from build_pytorch.tasks.failures import place

    what = f"{group.cause}: {group.reason}" if group.cause else group.reason
    at = moment(group.at)
    when = f"{ago((now - at).total_seconds())} ago" if at else "at an unknown time"
    others = f" and {len(group.machines) - 1} more" if len(group.machines) > 1 else ""
    where = f"{place(group.machines[0])}{others}"
    yield shortened(f"failed {len(group.packages):>3}  {what}", WIDTH)
    yield shortened(f"{'':10}  {when} {where}: {some(group.packages, 1)}", WIDTH)


def _print_table(screen: Screen, states: Sequence[PackageState], now: datetime) -> None:
    """Print a line for each package: state, age, duration, cause or tests."""
    from build_pytorch.base.console import WIDTH, ago, clock, shortened, visible
    from build_pytorch.results.package_state import moment

    rows = [_row(state, now) for state in states]
    ids, width = (max(len(row[name]) for row in rows) for name in ("id", "state"))
    head = f"{'package':<{ids}}  {'state':<{width}}  {'age':>7}  {'took':>8}  "
    screen.line(screen.paint(f"{head}cause or tests", "bold"))
    for row in rows:
        at = moment(row["at"])
        age = ago((now - at).total_seconds()) if at else ""
        took = "" if row["seconds"] is None else clock(row["seconds"])
        painted = screen.paint(row["state"], _COLOURS.get(row["state"], "yellow"))
        painted += " " * (width - len(row["state"]))
        notes = row["cause"] or row["reason"] if row["state"] == "failed" else _tests(row)
        notes = shortened(visible(notes), max(WIDTH - len(head), len("...")))
        screen.line(f"{row['id']:<{ids}}  {painted}  {age:>7}  {took:>8}  {notes}".rstrip())


def _tests(row: dict[str, Any]) -> str:
    """Return which tests were done, with the outcome of those that did not pass."""
    steps = row["steps"]
    tests = {"inspect": steps.inspected, "smoke": steps.tested, "compare": steps.compared}
    done = [
        name if step == "passed" else f"{name} {step}"
        for name, step in tests.items()
        if step != "-"
    ]
    return ", ".join([*done, *(["in the catalog"] if steps.built == "elsewhere" else [])])
