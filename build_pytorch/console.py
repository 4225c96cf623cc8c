"""What people see: colour on a terminal only, plans by group, findings by file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from build_pytorch.changes import Change

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}

_ACTION_COLOURS: Final = {
    "create": "green",
    "rewrite": "yellow",
    "delete": "red",
    "refused": "red",
    "unknown": "yellow",
    "unchanged": "dim",
}


class Screen:
    """A stream to print on, in colour where it is a terminal and NO_COLOR is unset."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        """Print one line."""
        self.stream.write(f"{text}\n")

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, or as it is where the stream has none."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colour and colour else text

    def plan(self, title: str, changes: Sequence[Change]) -> None:
        """Print a plan: a line for each file, one for all that stay as they are in a group."""
        self.line(self.paint(title, "bold"))
        for group, members in _grouped(changes):
            label = f"{group:<6}" if group else ""
            quiet = [change for change in members if change.action == "unchanged"]
            for change in members:
                if change not in quiet:
                    self._row(label, change.action, change.path, change.reason)
            for reason in dict.fromkeys(change.reason for change in quiet):
                same = [change for change in quiet if change.reason == reason]
                what = same[0].path if len(same) == 1 else f"{len(same)} files"
                self._row(label, "unchanged", what, reason)

    def _row(self, label: str, action: str, what: str, reason: str) -> None:
        painted = self.paint(f"{action:<9}", _ACTION_COLOURS.get(action, ""))
        self.line(f"  {label}{painted}  {what}: {reason}")

    def diff(self, text: str) -> None:
        """Print a unified diff."""
        for line in text.splitlines():
            colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            self.line(self.paint(line, colour))

    def table(self, rows: Iterable[Sequence[str]]) -> None:
        """Print rows in columns as wide as their widest cell."""
        rows = [list(row) for row in rows]
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.line("  ".join(cells).rstrip())


def counted(number: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _grouped(changes: Sequence[Change]) -> Iterable[tuple[str, list[Change]]]:
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.group, []).append(change)
    return groups.items()
