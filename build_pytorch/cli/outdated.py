"""`invoke outdated`: list newer versions of PyTorch and nixpkgs."""

from __future__ import annotations

import sys

import msgspec

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import OutdatedOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.sources.github import BRANCH, upstream_versions


def run(options: OutdatedOptions) -> int:
    """List what is newer than the matrix; exit 1 with --check if something is. Raises ToolError."""
    rows = list(upstream_versions(matrix_reader.load()))
    is_newer = any(row.newer for row in rows)
    code = EXIT_FINDINGS if options.check and is_newer else EXIT_OK
    if options.json:
        print_json(msgspec.to_builtins(rows), sys.stdout)
        return code
    screen = Screen(sys.stdout)
    for row in rows:
        state = f"{row.newest} is newer" if row.newer else "is the newest"
        date = f" ({BRANCH} of {row.date})" if row.date and row.newer else ""
        screen.line(f"{row.release}  {row.name} {row.ours}: {state}{date}")
    return code
