"""`invoke status`: what failed, what runs, and what to do next."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.results.package_state import PackageState

_FEW: Final = 12  #: packages that are listed each without being asked for
_MOST: Final = 4  #: causes that are named
_NEWS: Final = {"failed", "interrupted", "outdated"}
"""States of packages that are named without being asked for, with what runs."""
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


@command
def status(c: Context, packages: str = "", page: str = "", json: bool = False) -> None:
    """Show what failed, what runs, and what to do next."""
    from build_pytorch.base.console import Screen, counted, print_json
    from build_pytorch.base.errors import NothingSelectedError
    from build_pytorch.results import ledger
    from build_pytorch.results.package_selection import chosen_states
    from build_pytorch.results.package_state import Mark

    matrix, screen = load(), Screen(sys.stdout)
    history = ledger.read(matrix.root)
    try:
        states = chosen_states(matrix, packages, history)
    except NothingSelectedError as nothing:
        states = []
        if not json:
            screen.line(str(nothing))
            return
    states.sort(key=lambda state: list(Mark).index(state.overall))
    totals = Counter(state.overall.value for state in states)
    if page:
        _write_page(matrix, states, Path(page).absolute())
        screen.line(f"{page}: written")
    elif json:
        document = [
            {
                "id": state.package.id,
                "state": state.overall,
                "reason": _reason(state),
                "failure": state.failure,
                "last_build": state.last,
                "steps": state.steps,
                "output": state.output,
                "log": state.log,
            }
            for state in states
        ]
        sums = {"totals": totals, "next": _next_command(states), "skipped": history.skipped}
        print_json({**sums, "packages": document}, sys.stdout)
    else:
        counts = (f"{number} {state}" for state, number in totals.items())
        screen.fold(f"{counted(len(states), 'package')}: ", ", ".join(counts))
        if packages or len(states) <= _FEW:
            rows = [(state.overall, state.package.id, _reason(state)) for state in states]
            screen.plan(rows, _COLOURS, verbose=True)
        else:
            _print_news(screen, states)
        if history.skipped:
            screen.line(f"lines of {ledger.FILE} that cannot be read: {history.skipped}")
        screen.line(f"next: {_next_command(states)}")


def _print_news(screen: Screen, states: Sequence[PackageState]) -> None:
    """Print what runs and, by cause, what keeps packages from going on.

    With the counts and the next command at most 15 lines.
    """
    from build_pytorch.base.console import WIDTH, counted, grouped, shortened, some, visible

    if running := [it.package.id for it in states if it.overall == "building"]:
        screen.line(shortened(f"  building    {len(running):>3}  {some(running)}", WIDTH))
    if missing := [it.package.path for it in states if not it.digest]:
        screen.line(f"{counted(len(missing), 'recipe')} missing or unreadable: {missing[0]}")
    news = [it for it in states if it.overall in _NEWS and it.digest]
    groups = grouped(((it.overall, _reason(it)), it.package.id) for it in news)
    for (mark, reason), ids in list(groups.items())[:_MOST]:
        head = f"  {mark:<11} {len(ids):>3}  "
        said = shortened(visible(reason), WIDTH - len(head))
        screen.line(screen.paint(head, _COLOURS.get(mark, "yellow")) + said)
        screen.line(shortened(f"{'':{len(head)}}{some(ids)}", WIDTH))
    if rest := list(groups.values())[_MOST:]:
        number = sum(map(len, rest))
        screen.line(f"  {number} more, of other causes: `invoke status --packages all`")


def _reason(state: PackageState) -> str:
    """Return why a package is in its state: the cause of a failure, or its tests."""
    from build_pytorch.base.console import shortened
    from build_pytorch.build.log_rules import RULES_BY_ID
    from build_pytorch.results.package_state import TEST_NAMES

    if not state.digest:
        return f"recipe missing or unreadable: {state.package.path}"
    if failure := state.failure:
        if failure.by:
            return f"{TEST_NAMES[failure.by]}: {failure.reason or 'see its report'}"
        rule = RULES_BY_ID.get(failure.cause)
        said = f"{rule.id}: {rule.meaning}" if rule else _PLACE.sub("", failure.message)
        return shortened(said or "no log rule names the failure", 200)
    steps = state.steps
    tests = {name: steps[name] for name in ("inspected", "tested", "compared")}
    known = ", ".join(f"{name}: {mark}" for name, mark in tests.items() if mark != "-")
    return known or state.package.impossible or ("not tested" if state.output else "no result")


def _next_command(states: Sequence[PackageState]) -> str:
    """Return the command that leads on."""
    if not all(state.digest for state in states):
        return "invoke all"
    first = {state.overall.value: state for state in reversed(states)}
    if (failed := first.get("failed")) and failed.failure and failed.failure.by:
        return f"invoke show {failed.package.id}"
    commands = (text.format(first[s].package.id) for s, text in _NEXT.items() if s in first)
    return next(commands, "invoke recommend")


def _write_page(matrix: Matrix, states: Sequence[PackageState], path: Path) -> None:
    """Write the page with the states of packages. Raises WriteError."""
    from build_pytorch.base import digest, files
    from build_pytorch.base.errors import WriteError
    from build_pytorch.generate.site_page import State, render

    marks = {state.package.id: state.overall.value for state in states if state.events}
    classes = {"red": "bad", "green": "good", "": "plain"}  # of page.css
    shown = {
        name: State(mark, f"{mark}, by the ledger", classes[_COLOURS.get(mark, "")])
        for name, mark in marks.items()
    }
    with files.write_errors(path):
        old = files.read_named(path).decode(errors="replace") if path.exists() else None
        if old is not None and digest.is_intact(old) is None:
            raise WriteError(f"{path}: not a page of ours and not overwritten; name another file")
        files.write_all(path.parent, {path.name: render(matrix, shown).encode()})
