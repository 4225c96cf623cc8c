"""SHA-256 hashes in the notations of Nix: SRI, base 32 of its own alphabet, hexadecimal."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

_BASE32: Final = "0123456789abcdfghijklmnpqrsvwxyz"
"""Without e, o, u and t; the last byte comes first (Nix source, libutil/hash.cc)."""

_BYTES: Final = 32


def to_sri(text: str) -> str | None:
    """Return a SHA-256 hash in any notation as SRI, or None if the text is not one."""
    text = text.strip().strip("'\"")
    body = re.sub(r"^sha256[-:]", "", text)
    raw = None
    if re.fullmatch(r"[0-9a-f]{64}", body):
        raw = bytes.fromhex(body)
    elif re.fullmatch(f"[{_BASE32}]{{52}}", body):
        raw = _from_base32(body)
    elif re.fullmatch(r"[A-Za-z0-9+/]{43}=", body):
        try:
            raw = base64.b64decode(body, validate=True)
        except binascii.Error:
            return None
    if raw is None or len(raw) != _BYTES:
        return None
    return f"sha256-{base64.b64encode(raw).decode()}"


def _from_base32(text: str) -> bytes | None:
    number = 0
    for digit in text:
        number = number * 32 + _BASE32.index(digit)
    if number >> (8 * _BYTES):
        return None  # 52 digits hold four bits more than a hash
    return number.to_bytes(_BYTES, "little")
