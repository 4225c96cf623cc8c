"""The lines of the values in a TOML file. No TOML parser for Python keeps them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Trail

_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\\n]|\\.)*"'
    r"|'''.*?'{3,5}|'[^'\n]*'"
    r"|#[^\n]*|[][{}\n]|[^]\"'#[{}\n]+",
    re.DOTALL,
)
_KEY: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*(\.?)""")


class TomlLines:
    """The lines of the values in a valid TOML text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Trail, int] = {(): 1}
        last: dict[Trail, int] = {}  # array of tables -> index of its last table
        table: Trail = ()
        for line, statement in _statements(text):
            keys = _keys(statement.lstrip("["))
            if statement.startswith("["):
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
            for end in range(len(trail), 0, -1):
                self._lines.setdefault(trail[:end], line)

    def of(self, trail: Trail) -> int:
        """Return the first line of the statement that sets a value, or its table if missing."""
        while trail not in self._lines:
            trail = trail[:-1]
        return self._lines[trail]


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each table header and each key with its value, and the line on which it begins."""
    depth, start, line = 0, 0, 1
    for token in _TOKEN.finditer(f"{text}\n"):
        if token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth -= 1
        elif token[0] == "\n" and not depth:
            statement = text[start : token.start()]
            if statement.strip() and not statement.lstrip().startswith("#"):
                yield line, statement.strip()
            line += statement.count("\n") + 1
            start = token.end()


def _keys(statement: str) -> list[str]:
    """Return the parts of the dotted key at the start of a statement."""
    keys, position, more = [], 0, "."
    while more and (found := _KEY.match(statement, position)):
        written, more = found.groups()
        quoted = written[0] in "\"'"
        keys.append(tomllib.loads(f"key = {written}")["key"] if quoted else written)
        position = found.end()
    return keys
