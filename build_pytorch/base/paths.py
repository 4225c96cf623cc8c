"""Paths of a checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).absolute().parents[1]
PROJECT: Final = _PACKAGE.parent  #: the clone of this package: the root of its own commands

_IN_WHEEL: Final = _PACKAGE / "shipped"
SHIPPED: Final = _IN_WHEEL if _IN_WHEEL.is_dir() else PROJECT
"""Matrix, templates and Nix files for a project that has none of its own: see pyproject.toml."""

MATRIX: Final = "matrix.toml"
TEMPLATES: Final = "templates"
SCRIPT: Final = "build-pytorch"  #: the program for projects that are no clone of this one
STATE: Final = ".build-pytorch"  #: locks, ledger, logs and reports; Git ignores it

RELEASE: Final = "release.nix"
COMPANION_FUNCTION: Final = "nix/companion.nix"  #: makes a companion from values in its recipe
NIXPKGS_IMPORTS: Final = "nix/nixpkgs"  #: imports of nixpkgs, generated, and nothing else
COMPILER_CACHE: Final = "nix/compiler_cache.sh"  #: functions of Bash that recipes contain


def is_clone(root: Path) -> bool:
    """Return whether a folder is a clone of this repository: it has Invoke's tasks."""
    return (root / "tasks.py").exists()


def in_use(root: Path, name: str) -> Path:
    """Return a file or folder of a checkout, or that of this package if it has none."""
    own = root / name
    return own if os.path.lexists(own) else SHIPPED / name
