"""`invoke outdated`: list newer versions of PyTorch and nixpkgs."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable

from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import OutdatedOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import require_release
from build_pytorch.sources.github import BRANCH, upstream_versions


def today() -> dt.date:
    """Return the date in UTC."""
    return dt.datetime.now(dt.UTC).date()


def run(options: OutdatedOptions, clock: Callable[[], dt.date] = today) -> int:
    """List what is newer than the matrix; exit 1 with --check if something is. Raises ToolError."""
    matrix = matrix_reader.load(options.root)
    name = options.release
    if name:
        require_release(matrix, name)
    rows = list(upstream_versions(matrix, [name] if name else matrix.releases, clock()))
    is_newer = any(row.newer for row in rows)
    code = EXIT_FINDINGS if options.check and is_newer else EXIT_OK
    if options.json:
        print_json(rows, sys.stdout)
        return code
    screen = Screen(sys.stdout)
    for row in rows:
        if not row.ours:
            screen.line(f"{row.release}  {row.name}: {row.newest} of {row.date}")
            continue
        state = f"{row.newest} is newer" if row.newer else "is the newest"
        branch = row.name if row.days is not None else BRANCH
        date = f" ({branch} of {row.date})" if row.date and row.newer else ""
        age = "" if row.days is None else f", {counted(row.days, 'day')} old"
        screen.line(f"{row.release}  {row.name} {row.ours}{age}: {state}{date}")
    return code
