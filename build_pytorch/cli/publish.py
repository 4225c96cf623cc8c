"""`invoke publish`: publish built variants with Flox, one after the other."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec.structs import asdict, replace

from build_pytorch.base.console import Screen, print_json, visible
from build_pytorch.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_FINDINGS,
    EXIT_OK,
    BuildPytorchError,
)
from build_pytorch.build.build_obstacles import only_run
from build_pytorch.cli.commands import PublishCommandOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.publish import preconditions
from build_pytorch.publish.publication import Publication, carry_out, decide
from build_pytorch.results import evidence

_ORGANIZATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

_COLOURS: Final = {"publish": "green", "refused": "red"}


def run(options: PublishCommandOptions) -> int:
    """Publish variants that are built and have evidence. Return the exit code.

    Raises BuildPytorchError, before anything is published, where Flox would refuse: not logged
    in, not clean, not pushed; and for a missing selection.
    """
    if not options.variants:
        raise BuildPytorchError("name what to publish, such as sm120-avx512 or 'sm120-*'")
    if options.org and not _ORGANIZATION.fullmatch(options.org):
        raise BuildPytorchError(f'--org: found "{options.org}"; allowed: letters, digits, - and _')
    without_evidence = options.without_evidence or options.unproved
    variants = select(matrix_reader.load(), options.variants)
    screen = Screen(sys.stderr if options.json else sys.stdout)

    def say(text: str) -> None:
        screen.line(visible(text))

    def decisions() -> list[Publication]:
        known = evidence.look(options.root, variants)
        return [
            decide(known[v.package], options.org, without_evidence=without_evidence)
            for v in variants
        ]

    rows = decisions()
    width = max(len(row.variant) for row in rows)
    for row in rows:
        action = screen.paint(f"{row.action:<9}", _COLOURS.get(row.action, "dim"))
        screen.line(f"  {action}  {row.variant:<{width}}  {visible(row.reason)}")
    obstacles = list(preconditions.unmet(options.root, variants))
    if not (obstacles or options.dry_run):
        with only_run(options.root):  # another run may have published before the lock
            known = evidence.look(options.root, variants)
            rows = [
                carry_out(row, known[row.package], options.root, options.org, say)
                for row in decisions()
            ]
        screen.line(_total(rows))
    return _finish(options, screen, rows, obstacles)


def _finish(
    options: PublishCommandOptions,
    screen: Screen,
    rows: list[Publication],
    obstacles: list[str],
) -> int:
    """Print what a dry run found and the JSON document. Return the exit code.

    Raises BuildPytorchError where obstacles prevented the publication.
    """
    bad = any(row.action in {"refused", "failed"} for row in rows)
    code = EXIT_BAD_INPUT if obstacles else EXIT_FINDINGS if bad else EXIT_OK
    lines = "\n".join(f"  {visible(obstacle)}" for obstacle in obstacles)
    ready = [row for row in rows if row.action == "publish"]
    if options.dry_run:
        would = f"dry run: {len(ready)} would be published"
        screen.line(f"dry run: all would be refused:\n{lines}" if obstacles else would)
    elif obstacles:
        refused = {"action": "refused", "reason": obstacles[0]}
        rows = [replace(row, **refused) if row in ready else row for row in rows]
    if options.json:
        variants = [asdict(row) for row in rows]
        print_json({"variants": variants, "obstacles": obstacles, "exit_code": code}, sys.stdout)
    if obstacles and not options.dry_run:
        raise BuildPytorchError(f"nothing was published:\n{lines}")
    return code


def _total(rows: Sequence[Publication]) -> str:
    """Return what this run did: `1 published, 2 already, 1 not`."""
    count = Counter(row.action for row in rows)
    parts = [f"{count['published']} published"]
    if count["already"]:
        parts.append(f"{count['already']} already")
    if bad := count["refused"] + count["failed"]:
        parts.append(f"{bad} not")
    return ", ".join(parts)
