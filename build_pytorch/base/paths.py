"""Where things lie in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from build_pytorch.base.errors import BuildPytorchError

PROJECT: Final = Path(__file__).resolve().parents[2]
"""The checkout that this package belongs to; its matrix.toml and templates/ are the ones used."""

MATRIX: Final = PROJECT / "matrix.toml"
TEMPLATES: Final = PROJECT / "templates"

STATE: Final = ".build-pytorch"
"""Folder below the root for what runs remember: locks, ledger, logs, reports. Never in Git."""

README: Final = "README.md"
CHECKS_DOC: Final = "docs/checks.md"
COMMANDS_DOC: Final = "docs/reference/commands.md"
CHOOSING_DOC: Final = "docs/choosing.md"
VARIANTS_DOC: Final = "docs/variants.md"
SCHEMA_DOC: Final = "docs/matrix.schema.json"
RELEASE: Final = "release.nix"


def checked_root(root: Path) -> Path:
    """The root as an absolute path. Raises BuildPytorchError where it is no folder."""
    if not root.is_dir():
        raise BuildPytorchError(f"--root {root}: no such folder; name an existing checkout")
    return root.resolve()
