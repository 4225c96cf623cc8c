"""What each variant must evaluate to, held against the matrix; `evaluation` asks Nix."""

from __future__ import annotations

from build_pytorch.verify.check import Check
from build_pytorch.verify.checks import evaluation_building, evaluation_cuda, evaluation_identity
from build_pytorch.verify.checks.evaluation_kinds import Evaluates, NoWarnings

CHECKS: tuple[Check, ...] = (
    Evaluates(
        id="evaluates",
        title="Every recipe evaluates to a package",
        why="An argument that torch does not take, a name out of scope: no build begins.",
        fix="correct what Nix complains about",
        source="seed 000, issues 1 and 2",
    ),
    *evaluation_identity.CHECKS,
    *evaluation_cuda.CHECKS,
    *evaluation_building.CHECKS,
    NoWarnings(
        id="eval-warnings",
        title="Nix evaluates every recipe without a warning",
        why="A warning of today is an error of the next nixpkgs, or an override that does nothing.",
        fix="do what the warning says",
        source="nixpkgs: lib.warn, and overrideAttrs that changes a version without its source",
    ),
)
