"""Output for people and programs: colour, progress, safe text, JSON.

`write` is the only function that writes to the terminal, except for the live line of rich. It
escapes all control characters but our own colours.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from build_pytorch.base.paths import SCRIPT

if TYPE_CHECKING:
    from rich.status import Status

WIDTH: Final = 80  #: columns that output for people may fill

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
_OUR_ESCAPE: Final = f"\x1b{os.urandom(8).hex()}["
"""Stands for the start of a colour until `write`; text from outside cannot contain it."""
_COMMAND: Final = re.compile("`[^`]*`")
_HARD_SPACE: Final = "\0"
"""Stands for a space in a command while lines are broken; visible text does not contain it."""


class Screen:
    """A stream to print on, in colour if it is a terminal and NO_COLOR is unset."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "", *, is_quoted: bool = False) -> None:
        """Print one line, or several; what is quoted from a file, as it is."""
        if os.environ.get("GITHUB_ACTIONS"):  # such a line would be a command to the CI system
            text = re.sub(r"(?m)^(\s*)(?=::|##\[)", r"\1.", text)
        write(self.stream, f"{text if is_quoted else _as_typed(text)}\n")

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, or unchanged if the stream has no colours."""
        if not (self.colour and colour):
            return text
        return f"{_OUR_ESCAPE}{_COLOURS[colour]}m{text}{_OUR_ESCAPE}0m"

    def fold(self, head: str, text: str, colour: str = "", indent: int = 4) -> None:
        """Print a text as `folded`, after a head in a colour."""
        first, *rest = folded(head, text, indent)
        size = len(visible(head))
        for line in (self.paint(first[:size], colour) + first[size:], *rest):
            self.line(line)

    def plan(
        self,
        rows: Iterable[tuple[str, str, str]],
        colours: Mapping[str, str],
        *,
        verbose: bool,
        alone: Collection[str] = (),
    ) -> None:
        """Print (action, name, reason) of packages or files, together where they differ in name.

        `verbose`: each on its own, as those with an action in `alone`. A reason that has its name
        says ID where there are several.
        """
        groups = grouped(
            (
                (action, name if verbose or action in alone else reason.replace(name, "ID")),
                (name, reason),
            )
            for action, name, reason in rows
        )
        width = max((len(g[0][0]) for g in groups.values() if len(g) == 1), default=0)
        for (action, text), [(name, reason), *others] in groups.items():
            line = f"{name:<{width}}  {reason}"
            if others:
                names = some([name, *(other for other, _ in others)])
                line = f"{1 + len(others)} ({names}): {text}"
            self.fold(f"  {action:<10}  ", line, colours.get(action, "dim"), indent=14)

    def diff(self, text: str) -> None:
        """Print a unified diff."""
        for line in text.removesuffix("\n").split("\n") if text else ():
            colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            self.line(self.paint(line, colour), is_quoted=True)


def folded(head: str, text: str, indent: int = 4) -> list[str]:
    """Return a text after a head as lines of at most 80 columns; later lines are indented.

    A longer word, such as a path, is not broken, nor is a command in backticks: people copy it.
    """
    text = _as_typed(visible(text))
    text = _COMMAND.sub(lambda command: command[0].replace(" ", _HARD_SPACE), text)
    lines = textwrap.wrap(
        visible(head) + text,
        WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_HARD_SPACE, " ") for line in lines] or [""]


def _as_typed(text: str) -> str:
    """Return a text whose commands are of the program that runs: a project has no tasks.py."""
    is_script = sys.argv[0].endswith(SCRIPT)
    return re.sub(r"\binvoke (?=[a-z])", f"{SCRIPT} ", text) if is_script else text


def waiting(what: str) -> Status:
    """Return a line that a terminal shows while a block runs; elsewhere nothing is printed."""
    from rich import console, text  # 45 ms

    terminal = console.Console(stderr=True, force_terminal=sys.stderr.isatty())
    return terminal.status(text.Text(visible(what)))


def visible(text: str, kept: str = "\n") -> str:
    """Return text from outside with control characters, such as ESC, escaped.

    So are other characters that print nothing or change the order of others; `kept` stay.
    """
    if text.isprintable():  # the common case, in C
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """Return a text with at most so many characters; the end of a longer one is left out."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def counted(number: int, noun: str) -> str:
    """Return such as `1 finding` or `2 findings`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the second values of each first one, in the order in which they come."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others."""
    rest = len(names) - most
    return " ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def print_json(document: object, stream: TextIO, indent: int | None = 2) -> None:
    """Print a document for programs: a struct, or what JSON can express."""
    import msgspec  # not above: that it is missing is told on a screen

    text = json.dumps(msgspec.to_builtins(document), indent=indent)  # in ASCII
    write(stream, text.replace("\x7f", "\\u007f") + "\n")


def write(stream: TextIO, text: str) -> None:
    """Write text with control characters escaped, except our colours.

    If the reader is gone (`| head`, a closed terminal), later output is dropped.
    """
    try:
        stream.write("\x1b[".join(map(visible, text.split(_OUR_ESCAPE))))
        stream.flush()
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.EIO}:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
