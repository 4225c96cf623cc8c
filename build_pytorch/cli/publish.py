"""`invoke publish`: publish built packages with Flox, one after the other."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from build_pytorch.base.console import Screen, folded, print_json
from build_pytorch.base.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import PublishOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.field_types import Platform
from build_pytorch.matrix.model import Package
from build_pytorch.publish.publication import (
    PackageFacts,
    Publication,
    carry_out,
    decide,
    package_facts,
    unmet_preconditions,
)
from build_pytorch.results.ledger import only_run
from build_pytorch.results.package_selection import chosen_packages
from build_pytorch.results.package_state import PackageState, package_states

_ORGANIZATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

_COLOURS: Final = {"publish": "green", "refused": "red"}


class PublicationRow(Publication, frozen=True, kw_only=True):
    """What --json says of a package: the decision, and what a catalogue would get to know."""

    system: str | None
    broken: bool | None
    closure_bytes: int | None


class PublishDocument(Struct, frozen=True, kw_only=True):
    """What --json prints."""

    variants: tuple[PublicationRow, ...]
    obstacles: tuple[str, ...]
    exit_code: int


def run(options: PublishOptions) -> int:
    """Publish packages that are built and have evidence. Return the exit code.

    Raises BuildPytorchError, before anything is published, where Flox would refuse: not logged
    in, not clean, not pushed; and for a missing selection.
    """
    _check(options)
    matrix = matrix_reader.load(options.root)
    options = replace(options, org=options.org or matrix.publisher)
    packages = chosen_packages(matrix, options.selection)
    screen = Screen(sys.stderr if options.json else sys.stdout)
    rows, states = _decisions(options, packages)
    ready = [states[row.variant] for row in rows if row.action == "publish"]
    facts = package_facts(options.root, ready)
    known = {name: f"; {each.text}" for name, each in facts.items()}
    said = ((row.action, row.variant, row.reason + known.get(row.variant, "")) for row in rows)
    screen.plan(said, _COLOURS, verbose=options.verbose)
    obstacles = tuple(unmet_preconditions(options.root, packages))
    lines = "\n".join(line for obstacle in obstacles for line in folded("  ", obstacle))
    if options.dry_run:
        would = f"dry run: {len(ready)} would be published"
        screen.line(f"dry run: all would be refused:\n{lines}" if obstacles else would)
    elif obstacles:
        refused = {"action": "refused", "reason": obstacles[0]}
        rows = [replace(row, **refused) if row.action == "publish" else row for row in rows]
    else:
        rows = _publish(options, packages, screen)

    is_bad = any(row.action in {"refused", "failed"} for row in rows)
    code = EXIT_BAD_INPUT if obstacles else EXIT_FINDINGS if is_bad else EXIT_OK
    if options.json:
        shown = tuple(_row(row, facts.get(row.variant, PackageFacts())) for row in rows)
        document = PublishDocument(variants=shown, obstacles=obstacles, exit_code=code)
        print_json(document, sys.stdout)
    if obstacles and not options.dry_run:
        raise BuildPytorchError(f"nothing was published:\n{lines}")
    return code


def _row(row: Publication, facts: PackageFacts) -> PublicationRow:
    return PublicationRow(
        **asdict(row), system=facts.system, broken=facts.broken, closure_bytes=facts.closure
    )


def _publish(
    options: PublishOptions, packages: Sequence[Package], screen: Screen
) -> list[Publication]:
    """Publish what can be published, print the totals, and return what became of each package."""

    def act(decided: Publication, state: PackageState) -> Publication:
        return carry_out(decided, state, options.root, options.org, screen.line)

    with only_run(options.root):
        rows, _ = _decisions(options, packages, act)  # again: another run may have published
    count = Counter(row.action for row in rows)
    already, bad = count["already"], count["refused"] + count["failed"]
    parts = [f"{count['published']} published"]
    parts += [f"{already} already"] if already else []
    screen.line(", ".join(parts + ([f"{bad} not"] if bad else [])))
    return rows


def _decisions(
    options: PublishOptions,
    packages: Sequence[Package],
    act: Callable[[Publication, PackageState], Publication] = lambda decided, _: decided,
) -> tuple[list[Publication], dict[str, PackageState]]:
    """Decide for one package after the other. `act` carries a decision out, before the next one.

    Returns what becomes of each, and the states of packages and of what companions are for.
    """
    needed = {each.id: each for package in packages for each in (package, package.variant)}
    states = package_states(options.root, needed.values())

    def decision(state: PackageState, torch: Publication | None = None) -> Publication:
        allowed = options.without_evidence
        org, system = options.org, options.system
        return decide(state, org, without_evidence=allowed, system=system, torch=torch)

    rows: dict[str, Publication] = {}
    for package in packages:
        torch, variant = None, package.variant
        if package is not variant and (torch := rows.get(variant.id)) is None:
            torch = decision(states[variant.id])
            if torch.action == "publish":
                both = f"`invoke publish {variant.id} {package.id}`"
                torch = replace(torch, action="refused", reason=f"not published yet; {both}")
        state = states[package.id]
        rows[package.id] = act(decision(state, torch), state)
    return list(rows.values()), states


def _check(options: PublishOptions) -> None:
    """Raise BuildPytorchError for arguments that cannot be meant."""
    if not options.selection.is_narrow:
        raise BuildPytorchError("name what to publish, such as 'cpu-*' or 'sm120-*'")
    org = options.org
    if org and not _ORGANIZATION.fullmatch(org):
        raise BuildPytorchError(f'--org: found "{org}"; allowed: letters, digits, - and _')
    if options.system not in {"", *get_args(Platform)}:
        known_ones = " or ".join(get_args(Platform))
        raise BuildPytorchError(f'--system: found "{options.system}"; allowed: {known_ones}')
