"""Digests in generated text: they show whether a file was edited by hand or is out of date.

The digest is in a header line. A value of matrix.toml elsewhere in the text may look like one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

PLACEHOLDER: Final = "sha256:" + "0" * 64
"""The text that a template contains in place of the digest."""

_DIGEST = re.compile(
    r'(?:\A<!-- begin generated: [^\n]*; |^(?:# | {5}|  "\$comment": "[^"\n]*)'
    r"Digest of this file, with zeros in place of it: )(sha256:[0-9a-f]{64})",
    re.MULTILINE,
)
"""The header of a region, or a header line in Nix, Markdown or JSON."""


def seal(text: str) -> str:
    """Return the text with its placeholder replaced by its digest. Raises ValueError."""
    found = _DIGEST.search(text)
    if not found or found[1] != PLACEHOLDER:
        raise ValueError("generated text without a placeholder for its digest")
    return f"{text[: found.start(1)]}{of_bytes(text.encode())}{text[found.end() :]}"


def is_intact(text: str) -> bool | None:
    """Return whether a text is unchanged since it was sealed, None if it has no digest."""
    found = _DIGEST.search(text)
    if not found:
        return None
    original = text[: found.start(1)] + PLACEHOLDER + text[found.end() :]
    return found[1] == of_bytes(original.encode())


def of_bytes(data: bytes) -> str:
    """Return the digest of a file's whole content."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
