"""Broken matrices, drawn from a seed: each is refused with lines of place and reason, or is valid.

The mistakes are those of people (a missing quote, a deleted line) and of programs (bytes,
truncation, control characters). Whoever writes matrix.toml is trusted.
"""

from __future__ import annotations

import copy
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomlkit

from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import matrix_reader
from fuzz.fields import places

MATRIX = Path(__file__).resolve().parents[2] / "matrix.toml"
LINE = re.compile(r"matrix\.toml:[1-9][0-9]*: [^:].*?: .+")
LONGEST = 300

PIECES: list[str] = [
    *"\"'[]{}#=.,\\\n\r\t\0\x1b\u0085\u202e\ufeff",
    *('"""', "'''", "[[", "]]", "${x}", "a = 1", "1979-13-45", "9" * 5000, "[" * 2000, "x" * 3000),
    *("release.cuda13_0", "nan", "1e999", "\\U00110000", "\\q"),
]
VALUES: list[Any] = [
    *(None, 7, True, "", "a\nb", "a\x1b[31mb", "${x}", "../..", "x" * 5000, "x y " * 2000, [], {}),
    *(1.5, float("nan"), [[]], {"a": 1}, {"k" * 3000: 1}, ["sm120"] * 300, 10**400),
    [f"sm{n}" for n in range(300)],
]


def run(seed: int, count: int) -> Counter[str]:
    """Try so many broken matrices. Raises AssertionError with the text that shows a fault."""
    draw = random.Random(seed)
    original = MATRIX.read_bytes()
    document = tomllib.loads(original.decode())
    counts: Counter[str] = Counter()
    for _ in range(count):
        kind, mutate = draw.choice(list(MUTATIONS.items()))
        data = original
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            data = mutate(draw, data) if kind != "value" else of_value(draw, document)
        counts[kind] += 1
        try:
            matrix_reader.decode(data)
        except MatrixError as error:
            counts["refused"] += 1
            check(str(error), data)
        else:
            counts["valid"] += 1
    return counts


def check(message: str, data: bytes) -> None:
    """Each line of a message names file, line and path; no line is longer than a screen."""
    lines = message.split("\n")
    if len(lines) > 20:
        assert re.fullmatch(r"and \d+ more errors", lines.pop()), message
    lowest = data.count(b"\n") + 1
    for line in lines:
        assert LINE.fullmatch(line), (line, data)
        assert int(line.split(":")[1]) <= lowest, (line, data)
        assert len(line) <= LONGEST, (line, data)


def of_value(draw: random.Random, document: dict[str, Any]) -> bytes:
    """Replace, remove or add one value."""
    broken = copy.deepcopy(document)
    *way, last = draw.choice(list(places(broken)))
    parent: Any = broken
    for step in way:
        parent = parent[step]
    value = draw.choice(VALUES)
    if value is None:
        del parent[last]
    elif isinstance(parent, dict) and draw.random() < 0.3:
        parent[f"{last}x"] = value
    else:
        parent[last] = value
    text: str = tomlkit.dumps(broken)
    return text.encode("utf-8", "surrogatepass")


def _spot(draw: random.Random, data: bytes) -> tuple[bytes, bytes]:
    """Return what is before and after a place."""
    place = draw.randrange(len(data)) if data else 0
    return data[:place], data[place:]


def _insert(draw: random.Random, data: bytes) -> bytes:
    before, after = _spot(draw, data)
    return before + draw.choice(PIECES).encode() + after


def _delete(draw: random.Random, data: bytes) -> bytes:
    before, after = _spot(draw, data)
    return before + after[draw.choice((1, 1, 1, 2, 10, 100)) :]


def _line(draw: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    place = draw.randrange(len(lines))
    match draw.randrange(4):
        case 0:
            del lines[place]
        case 1:
            lines.insert(draw.randrange(len(lines)), lines[place])
        case 2:
            lines[place] = lines[draw.randrange(len(lines))]
        case _:
            lines[place] = draw.choice(PIECES).encode() + lines[place]
    return b"\n".join(lines)


def _quote(draw: random.Random, data: bytes) -> bytes:
    """Remove one of the characters that people forget."""
    marks = [match.start() for match in re.finditer(rb"[\"'=,\[\]]", data)]
    place = draw.choice(marks) if marks else 0
    return data[:place] + data[place + 1 :]


def _bytes(draw: random.Random, data: bytes) -> bytes:
    before, after = _spot(draw, data)
    return before + draw.randbytes(draw.choice((1, 2, 4))) + after[1:]


MUTATIONS: dict[str, Callable[..., bytes]] = {
    "insert": _insert,
    "delete": _delete,
    "line": _line,
    "quote": _quote,
    "bytes": _bytes,
    "cut": lambda draw, data: _spot(draw, data)[0],
    "value": of_value,
}
