"""`invoke publish`: publish built variants with Flox, one after the other."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from typing import Any, Final, get_args

from msgspec.structs import asdict, replace

from build_pytorch.base.console import Screen, print_json, visible
from build_pytorch.base.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.build.build_obstacles import only_run
from build_pytorch.cli.commands import PublishCommandOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.field_types import Platform
from build_pytorch.matrix.selection import select
from build_pytorch.publish.publication import (
    PackageFacts,
    carry_out,
    decide,
    package_facts,
    unmet_preconditions,
)
from build_pytorch.results import evidence

_ORGANIZATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

_COLOURS: Final = {"publish": "green", "refused": "red"}


def run(options: PublishCommandOptions) -> int:
    """Publish variants that are built and have evidence. Return the exit code.

    Raises BuildPytorchError, before anything is published, where Flox would refuse: not logged
    in, not clean, not pushed; and for a missing selection.
    """
    _check(options)
    root, org = options.root, options.org
    is_allowed = options.without_evidence or options.unproved
    variants = select(matrix_reader.load(), options.variants, options.release)
    screen = Screen(sys.stderr if options.json else sys.stdout)
    known = evidence.look(root, variants)
    judged = functools.partial(
        decide, organization=org, without_evidence=is_allowed, system=options.system
    )
    rows = [judged(known[v.package]) for v in variants]
    ready = [known[row.package] for row in rows if row.action == "publish"]
    facts = package_facts(root, ready)
    width = max(len(row.variant) for row in rows)
    for row in rows:
        action = screen.paint(f"{row.action:<9}", _COLOURS.get(row.action, "dim"))
        screen.line(f"  {action}  {row.variant:<{width}}  {row.reason}")
        if row.package in facts:
            screen.line(f"  {'':<9}  {'':<{width}}  {facts[row.package].text}")

    obstacles = list(unmet_preconditions(root, variants))
    lines = "\n".join(f"  {visible(obstacle)}" for obstacle in obstacles)
    if options.dry_run:
        would = f"dry run: {len(ready)} would be published"
        screen.line(f"dry run: all would be refused:\n{lines}" if obstacles else would)
    elif obstacles:
        refused = {"action": "refused", "reason": obstacles[0]}
        rows = [replace(row, **refused) if row.action == "publish" else row for row in rows]
    else:
        with only_run(root):
            known = evidence.look(root, variants)  # another run may have published meanwhile
            for number, variant in enumerate(variants):
                result = known[variant.package]
                row = judged(result)
                rows[number] = carry_out(row, result, root, org, screen.line)
        count = Counter(row.action for row in rows)
        already, bad = count["already"], count["refused"] + count["failed"]
        parts = [f"{count['published']} published"]
        parts += [f"{already} already"] if already else []
        screen.line(", ".join(parts + ([f"{bad} not"] if bad else [])))

    is_bad = any(row.action in {"refused", "failed"} for row in rows)
    code = EXIT_BAD_INPUT if obstacles else EXIT_FINDINGS if is_bad else EXIT_OK
    if options.json:
        shown = [asdict(row) | _facts(facts.get(row.package)) for row in rows]
        print_json({"variants": shown, "obstacles": obstacles, "exit_code": code}, sys.stdout)
    if obstacles and not options.dry_run:
        raise BuildPytorchError(f"nothing was published:\n{lines}")
    return code


def _facts(facts: PackageFacts | None) -> dict[str, Any]:
    """Return what --json says of a package that is to be published, beside the decision."""
    found = facts or PackageFacts()
    return {"system": found.system, "broken": found.broken, "closure_bytes": found.closure}


def _check(options: PublishCommandOptions) -> None:
    """Raise BuildPytorchError for arguments that cannot be meant."""
    if not options.variants:
        raise BuildPytorchError("name what to publish, such as sm120-avx512 or 'sm120-*'")
    org = options.org
    if org and not _ORGANIZATION.fullmatch(org):
        raise BuildPytorchError(f'--org: found "{org}"; allowed: letters, digits, - and _')
    if options.system not in {"", *get_args(Platform)}:
        known_ones = " or ".join(get_args(Platform))
        raise BuildPytorchError(f'--system: found "{options.system}"; allowed: {known_ones}')
