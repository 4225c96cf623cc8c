"""What instructions a library holds, and in whose code: a disassembly that is streamed.

    readelf -sW  ->  whose code lies where
    objdump -d   ->  1 MiB of text at a time  ->  instructions that are not baseline  ->  counts

A libtorch_cpu.so disassembles to several GB of text, of which never more than a block is held.
Where a library is large, several objdump work on a span of it each.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.inspect.isa import Features, Rules
from build_pytorch.inspect.symbols import COMMON, UNKNOWN, Depth, Span, Symbols, code, read

_BLOCK: Final = 1 << 20
_WORTH_A_SPAN: Final = 32 << 20
"""Bytes of code: below it, loading the symbols again costs more than a second core saves."""
_MOST_SPANS: Final = 4
"""Each objdump holds the section and the symbols (0.4 GiB for libtorch_cpu.so), and our own part
of the work is one core's for about three of them."""
_KEPT: Final = 2000
"""Functions above the ISA that are kept by name, in each span; all are counted."""

_REMEMBERED: Final = 200_000
"""Instructions whose features are remembered: operands are without end, memory is not."""

_HEADER: Final = re.compile(rb"\n([0-9a-f]{8,16}) <([^\n]*)>:\n")

Tell = Callable[[int], None]
"""Told how many more bytes of code are done."""


class Above(Struct, frozen=True):
    """A function with instructions above the ISA."""

    function: str
    """Mangled."""
    owner: int
    """An index into owners.OWNERS, or one of the marks of symbols."""
    features: tuple[str, ...]
    instructions: int


class Tally:
    """What was counted: by owner, instructions of each set of features, and what is above."""

    def __init__(self) -> None:
        self.instructions = 0
        self.found: dict[int, Counter[Features]] = {}
        self.above: list[Above] = []
        self.functions_above: Counter[int] = Counter()
        self.holders: Counter[tuple[int, str]] = Counter()
        """How many functions of an owner hold a feature."""

    def add(self, other: Tally) -> None:
        """Take another span's counts in."""
        self.instructions += other.instructions
        for owner, counts in other.found.items():
            self.found.setdefault(owner, Counter()).update(counts)
        self.above += other.above
        self.functions_above.update(other.functions_above)
        self.holders.update(other.holders)

    def count(
        self, owner: int, function: bytes, counts: Counter[Features], beyond: set[Features]
    ) -> None:
        """Count the instructions of one function, `beyond` those sets that the ISA lacks."""
        self.found.setdefault(owner, Counter()).update(counts)
        for feature in frozenset().union(*counts):
            self.holders[owner, feature] += 1
        high = [features for features in counts if features in beyond]
        if high:
            self.functions_above[owner] += 1
            if len(self.above) < _KEPT:
                names = tuple(sorted({name for features in high for name in features}))
                number = sum(counts[features] for features in high)
                name = function.decode("utf-8", errors="replace")
                self.above.append(Above(name, owner, names, number))


class Scan(Struct, frozen=True, kw_only=True):
    """A library that was disassembled."""

    library: Path
    depth: Depth
    """What its symbols tell; see symbols."""
    size: int
    """Bytes of code."""
    tally: Tally
    functions: int = 0
    """How many functions its symbols tell."""
    common_functions: int = 0
    """How many functions were compiled with the variant's flags, as far as the symbols tell."""
    seconds: float = 0.0


