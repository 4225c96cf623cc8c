"""Whose code lies where in a library: its symbol tables, read in one pass and kept small.

What a library tells depends on how far it was stripped:

  files     .symtab with FILE symbols: each local function has the source it was compiled from
  names     .symtab without them (strip -S, which Nix does): names only. Most of ATen's kernels
            have internal linkage and no capability in their names, but exist once for each one;
            of other functions with internal linkage nobody knows what they were compiled with
  exported  .dynsym alone (strip): exported functions; the rest of the code has no name
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.inspect.owners import ATEN, OWNERS, owner_of_file, owner_of_symbol

Depth = Literal["files", "names", "exported"]

COMMON: Final = len(OWNERS)
"""Compiled with the variant's flags: C++ that nobody in the table owns."""
FOREIGN: Final = COMMON + 1
"""A C or Fortran function that nobody in the table owns."""
UNKNOWN: Final = COMMON + 2
"""Nothing tells whose it is."""

_CLONE: Final = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv|clone|_omp_fn)\b.*$")
_ANONYMOUS: Final = "_GLOBAL__N_1"
"""How an anonymous namespace is mangled (Itanium C++ ABI, as gcc and clang do it)."""

_LINE: Final = re.compile(
    r"\s*\d+: (?P<value>[0-9a-f]+)\s+(?P<size>\S+) (?P<type>FUNC|IFUNC|FILE|NOTYPE)\s+"
    r"(?P<bind>\w+)\s+(?P<visibility>\w+)\s+(?:\[[^\]]*\]\s+)?(?P<section>\S+) (?P<name>\S+)"
)


class Span(Struct, frozen=True):
    """Code from address `start` up to `end`."""

    start: int
    end: int


class Symbols:
    """The functions of a library: (start, end, owner), by address."""

    def __init__(self, depth: Depth, rows: list[tuple[int, int, int]]) -> None:
        self.depth = depth
        self.starts = array("Q", (row[0] for row in rows))
        self._ends = array("Q", (row[1] for row in rows))
        self._owners = array("B", (row[2] for row in rows))

    def at(self, address: int) -> tuple[int, int]:
        """Whose code an address is, and up to which address that is known.

        In a library with exported names alone, what lies behind the end of a function is unknown.
        """
        index = bisect_right(self.starts, address) - 1
        following = self.starts[index + 1] if index + 1 < len(self.starts) else 1 << 64
        if index < 0:
            return UNKNOWN, following
        if self.depth == "exported":
            end = self._ends[index]
            return (self._owners[index], end) if address < end else (UNKNOWN, following)
        return self._owners[index], following

    def count(self, owner: int) -> int:
        """How many functions somebody owns."""
        return self._owners.count(owner)

    def split(self, code: Span, parts: int) -> list[Span]:
        """The code cut at functions into about so many spans of like size."""
        piece = (code.end - code.start) // parts + 1
        spans: list[Span] = []
        start = code.start
        while code.end - start > piece:
            index = bisect_left(self.starts, start + piece)
            cut = self.starts[index] if index < len(self.starts) else code.end
            if cut >= code.end:
                break
            spans.append(Span(start, cut))
            start = cut
        return [*spans, Span(start, code.end)]


def code(library: Path) -> Span | None:
    """From the first to the last executable section; None where there is no code.

    Raises ToolError.
    """
    said = process.capture(["readelf", "-SW", str(library)]).stdout
    row = r"\] \S+\s+PROGBITS\s+([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+) [0-9a-f]+\s+[A-Z]*X"
    found = [(int(m[1], 16), int(m[1], 16) + int(m[2], 16)) for m in re.finditer(row, said)]
    found = [(start, end) for start, end in found if end > start]
    return Span(min(s for s, _ in found), max(e for _, e in found)) if found else None


def read(library: Path) -> Symbols:
    """Read the symbol tables of a library. Raises ToolError.

    Memory: about 300 bytes a function while reading, none of the names.
    """
    table = _SymbolTable()
    with process.piped(["readelf", "-sW", str(library)]) as out:
        for line in out:
            table.take(line.decode("utf-8", errors="replace"))
    return table.symbols()


class _SymbolTable:
    """Symbol tables while they are read, line by line."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int]] = {}
        self._internal: list[tuple[int, int, tuple[int, ...]]] = []
        """Functions with internal linkage: start, end, and for what may be a kernel the hashes of
        its name and of that of the function which the compiler took it out of."""
        self._copies: Counter[int] = Counter()
        self._has_table = self._has_files = False
        self._file: int | None = None
        """Who owns the source that the following local symbols come from."""

    def take(self, line: str) -> None:
        """Read one line of `readelf -sW`."""
        if line.startswith("Symbol table"):
            self._has_table |= ".symtab" in line
            return
        match = _LINE.match(line)
        if match is None or match["section"] == "UND":
            return
        if match["type"] == "FILE":
            if match["bind"] == "LOCAL":
                self._has_files = True
                owner = owner_of_file(match["name"])
                self._file = OWNERS.index(owner) if owner else None
            return
        start = int(match["value"], 16)
        # Hidden functions stand among the local ones as well, behind some file that is not theirs.
        is_internal = match["bind"] == "LOCAL" and match["visibility"] == "DEFAULT"
        name = match["name"].partition("@")[0]
        self._function(start, start + int(match["size"], 0), name, is_internal=is_internal)

    def _function(self, start: int, end: int, name: str, *, is_internal: bool) -> None:
        found = owner_of_symbol(name)
        if found is not None:
            kind = OWNERS.index(found)
        elif is_internal and self._file is not None:
            kind = self._file
        elif not name.startswith("_Z"):
            kind = FOREIGN
        else:
            kind = COMMON
            if is_internal:
                self._copies[hash(name)] += 1
                may_be_kernel = "2at6native" in name or _ANONYMOUS in name
                keys = (hash(name), hash(_CLONE.sub("", name))) if may_be_kernel else ()
                self._internal.append((start, end, keys))
        # Of several symbols at one address the best tells: an owner, then C++, then C.
        before = self._rows.get(start)
        if before is None or kind < before[1]:
            self._rows[start] = (max(end, before[0]) if before else end, kind)

    def symbols(self) -> Symbols:
        """What all lines together tell."""
        if self._has_table and not self._has_files:
            for start, end, keys in self._internal:
                if self._rows[start][1] == COMMON:
                    is_kernel = any(self._copies[key] > 1 for key in keys)
                    self._rows[start] = (end, OWNERS.index(ATEN) if is_kernel else UNKNOWN)
        rows = sorted((start, end, kind) for start, (end, kind) in self._rows.items())
        bare: Depth = "names" if self._has_table else "exported"
        return Symbols("files" if self._has_files else bare, _with_archives(rows))


def _with_archives(table: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Give the C functions between two functions of one archive to that archive."""
    before = COMMON
    run: list[int] = []
    for index, (_, _, kind) in enumerate(table):
        if kind == FOREIGN:
            run.append(index)
            continue
        if kind == before and kind < COMMON and OWNERS[kind].is_archive:
            for member in run:
                table[member] = (*table[member][:2], kind)
        before = kind
        run = []
    return table
