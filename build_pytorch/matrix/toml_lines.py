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


_PLACE: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)")
_TWICE: Final = "set twice, first in line {first}; keep one of them"
_QUOTE: Final = "the text is not closed; add the missing quote at its end"
_SYNTAX: Final = "allowed: KEY = VALUE, [TABLE] or # and a comment"
_MEANINGS: Final = {
    # The messages of tomllib in Python 3.11 to 3.14.
    r"Unterminated string|(Illegal|invalid) character '\\n'|Expected [\"']{2,}": _QUOTE,
    "Cannot (declare|overwrite|mutate)|Duplicate inline": _TWICE,
    "Expected '='": f"found a key without a value; {_SYNTAX}",
    r"Invalid value \(at end": "the file ends inside a value; add what is missing, such as ]",
    "Invalid value": "found no value; put a text into quotes, or add the value",
    "Unclosed array": "the list is not closed; add the missing comma or ]",
    "Unclosed inline": "the table is not closed; add the missing comma or }",
    "Expected ']": "the header of the table is not closed; add the missing ]",
    "Expected newline": "found more after the value; quote a text, begin each key on a line",
    "Invalid (statement|initial)": f"found no key; {_SYNTAX}",
    r"Unescaped|Invalid hex|Escaped": (
        "found a backslash that begins no escape sequence; write two of them"
    ),
    "(Illegal|invalid) character": "found a character that TOML does not allow here; remove it",
    "Invalid date": "found a date that does not exist; put a text into quotes",
    "recursion": "nested too deeply to be a matrix; remove brackets",
}


class TomlLines:
    """The lines of the values in a TOML text; in one with an error, of those before the error."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Trail, int] = {(): 1}
        self._statements: list[tuple[int, int, int, Trail]] = []  # offsets, line and path
        last: dict[Trail, int] = {}  # array of tables -> index of its last table
        table: Trail = ()
        for start, end, line, statement in _statements(text):
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
            self._statements.append((start, end, line, trail))
            for length in range(len(trail), 0, -1):
                self._lines.setdefault(trail[:length], line)

    def of(self, trail: Trail) -> int:
        """Return the first line of the statement that sets a value, or its table if missing."""
        while trail not in self._lines:
            trail = trail[:-1]
        return self._lines[trail]

    def span(self, trail: Trail) -> tuple[int, int] | None:
        """Return the offsets of the first statement of a value or table and after its last one."""
        found = [each for each in self._statements if each[-1][: len(trail)] == trail]
        return (found[0][0], found[-1][1]) if found else None

    def at(self, offset: int) -> tuple[int, Trail]:
        """Return the line and the path of the statement that holds an offset, or is before it."""
        before = [(line, trail) for start, _, line, trail in self._statements if start <= offset]
        return before[-1] if before else (1, ())


def syntax_problem(text: str, message: str) -> tuple[int, str]:
    """Return the offset of an error of tomllib, and what is wrong there.

    With `{first}` in the explanation, the error is a key that is set for the second time.
    """
    place = _PLACE.search(message)
    offset = len(text)
    if place and place[1]:
        lines = text.split("\n")[: int(place[1]) - 1]
        offset = sum(len(line) + 1 for line in lines) + int(place[2]) - 1
    known = (meaning for pattern, meaning in _MEANINGS.items() if re.search(pattern, message))
    what = next(known, message)
    return offset, f"not valid TOML: {what}"


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
    while more and (found := _KEY.match(statement, position)):
        written, more = found.groups()
        with contextlib.suppress(ValueError):  # of an error in the text, such as "\q"
            written = tomllib.loads(f"key = {written}")["key"] if written[0] in "\"'" else written
        keys.append(written)
        position = found.end()
    return keys
