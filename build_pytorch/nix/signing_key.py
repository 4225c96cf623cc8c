"""Ed25519 keys as Nix writes them: NAME:BASE64, of a seed and the public key, or of the latter.

Nix manual, "nix key generate-secret". As in Nix, the mode of a key file does not matter.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from build_pytorch.base import files
from build_pytorch.base.errors import BuildPytorchError

if TYPE_CHECKING:
    from nacl import signing

_SECRET_KEY: Final = re.compile(r"([^\s:]+):([A-Za-z0-9+/]{86}==)\s*")
_SEED: Final = 32  #: bytes


class SigningKey:
    """A secret key, of which nothing but the name is ever shown."""

    def __init__(self, name: str, secret: signing.SigningKey) -> None:
        self.name = name
        self._secret = secret

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message: 64 bytes."""
        return self._secret.sign(message).signature


def read(path: Path, option: str) -> SigningKey:
    """Return the key of a file that an option names. Raises BuildPytorchError."""
    from nacl import signing  # 30 ms

    try:
        text = files.read_named(path, files.LARGEST_TEXT).decode(errors="replace")
    except OSError as error:
        raise BuildPytorchError(f"{option} {path}: cannot be read: {error.strerror}") from None
    found = _SECRET_KEY.fullmatch(text)
    data = base64.b64decode(found[2]) if found else b""
    secret = signing.SigningKey(data[:_SEED]) if found else None
    if not (found and secret and bytes(secret.verify_key) == data[_SEED:]):
        how = "`nix-store --generate-binary-cache-key NAME SECRET PUBLIC`"
        raise BuildPytorchError(f"{option} {path}: not a signing key; make one with {how}")
    return SigningKey(found[1], secret)
