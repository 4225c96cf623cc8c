"""Digests in generated text: they show whether a file was edited by hand or is out of date."""

from __future__ import annotations

import hashlib
import re
from typing import Final

PLACEHOLDER: Final = "sha256:" + "0" * 64
"""The text that a template contains in place of the digest."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def seal(text: str) -> str:
    """Return the text with its placeholder replaced by its digest. Raises ValueError."""
    head, found, tail = text.partition(PLACEHOLDER)
    if not found:
        raise ValueError("generated text without a placeholder for its digest")
    return f"{head}{of_bytes(text.encode())}{tail}"


def is_intact(text: str) -> bool:
    """Return whether a text has a digest and is unchanged since it was sealed."""
    found = _DIGEST.search(text)
    if not found:
        return False
    original = text[: found.start()] + PLACEHOLDER + text[found.end() :]
    return found[0] == of_bytes(original.encode())


def has_digest(text: str) -> bool:
    """Return whether a text has a digest, intact or not."""
    return _DIGEST.search(text) is not None


def of_bytes(data: bytes) -> str:
    """Return the digest of a file's whole content."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
