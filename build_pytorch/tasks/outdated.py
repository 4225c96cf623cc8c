"""`invoke outdated`: list newer versions of PyTorch and nixpkgs, and rules that have ended."""

from __future__ import annotations

import datetime as dt
import sys

from invoke.context import Context

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.tasks.command import command, load


@command(texts={"check": "exit 1 if something is newer or has ended (CI)"})
def outdated(c: Context, check: bool = False, json: bool = False) -> int:
    """List newer versions of PyTorch and nixpkgs, and ended rules."""
    from build_pytorch.matrix import rules
    from build_pytorch.matrix.available import stale_builds
    from build_pytorch.sources.github import upstream_versions

    matrix, screen = load(), Screen(sys.stderr if json else sys.stdout)
    ended = []
    for rule in matrix.own_rules:
        variants = [variant for variant in matrix.variants if rules.holds(rule.when, variant)]
        if variants and all(rules.is_ended(rule, variant) for variant in variants):
            ended.append(rule.id)
    for name in ended:  # also without a network
        screen.line(f"rule {name}: its `until` holds for all its variants; delete it")
    if stale := stale_builds(dt.datetime.now(dt.UTC).date()):
        screen.fold("", stale, "yellow")
    versions = list(upstream_versions(matrix))
    for row in versions:
        date = f" ({row.date})" if row.date else ""
        state = "is the newest" if row.newest == row.ours else f"{row.newest}{date} is newer"
        screen.line(f"{row.release}  {row.name} {row.ours}: {state}")
    if json:
        print_json({"versions": versions, "ended_rules": ended}, sys.stdout)
    is_outdated = ended or any(row.newest != row.ours for row in versions)
    return EXIT_FINDINGS if check and is_outdated else EXIT_OK
