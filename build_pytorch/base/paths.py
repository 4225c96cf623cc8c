"""Where things lie in a checkout."""

from __future__ import annotations

import errno
import os
import stat
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
CHECKS_DOC: Final = "docs/reference/checks.md"
CHOOSING_DOC: Final = "docs/reference/choosing.md"
MATRIX_DOC: Final = "docs/reference/matrix.md"
VARIANTS_DOC: Final = "docs/reference/variants.md"
SCHEMA_DOC: Final = "docs/reference/matrix.schema.json"
RELEASE: Final = "release.nix"


def read_file(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError, also for what would block or never end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def checked_root(root: Path) -> Path:
    """The root as an absolute path. Raises BuildPytorchError where it is no folder."""
    if not root.is_dir():
        raise BuildPytorchError(f"--root {root}: no such folder; name an existing checkout")
    return root.resolve()


def make_state(folder: Path) -> None:
    """Make the state folder, which Git never sees. Raises OSError."""
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")  # so that another checkout stays clean as well
