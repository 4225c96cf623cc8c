"""What is kept of a smoke test beside its line in the ledger: the whole report, as a file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from build_pytorch import paths
from build_pytorch.builds.ledger import REPORTS, now
from build_pytorch.errors import WriteError
from build_pytorch.model import Variant


def save_report(root: Path, variant: Variant, document: object) -> str:
    """Write a report whole or not at all; returns its path below the root. Raises WriteError."""
    stamp = now().replace(":", "").replace("+0000", "Z")
    name = f"{paths.STATE}/{REPORTS}/smoke-{variant.package}-{stamp}.json"
    path = root / name
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        paths.make_state(root / paths.STATE)
        path.parent.mkdir(exist_ok=True)
        with temporary.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
    return name
