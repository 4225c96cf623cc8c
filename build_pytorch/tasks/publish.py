"""`invoke publish`: publish built packages with Flox, one after the other."""

from __future__ import annotations

import sys
from collections import Counter
from typing import get_args

from invoke.context import Context

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.tasks.command import command, load

_COLOURS = {"publish": "green", "published": "green", "refused": "red", "failed": "red"}


@command
def publish(
    c: Context,
    packages: str,
    org: str = "",
    system: str = "",
    without_evidence: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> int:
    """Publish built and tested variants with Flox."""
    from build_pytorch.matrix.field_types import Platform
    from build_pytorch.publish import publication
    from build_pytorch.results.package_state import chosen_packages

    if system not in {"", *get_args(Platform)}:
        known = " or ".join(get_args(Platform))
        raise BuildPytorchError(f'--system: found "{system}"; allowed: {known}')
    matrix = load()
    how = publication.Publishing(
        organization=org or matrix.publisher,
        system=system,
        without_evidence=without_evidence,
        dry_run=dry_run,
    )
    screen = Screen(sys.stderr if json else sys.stdout)
    chosen = chosen_packages(matrix, packages)
    rows = publication.publish(matrix.root, chosen, how, say=screen.line)
    screen.plan([(row.action, row.variant, row.reason) for row in rows], _COLOURS, verbose=False)
    counts = Counter(row.action for row in rows)
    screen.line(", ".join(f"{number} {action}" for action, number in counts.items()))
    code = EXIT_FINDINGS if counts["refused"] + counts["failed"] else EXIT_OK
    if json:
        print_json({"variants": rows, "exit_code": code}, sys.stdout)
    return code
