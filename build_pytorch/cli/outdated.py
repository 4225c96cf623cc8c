"""`invoke outdated`: list newer versions of PyTorch and nixpkgs."""

from __future__ import annotations

from build_pytorch.cli.commands import OutdatedOptions
from build_pytorch.sources import release_bump


def run(options: OutdatedOptions) -> int:
    """List what is newer than the matrix. Returns the exit code. Raises ToolError."""
    return release_bump.outdated(as_json=options.json)
