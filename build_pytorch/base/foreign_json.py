"""JSON that others wrote: limited size and depth, finite numbers, valid Unicode."""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_BYTES: Final = 16 << 20
_MAX_DEPTH: Final = 64
"""Below Python's recursion limit with the depth of every library that walks through a document."""


def decode(data: bytes | str) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON document. Raises ValueError with the reason in one line, whatever the input."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 10} KiB")
    try:
        document = msgspec.json.decode(data)
        _limit_depth(document, _MAX_DEPTH)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return document


def _limit_depth(value: object, most: int) -> None:
    if isinstance(value, dict | list):
        if not most:
            raise RecursionError
        for inner in value.values() if isinstance(value, dict) else value:
            _limit_depth(inner, most - 1)
