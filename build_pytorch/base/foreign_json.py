"""JSON that others wrote: answers of servers and programs, reports, descriptions of machines.

Accepted is what any program can handle: limited size and depth, finite numbers, valid Unicode.
Whoever reads such a document decides on its keys and types.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_BYTES: Final = 16 << 20
_MAX_DEPTH: Final = 64
"""Below Python's recursion limit with the depth of every library that walks through a document."""


def decode(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON document. Raises ValueError with the reason in one line, whatever the input."""
    if len(data) > max_bytes:
        raise ValueError(f"larger than {max_bytes >> 10} KiB")
    try:
        document = msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [document]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if any(isinstance(value, dict | list) for value in level):
        raise ValueError("nested too deeply")
    return document
