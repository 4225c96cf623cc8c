"""Hashes out of the log of a build that failed for a wrong one."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from build_pytorch.nix.hashes import to_sri

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_HASH: Final = r"['\"\u2018\u2019]?((?:sha256[-:])?[A-Za-z0-9+/]{43,64}=?)['\"\u2018\u2019]?"

# Nix 2.0 and later say it on two lines ("wanted" until 2.3, "specified" since 2.4), earlier ones in
# one sentence. Between the two lines stands the prefix of whoever shows the log.
_PAIR: Final = re.compile(rf"(?:specified|wanted|expected):\s*{_HASH}\s*\n[^\n]*?got:\s*{_HASH}")
_SENTENCES: Final = (
    re.compile(rf"has \w+ hash {_HASH} when {_HASH} was expected"),
    re.compile(rf"with sha256 hash {_HASH} instead of the expected hash {_HASH}"),
)


class Mismatch(Struct, frozen=True):
    """A pair of hashes, both as SRI."""

    specified: str
    got: str


def mismatches(log: str) -> list[Mismatch]:
    """Every pair that a log tells, once, in the order of the log."""
    text = _COLOUR.sub("", log).replace("\r\n", "\n").replace("\r", "\n")
    found = [(match.start(), match[1], match[2]) for match in _PAIR.finditer(text)]
    for pattern in _SENTENCES:
        found += [(match.start(), match[2], match[1]) for match in pattern.finditer(text)]
    pairs = []
    for _, specified, got in sorted(found):
        old, new = to_sri(specified), to_sri(got)
        if old and new and old != new:
            pairs.append(Mismatch(old, new))
    return list(dict.fromkeys(pairs))
