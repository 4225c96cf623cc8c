"""`invoke bump`: move a release to another PyTorch, nixpkgs or CUDA."""

from __future__ import annotations

from build_pytorch.cli.commands import BumpOptions
from build_pytorch.sources import release_bump


def run(options: BumpOptions) -> int:
    """Move a release, completely or not at all. Returns the exit code."""
    return release_bump.run(
        release_bump.BumpOptions(
            **{name: getattr(options, name) for name in options.__struct_fields__}
        )
    )
