"""The lines of the values in a TOML file, and the place of a syntax error.

No TOML parser for Python keeps lines.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.tables import Trail

_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\\?\Z)|"(?:[^"\\\n]|\\.)*"'
    r"|'''.*?(?:'{3,5}|\Z)|'[^'\n]*'"
    r"|#[^\n]*|[][{}\n]|[^]\"'#[{}\n]+",
    re.DOTALL,
)
_KEY: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*(\.?)""")

_DEEPEST: Final = 64
"""Maximum number of parts of a key and of nested brackets. A matrix has six."""


_NUMBER: Final = re.compile(r"(?<![\"'\w])(?:0[xob][0-9a-fA-F_]{1000,}|[0-9_]{1000,})")


class TomlLines:
    """The lines of the values in a TOML text; in one with an error, of those before the error."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Trail, int] = {(): 1}
        self._statements: list[tuple[int, int, Trail]] = []
        self._ends: list[int] = []
        last: dict[Trail, int] = {}  # array of tables -> index of its last table
        table: Trail = ()
        for start, end_, line, statement in _statements(text):
            keys = _keys(statement.lstrip("["))
            if statement.startswith("[") and keys:
                parent: Trail = ()
                for key in keys[:-1]:
                    parent = (*parent, key)
                    parent = (*parent, last[parent]) if parent in last else parent
                table = (*parent, keys[-1])
                if statement.startswith("[["):
                    last[table] = last.get(table, -1) + 1
                    self._lines.setdefault(table, line)
                    table = (*table, last[table])
                trail = table
            else:
                trail = (*table, *keys)
            self._statements.append((start, line, trail))
            self._ends.append(end_)
            for end in range(len(trail), 0, -1):
                self._lines.setdefault(trail[:end], line)

    def of(self, trail: Trail) -> int:
        """Return the first line of the statement that sets a value, or its table if missing."""
        while trail not in self._lines:
            trail = trail[:-1]
        return self._lines[trail]

    def span(self, trail: Trail) -> tuple[int, int] | None:
        """Return the offsets of the first statement of a value or table and after its last one."""
        found = [
            (start, end)
            for (start, _, path), end in zip(self._statements, self._ends, strict=True)
            if path[: len(trail)] == trail
        ]
        return (found[0][0], found[-1][1]) if found else None

    def at(self, offset: int) -> tuple[int, Trail]:
        """Return the line and the path of the statement that holds an offset, or is before it."""
        before = [(line, trail) for start, line, trail in self._statements if start <= offset]
        return before[-1] if before else (1, ())


def excess(text: str) -> tuple[int, str] | None:
    """Return the offset and the kind of what is longer or deeper than in any matrix, or None.

    A parser's time grows with the square of a key's parts; Python prints no number of this length.
    """
    if number := _NUMBER.search(text):
        return number.start(), "a number"
    depth = dots = 0
    if not any(line.count(".") > _DEEPEST for line in text.split("\n")) and (
        text.count("[") + text.count("{") <= _DEEPEST
    ):
        return None
    for token in _TOKEN.finditer(text):
        if token[0] == "\n":
            dots = 0
        elif token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth = max(0, depth - 1)
        elif token[0][0] not in "\"'#":
            dots += token[0].count(".")
        if dots > _DEEPEST:
            return token.start(), "a key"
        if depth > _DEEPEST:
            return token.start(), "a nesting"
    return None


def loose_quote(text: str) -> int:
    """Return the offset of the first quote that begins no text, or the length of the text."""
    end = 0
    for token in _TOKEN.finditer(text):
        if token.start() > end:
            return end
        end = token.end()
    return end


def _statements(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield each table header and each key with its value: offsets, first line and text."""
    depth, start, line = 0, 0, 1
    for token in _TOKEN.finditer(f"{text}\n"):
        if token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth -= 1
        elif token[0] == "\n" and not depth:
            statement = text[start : token.start()]
            if statement.strip() and not statement.lstrip().startswith("#"):
                yield start, token.start(), line, statement.strip()
            line += statement.count("\n") + 1
            start = token.end()
    if rest := text[start:].strip():  # brackets that are not closed
        yield start, len(text), line, rest


def _keys(statement: str) -> list[str]:
    """Return the parts of the dotted key at the start of a statement."""
    keys: list[str] = []
    position, more = 0, "."
    while more and len(keys) <= _DEEPEST and (found := _KEY.match(statement, position)):
        written, more = found.groups()
        with contextlib.suppress(ValueError):  # of an error in the text, such as "\q"
            written = tomllib.loads(f"key = {written}")["key"] if written[0] in "\"'" else written
        keys.append(written)
        position = found.end()
    return keys
