"""`invoke outdated`: list newer versions of PyTorch and nixpkgs."""

from __future__ import annotations

import datetime as dt
import sys

from invoke.context import Context

from build_pytorch.tasks.command import command, load


def today() -> dt.date:
    """Return the date in UTC."""
    return dt.datetime.now(dt.UTC).date()


@command(texts={"check": "exit 1 if something is newer (CI)"})
def outdated(c: Context, check: bool = False, json: bool = False) -> int:
    """List newer versions of PyTorch and nixpkgs."""
    from build_pytorch.base.console import Screen, counted, print_json
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
    from build_pytorch.matrix.available import stale_builds
    from build_pytorch.sources.github import BRANCH, upstream_versions

    matrix = load()
    rows = list(upstream_versions(matrix, matrix.releases, today()))
    is_newer = any(row.newer for row in rows)
    code = EXIT_FINDINGS if check and is_newer else EXIT_OK
    if json:
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
    if stale := stale_builds(today()):
        screen.fold("", stale, "yellow")
    return code
