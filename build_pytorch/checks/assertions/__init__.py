"""What each variant must evaluate to, held against the matrix; `evaluation` asks Nix."""

from __future__ import annotations

from build_pytorch.checks.assertions import building, cuda, identity
from build_pytorch.checks.assertions.kinds import Evaluates, NoWarnings
from build_pytorch.checks.base import Check

CHECKS: tuple[Check, ...] = (
    Evaluates(
        id="evaluates",
        title="Every recipe evaluates to a package",
        why="An argument that torch does not take, a name out of scope: no build begins.",
        mend="correct what Nix complains about",
        source="seed 000, issues 1 and 2",
    ),
    *identity.CHECKS,
    *cuda.CHECKS,
    *building.CHECKS,
    NoWarnings(
        id="eval-warnings",
        title="Nix evaluates every recipe without a warning",
        why="A warning of today is an error of the next nixpkgs, or an override that does nothing.",
        mend="do what the warning says",
        source="nixpkgs: lib.warn, and overrideAttrs that changes a version without its source",
    ),
)
