"""JSON that others wrote: answers of servers and programs, reports, descriptions of machines.

Accepted is what any program can handle: limited size and depth, keys once, finite numbers of normal
length, valid Unicode. Whoever reads such a document decides on its keys and types.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

MAX_BYTES: Final = 16 << 20
_MAX_DEPTH: Final = 64
"""Below Python's recursion limit with the depth of every library that walks through a document."""
_MAX_DIGITS: Final = 20
"""Digits of 2**64."""


def decode(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON document.

    Raises ValueError with the reason in one line, and no other exception, for any input.
    """
    if len(data) > max_bytes:
        raise ValueError(f"larger than {max_bytes >> 10} KiB")
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    pending = [(document, 1)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, dict | list):
            if depth > _MAX_DEPTH:
                raise ValueError("nested too deeply")
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            pending += [(each, depth + 1) for each in inner]
        elif isinstance(value, str) and not value.isascii():
            value.encode()  # refuses half of a surrogate pair, which cannot be written to a file
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {json.dumps(key[:80])} twice in one object")
        found[key] = value
    return found


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("a number that is too large")
    return number


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is not JSON")
