"""What people see: colour on a terminal only, plans by group, findings by file."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TextIO

Clock = Callable[[], float]

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}

_ACTION_COLOURS: Final = {
    "create": "green",
    "rewrite": "yellow",
    "delete": "red",
    "refused": "red",
    "unknown": "yellow",
    "unchanged": "dim",
}


class Planned(Protocol):
    """A file of a plan, as far as people see it."""

    @property
    def path(self) -> str:
        """Where it is, below the root."""

    @property
    def action(self) -> str:
        """What becomes of it."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def group(self) -> str:
        """What it is shown with."""


class Screen:
    """A stream to print on, in colour where it is a terminal and NO_COLOR is unset."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        """Print one line."""
        write(self.stream, f"{text}\n")

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, or as it is where the stream has none."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colour and colour else text

    def plan(self, title: str, changes: Sequence[Planned]) -> None:
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
        self.line(f"  {label}{painted}  {visible(what)}: {reason}")

    def diff(self, text: str) -> None:
        """Print a unified diff."""
        for line in text.splitlines():
            colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            self.line(self.paint(line, colour))


class ProgressLine:
    """How far a long work is and how long it may still take, on stderr where that is a terminal."""

    def __init__(
        self, what: str, total: int, stream: TextIO = sys.stderr, clock: Clock = time.monotonic
    ) -> None:
        self.what = what
        self.total = total
        self.stream = stream
        self.clock = clock
        self.start = clock()

    def at(self, done: int) -> None:
        """Show that so many are done."""
        if not self.stream.isatty():
            return
        seconds = self.clock() - self.start
        left = f", about {seconds / done * (self.total - done):.0f} s left" if done else ""
        count = f"{done} of {self.total}, " if self.total else ""
        line = f"{self.what}: {count}{seconds:.0f} s{left}"
        self.stream.write(f"\r\x1b[K{line}")
        self.stream.flush()

    def end(self) -> None:
        """Take the line away."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def visible(text: str) -> str:
    """Text from a file with its control characters shown instead of obeyed."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_json(document: object, stream: TextIO) -> None:
    """Print machine output."""
    write(stream, json.dumps(document, indent=2) + "\n")


def write(stream: TextIO, text: str) -> None:
    """Write, whether somebody still reads or not: `| head` does not end the work."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.EIO}:  # nobody reads, or the terminal is gone
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _grouped(changes: Sequence[Planned]) -> Iterable[tuple[str, list[Planned]]]:
    groups: dict[str, list[Planned]] = {}
    for change in changes:
        groups.setdefault(change.group, []).append(change)
    return groups.items()
