"""`invoke status`: what failed, what runs, and what to do next."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from invoke.context import Context

from build_pytorch.base.console import Screen, counted, grouped, print_json, shortened, some
from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.results.package_state import PackageState

_NEWS: Final = {"building", "failed", "interrupted", "outdated"}  #: named without being asked for
_COLOURS: Final = {"failed": "red", "published": "green", "tested": "green", "built": "green"}
_NEXT: Final = {
    "failed": "invoke diagnose {}",
    "built": "invoke inspect built",
    "interrupted": "invoke build interrupted,outdated",
    "outdated": "invoke build interrupted,outdated",
    "tested": "invoke publish tested",
    "not built": "invoke build {}",
}
"""What leads on, by state; the first that applies, with its first package."""
_PLACE: Final = re.compile(r"^\S+?(?:[:(]\d+[):,\d]*)*: (?=(?:fatal |catastrophic )?error\b)")
"""The file and the place in it with which a compiler begins an error."""
_OF_STATE: Final = ("failure", "last", "steps", "output", "log")  #: keys of the JSON


@command
def status(c: Context, packages: str = "", page: str = "", json: bool = False) -> None:
    """Show what failed, what runs, and what to do next."""
    from build_pytorch.results import ledger
    from build_pytorch.results.package_state import chosen_states

    matrix, screen = load(), Screen(sys.stdout)
    history = ledger.read(matrix.root)
    states = chosen_states(matrix, packages, history)
    totals = Counter(state.overall.value for state in states)
    if page:
        _write_page(matrix, states, Path(page).absolute())
        screen.line(f"{page}: written")
    elif json:
        rows = [
            {"id": state.package.id, "state": state.overall, "reason": _reason(state)}
            | {name: getattr(state, name) for name in _OF_STATE}
            for state in states
        ]
        sums = {"totals": totals, "next": _next_command(states), "skipped": history.skipped}
        print_json({**sums, "packages": rows}, sys.stdout)
    if page or json:
        return
    counts = ", ".join(f"{number} {state}" for state, number in totals.items())
    screen.fold(f"{counted(len(states), 'package')}: ", counts)
    # Without names 15 lines: so many characters of a cause, names of packages, causes.
    most, few, several = (200, len(states), len(states)) if packages else (56, 1, 5)
    groups = grouped(
        ((state.overall.value, shortened(_reason(state), most)), state.package.id)
        for state in states
        if packages or state.overall in _NEWS or not state.digest
    )
    for (mark, reason), ids in list(groups.items())[:several]:
        screen.fold(f"  {mark:<10}  ", f"{some(ids, few)}: {reason}", _COLOURS.get(mark, ""), 14)
    if len(groups) > several:
        screen.line(f"  {len(groups) - several} more causes: `invoke status --packages all`")
    if history.skipped:
        screen.line(f"lines of {ledger.FILE} that cannot be read: {history.skipped}")
    screen.line(f"next: {_next_command(states)}")


def _reason(state: PackageState) -> str:
    """Return why a package is in its state: the cause of a failure, or its tests."""
    from build_pytorch.build.log_rules import RULES_BY_ID
    from build_pytorch.results.package_state import TEST_NAMES

    if not state.digest:
        return "recipe missing or unreadable; run `invoke all`"
    if failure := state.failure:
        if failure.by:
            return f"{TEST_NAMES[failure.by]}: {failure.reason or 'see its report'}"
        rule = RULES_BY_ID.get(failure.cause)
        said = f"{rule.id}: {rule.meaning}" if rule else _PLACE.sub("", failure.message)
        return said or "no log rule names the failure"
    quiet = {"yes", "-", state.overall}
    known = ", ".join(f"{name}: {mark}" for name, mark in state.steps.items() if mark not in quiet)
    return known or state.package.impossible or ("not tested" if state.output else "no result")


def _next_command(states: Sequence[PackageState]) -> str:
    """Return the command that leads on."""
    first = {state.overall.value: state for state in reversed(states)}
    if (failed := first.get("failed")) and failed.failure and failed.failure.by:
        return f"invoke show {failed.package.id}"
    commands = (text.format(first[s].package.id) for s, text in _NEXT.items() if s in first)
    return next(commands, "invoke recommend")


def _write_page(matrix: Matrix, states: Sequence[PackageState], path: Path) -> None:
    """Write the page with the states of packages. Raises WriteError."""
    from build_pytorch.base import digest, errors, files
    from build_pytorch.generate.site_page import State, render

    classes = {"red": "bad", "green": "good", None: "plain"}  # of page.css
    marks = {state.package.id: state.overall for state in states if state.events}
    shown = {
        name: State(mark, f"{mark}, by the ledger", classes[_COLOURS.get(mark)])
        for name, mark in marks.items()
    }
    with files.write_errors(path):
        old = files.read_named(path).decode(errors="replace") if path.exists() else None
        if old is not None and digest.is_intact(old) is None:
            raise errors.WriteError(f"{path}: no page of ours and not overwritten; name another")
        files.write_all(path.parent, {path.name: render(matrix, shown).encode()})
