"""Output for people and programs: colour, progress, safe text, JSON."""

from __future__ import annotations

import atexit
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

Clock = Callable[[], float]

WIDTH: Final = 80
"""Columns that output for people may fill."""

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


class Screen:
    """A stream to print on, in colour if it is a terminal and NO_COLOR is unset."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        """Print one line."""
        write(self.stream, f"{text}\n")

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, or unchanged if the stream has no colours."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colour and colour else text

    def fold(self, head: str, text: str, colour: str = "", indent: int = 4) -> None:
        """Print a text after a head in a colour, in lines of at most 80 columns.

        Later lines are indented. Only a word that is longer, such as a path, is not broken.
        """
        if len(head) + len(text) <= WIDTH and "\n" not in text:
            self.line(f"{self.paint(head, colour)}{text}".rstrip())
            return
        import textwrap

        first, *rest = textwrap.wrap(
            text,
            WIDTH,
            initial_indent=" " * len(head),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        self.line(f"{self.paint(head, colour)}{first[len(head) :]}".rstrip())
        for line in rest:
            self.line(line)

    def diff(self, text: str) -> None:
        """Print a unified diff."""
        for line in text.removesuffix("\n").split("\n") if text else ():
            colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            self.line(self.paint(visible(line), colour))


class ProgressLine:
    """A line on a terminal with a message, a count, the time so far and the time left.

    Nothing is shown on a stream that is not a terminal. `total` is 0 if it is unknown; `what`
    may be changed at any time.
    """

    def __init__(
        self, what: str, total: int, stream: TextIO | None = None, clock: Clock = time.monotonic
    ) -> None:
        self.what = what
        self._progress: Progress | None = None
        if not (stream or sys.stderr).isatty():
            return
        # rich takes 45 ms to import, and most runs have no terminal or nothing to wait for.
        from rich import console, progress

        terminal = console.Console(file=stream or sys.stderr)
        if terminal.is_dumb_terminal:
            return
        counts = (progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.TimeElapsedColumn(),
            *(counts if total else ()),
            console=terminal,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=clock,
        )
        self._progress.add_task(visible(what), total=total or None)
        self._progress.start()
        # rich hides the cursor; an exception must not leave it so
        atexit.register(self._progress.stop)

    def at(self, done: int = 0) -> None:
        """Show that `done` of `total` are done, and the time."""
        if self._progress:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=done, description=visible(self.what))
            self._progress.refresh()

    def end(self) -> None:
        """Remove the line."""
        if self._progress:
            self._progress.stop()
            atexit.unregister(self._progress.stop)


def visible(text: str) -> str:
    """Return text from outside with control characters, such as ESC, escaped; newlines stay."""
    if text.isprintable():  # the common case, in C
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """Return such as `1 finding` or `2 findings`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_json(document: object, stream: TextIO) -> None:
    """Print a document for programs."""
    write(stream, json.dumps(document, indent=2) + "\n")


def write(stream: TextIO, text: str) -> None:
    """Write text; if the reader is gone (`| head`, a closed terminal), later output is dropped."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.EIO}:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
