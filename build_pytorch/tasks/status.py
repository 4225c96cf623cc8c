"""`invoke status`: what failed, what runs, and what to do next; a table of few packages."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.results.ledger import Event
    from build_pytorch.results.package_state import PackageState

_FEW = 12  #: packages that are listed without being asked for
_MOST_LINES = 12  #: of the overview
_COLOURS = {"failed": "red", "not built": "dim", "impossible-host": "dim"}
_COLOURS |= {"published": "green", "tested": "green"}
_CLASSES = {"failed": "bad", "published": "good", "tested": "good", "built": "good"}
"""Classes of page.css by state."""
_PLACE = re.compile(r"^\S+?(?:[:(]\d+[):,\d]*)*: (?=(?:fatal |catastrophic )?error\b)")
"""The file and the place in it with which a compiler begins an error."""


class Failure(NamedTuple):
    """Why packages failed that have one cause and reason, the latest first."""

    cause: str  #: id of the log rule; `smoke test`, `inspection`; empty: no rule names it
    reason: str  #: what went wrong: the meaning of the rule, else the error in the log
    at: str  #: when the latest failed, in UTC
    machine: str  #: where the latest failed
    packages: list[str]  #: ids


@command
def status(c: Context, packages: str = "", page: str = "", json: bool = False) -> None:
    """Show what failed, what runs, and what to do next."""
    from build_pytorch.base.console import Screen, counted, print_json
    from build_pytorch.results import ledger
    from build_pytorch.results.package_selection import chosen_states

    matrix, now, screen = load(), datetime.now(UTC), Screen(sys.stdout)
    history = ledger.read(matrix.root)
    states = chosen_states(matrix, packages, history)
    failures = failures_by_cause(states)
    if page:
        _write_page(matrix, states, Path(page).absolute())
        screen.line(f"{page}: written")
    elif json:
        document = {
            "totals": _totals(states),
            "failures": [failure._asdict() for failure in failures],
            "next": list(_next(states, failures)),
            "packages": [_row(state, now) for state in states],
            "skipped": history.skipped,
        }
        print_json(document, sys.stdout)
    elif packages or len(states) <= _FEW:
        _print_table(screen, [_row(state, now) for state in states], now)
    else:
        skipped = f"{counted(history.skipped, 'line')} of {ledger.FILE} cannot be read"
        for line in _overview(states, failures, now, [skipped] if history.skipped else []):
            screen.line(line)


def failures_by_cause(states: Sequence[PackageState]) -> list[Failure]:
    """Return the failures of packages, those of most packages first."""
    groups: dict[tuple[str, str], Failure] = {}
    failed = [(state.failure, state.package.id) for state in states if state.failure]
    for event, name in sorted(failed, key=lambda each: each[0].at, reverse=True):
        cause, reason = why_failed(event)
        new = Failure(cause, reason, event.at, event.where or event.host, [])
        groups.setdefault((cause, reason), new).packages.append(name)
    return sorted(groups.values(), key=lambda group: -len(group.packages))


def why_failed(event: Event) -> tuple[str, str]:
    """Return the cause of a failed build or test, and the reason in words."""
    from build_pytorch.base.console import shortened
    from build_pytorch.build.log_rules import RULES_BY_ID
    from build_pytorch.results.package_state import TEST_NAMES

    if event.event != "ended":
        return TEST_NAMES[event.by or "smoke"], event.reason or "see its report"
    said, unnamed = _PLACE.sub("", event.message), "no log rule names the failure"
    if not said or said.startswith("exit code "):
        said = f"{said}, and {unnamed}" if said else unnamed
    rule = RULES_BY_ID.get(event.cause)
    return event.cause, shortened(rule.meaning if rule else said, 200)


def _write_page(matrix: Matrix, states: Sequence[PackageState], path: Path) -> None:
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
    text = render(matrix, shown).encode()
    outputs.write_output(
        path, text, "a page", lambda old: digest.has_digest(old.decode(errors="replace"))
    )


def _row(state: PackageState, now: datetime) -> dict[str, Any]:
    """Return the state of a package for programs; paths are below the root."""
    from build_pytorch.results.package_state import Mark, moment

    build, last = state.last, state.events[-1] if state.events else None
    seconds = build.seconds if build and build.event == "ended" else None
    if state.built is Mark.BUILDING and build and (since := moment(build.at)):
        seconds = round((now - since).total_seconds(), 3)
    event = state.failure or last
    cause, reason = why_failed(state.failure) if state.failure else ("", state.package.impossible)
    return {
        "id": state.package.id,
        "package": state.package.package,
        "state": state.overall,
        "cause": cause,
        "reason": reason or "",
        "at": event.at if event else "",
        "machine": event.where or event.host if event else "",
        "seconds": seconds,
        "steps": state.steps,
        "recipe": state.package.path,
        "output": state.output,
        "log": state.log,
    }


def _totals(states: Sequence[PackageState]) -> dict[str, int]:
    """Return the number of packages in each state, in the order of states."""
    from build_pytorch.results.package_state import Mark

    found = Counter(state.overall for state in states)
    return {mark: found[mark] for mark in Mark if mark in found}


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
    states: Sequence[PackageState], failures: Sequence[Failure], now: datetime, tail: list[str]
) -> list[str]:
    """Return at most _MOST_LINES lines: counts, failures by cause, what runs, what is next."""
    from build_pytorch.base.console import WIDTH, clock, counted, folded, shortened, some

    head = []
    for noun, is_variant in (("variant", True), ("companion", False)):
        of_kind = [s for s in states if (s.package is s.package.variant) is is_variant]
        counts = ", ".join(f"{number} {state}" for state, number in _totals(of_kind).items())
        head += folded(f"{counted(len(of_kind), noun)}: ", counts) if of_kind else []
    if running := [_row(state, now) for state in states if state.overall == "building"]:
        ids = some([f"{row['id']} ({clock(row['seconds'] or 0)})" for row in running])
        tail = [shortened(f"running: {ids}", WIDTH), *tail]
    if missing := [state.package.path for state in states if not state.digest]:
        tail.append(f"{counted(len(missing), 'recipe')} missing or unreadable: {missing[0]}")
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
    from build_pytorch.base.console import WIDTH, shortened, some
    from build_pytorch.results.ledger import HOST

    what = f"{group.cause}: {group.reason}" if group.cause else group.reason
    when = f"{age} ago" if (age := _age(group.at, now)) else "at an unknown time"
    where = "here" if group.machine in {"", HOST} else f"on {group.machine}"
    yield shortened(f"failed {len(group.packages):>3}  {what}", WIDTH)
    yield shortened(f"{'':10}  {when} {where}: {some(group.packages, 1)}", WIDTH)


def _age(at: str, now: datetime) -> str:
    from build_pytorch.base.console import ago
    from build_pytorch.results.package_state import moment

    since = moment(at)
    return ago((now - since).total_seconds()) if since else ""


def _print_table(screen: Screen, rows: Sequence[dict[str, Any]], now: datetime) -> None:
    """Print a line for each package: state, age, duration, cause or tests."""
    from build_pytorch.base.console import WIDTH, clock, shortened, visible

    ids, width = (max(len(row[name]) for row in rows) for name in ("id", "state"))
    head = f"{'package':<{ids}}  {'state':<{width}}  {'age':>7}  {'took':>8}  "
    screen.line(screen.paint(f"{head}cause or tests", "bold"))
    for row in rows:
        took = "" if row["seconds"] is None else clock(row["seconds"])
        painted = screen.paint(f"{row['state']:<{width}}", _COLOURS.get(row["state"], "yellow"))
        notes = row["cause"] or row["reason"] if row["state"] == "failed" else _tests(row["steps"])
        notes = shortened(visible(notes), max(WIDTH - len(head), len("...")))
        age = _age(row["at"], now)
        screen.line(f"{row['id']:<{ids}}  {painted}  {age:>7}  {took:>8}  {notes}".rstrip())


def _tests(steps: Any) -> str:  # noqa: ANN401 - Steps, which is not imported here
    """Return which tests were done, with the outcome of those that did not pass."""
    tests = {"inspect": steps.inspected, "smoke": steps.tested, "compare": steps.compared}
    done = [n if it == "passed" else f"{n} {it}" for n, it in tests.items() if it != "-"]
    return ", ".join([*done, *(["in the catalog"] if steps.built == "elsewhere" else [])])
