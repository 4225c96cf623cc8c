"""SHA-256 hashes in the notations of Nix: SRI, base 32 of its own alphabet, hexadecimal."""

from __future__ import annotations

import base64
import re
from typing import Final

_BASE32: Final = "0123456789abcdfghijklmnpqrsvwxyz"
"""Without e, o, u and t; the last byte comes first (Nix source, libutil/hash.cc)."""

_TO_PYTHON: Final = str.maketrans(_BASE32, "0123456789abcdefghijklmnopqrstuv")


def to_sri(text: str) -> str | None:
    """Return a SHA-256 hash in any notation as SRI, or None if the text is not one."""
    body = re.sub(r"^sha256[-:]", "", text.strip().strip("'\""))
    if re.fullmatch(r"[0-9a-f]{64}", body):
        raw = bytes.fromhex(body)
    elif re.fullmatch(f"[{_BASE32}]{{52}}", body):
        number = int(body.translate(_TO_PYTHON), 32)
        if number.bit_length() > 256:  # noqa: PLR2004 - 52 digits hold four bits more than a hash
            return None
        raw = number.to_bytes(32, "little")
    elif re.fullmatch(r"[A-Za-z0-9+/]{43}=", body):
        raw = base64.b64decode(body)
    else:
        return None
    return f"sha256-{base64.b64encode(raw).decode()}"
