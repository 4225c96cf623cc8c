"""One variant in a plan of builds."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from build_pytorch.matrix.model import Variant
from build_pytorch.nix.derivations import Derivation


class Step(Struct, frozen=True, kw_only=True):
    """What becomes of one variant, and why."""

    variant: Variant
    action: Literal["build", "up to date", "skipped"]
    reason: str
    digest: str
    derivation: Derivation | None = None
    where: str = ""
    """The builder's address; empty for this machine."""