def scan(library: Path, objdump: str, rules: Rules, tell: Tell) -> Scan:
    """Disassemble a library and count what is above baseline, and above what is allowed.

    Raises ToolError.
    """
    begin = time.monotonic()
    whole = code(library)
    if whole is None:
        return Scan(library=library, depth="files", size=0, tally=Tally())
    symbols = read(library)
    size = whole.end - whole.start
    parts = max(1, min(os.cpu_count() or 1, _MOST_SPANS, size // _WORTH_A_SPAN))
    reader = _Reader((objdump, str(library)), rules, symbols, tell)
    tally = Tally()
    with ThreadPoolExecutor(max_workers=parts) as pool:
        try:
            for part in pool.map(reader.read, symbols.split(whole, parts)):
                tally.add(part)
        except BaseException:  # the pool waits for its threads: let them end
            reader.stop.set()
            raise
    return Scan(
        library=library,
        depth=symbols.depth,
        size=size,
        tally=tally,
        functions=len(symbols.starts),
        common_functions=symbols.count(COMMON),
        seconds=time.monotonic() - begin,
    )


class _Reader:
    """Reads spans of one library; several may be read at once."""

    def __init__(
        self, program_and_library: tuple[str, str], rules: Rules, symbols: Symbols, tell: Tell
    ) -> None:
        self.objdump, self.library = program_and_library
        self.rules = rules
        self.symbols = symbols
        self.tell = tell
        self.stop = threading.Event()
        self._known: dict[tuple[bytes, bytes], Features] = {}
        self._beyond: set[Features] = set()

    def read(self, span: Span) -> Tally:
        """Disassemble a span."""
        argv = [self.objdump, "-d", "--no-show-raw-insn"]
        argv += [f"--start-address={span.start:#x}", f"--stop-address={span.end:#x}"]
        tally = Tally()
        function = _Function(span.start, b"", self.symbols)
        told = span.start
        with process.piped([*argv, self.library]) as out:
            for text in _blocks(out.read):
                if self.stop.is_set():
                    break
                tally.instructions += text.count(b":\t")
                position = 0
                for header in _HEADER.finditer(text):
                    self._take(function, text, position, header.start(), tally)
                    function.end(tally, self._beyond)
                    function = _Function(int(header[1], 16), header[2], self.symbols)
                    # The line break that ends a header may begin the next one.
                    position = header.end() - 1
                self._take(function, text, position, len(text), tally)
                self.tell(max(0, function.start - told))
                told = max(told, function.start)
            function.end(tally, self._beyond)
        self.tell(span.end - told)
        return tally

    def _take(self, function: _Function, text: bytes, start: int, end: int, tally: Tally) -> None:
        if self.symbols.depth != "exported":
            for pair in self.rules.isa.interesting.findall(text, start, end):
                if features := self._features(pair):
                    function.counts[features] += 1
            return
        for match in self.rules.isa.interesting.finditer(text, start, end):
            if features := self._features((match[1], match[2])):
                line = text.rfind(b"\n", 0, match.start()) + 1
                address = int(text[line : text.index(b":", line)], 16)
                if address >= function.known_to:
                    function.end(tally, self._beyond)
                    function.move(address)
                function.counts[features] += 1

    def _features(self, pair: tuple[bytes, bytes]) -> Features:
        features = self._known.get(pair)
        if features is None:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            features = self.rules.isa.classify(pair[0].decode(), pair[1].decode("ascii", "replace"))
            self._known[pair] = features
            if features - self.rules.allowed:
                self._beyond.add(features)
        return features


class _Function:
    """The function that is being read."""

    def __init__(self, start: int, name: bytes, symbols: Symbols) -> None:
        self.start = start
        self.name = name
        self.counts: Counter[Features] = Counter()
        self._symbols = symbols
        self.owner, self.known_to = symbols.at(start)

    def move(self, address: int) -> None:
        """Go on behind what is known of it."""
        self.owner, self.known_to = self._symbols.at(address)

    def end(self, tally: Tally, beyond: set[Features]) -> None:
        """Hand over what was counted."""
        if self.counts:
            is_nameless = self.owner == UNKNOWN and self._symbols.depth == "exported"
            name = b"(no name)" if is_nameless else self.name
            tally.count(self.owner, name, self.counts, beyond)
            self.counts = Counter()


def _blocks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """What is read in blocks that end with a line, and no header is split."""
    rest = b"\n"
    while data := read(_BLOCK):
        data = rest + data
        # A header stands between an empty line and its instructions: cut before its line break.
        cut = data.rfind(b"\n", 0, max(1, data.rfind(b"\n")))
        last = data[cut:]
        if cut <= 0 or _HEADER.match(last):
            rest = data
            continue
        yield data[: cut + 1]
        rest = last
    yield rest


def merged(scans: Sequence[Scan]) -> Tally:
    """The counts of several libraries together."""
    tally = Tally()
    for each in scans:
        tally.add(each.tally)
    return tally
