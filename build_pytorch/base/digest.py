"""Digests inside generated text: they tell "edited by hand" from "out of date"."""

from __future__ import annotations

import hashlib
import re
from typing import Final

PLACEHOLDER: Final = "sha256:" + "0" * 64
"""What a template puts where the digest belongs."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def seal(text: str) -> str:
    """Replace the placeholder, which must occur, by the digest of the text that holds it."""
    head, found, tail = text.partition(PLACEHOLDER)
    if not found:
        raise ValueError("generated text without a place for its digest")
    return f"{head}sha256:{_hash(text)}{tail}"


def is_intact(text: str) -> bool:
    """Whether a text carries a digest and is, to the byte, what was sealed with it."""
    found = _DIGEST.search(text)
    if not found:
        return False
    original = text[: found.start()] + PLACEHOLDER + text[found.end() :]
    return found[0] == f"sha256:{_hash(original)}"


def has_digest(text: str) -> bool:
    """Whether a text says that it was generated, intact or not."""
    return _DIGEST.search(text) is not None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_bytes(data: bytes) -> str:
    """What names a file's content: the digest of all of it, whoever wrote it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
