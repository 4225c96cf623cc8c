"""What a change rebuilds, as `verify --against` and `bump` print it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from build_pytorch.base.console import Screen, counted, grouped, print_json, some, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import rebuilds
from build_pytorch.verify.rebuilds import PackageChange, Rebuilds

_MOST: Final = 5  #: groups of packages with the same causes


def run(
    matrix: Matrix,
    variants: Sequence[Variant],
    against: str,
    strict: bool,
    verbose: bool,
    json: bool,
) -> int:
    """Compare the recipes with those of a commit and print the causes. Return the exit code.

    Raises BuildPytorchError for bad input and for a recipe that cannot be evaluated.
    """
    paths = {variant.path for variant in variants}
    chosen = [package for package in matrix.packages if package.variant.path in paths]
    with rebuilds.checkout_of(matrix.root, against) as before:
        found = rebuilds.compare(against, before, (matrix, matrix.root), chosen)
    if json:
        print_json(found, sys.stdout)
    else:
        print_rebuilds(found, Screen(sys.stdout), verbose=verbose)
    return EXIT_FINDINGS if strict and not found.is_none else EXIT_OK


def print_rebuilds(found: Rebuilds, screen: Screen, *, verbose: bool = False) -> None:
    """Print the packages by cause, at most _MOST causes unless verbose, then the other states."""
    groups = _groups(found.of("rebuilt"))
    for causes, names in list(groups.items())[: None if verbose else _MOST]:
        screen.line(screen.paint(f"{counted(len(names), 'package')} rebuilt", "bold"))
        for cause in causes:
            screen.fold("  because ", visible(cause), indent=10)
        screen.fold("  ", some(names), indent=2)
    if not verbose and len(groups) > _MOST:
        rest = sum(map(len, list(groups.values())[_MOST:]))
        screen.line(f"{counted(rest, 'package')} rebuilt for other causes; -v lists them")
    since = f" since {visible(found.against)}" if found.against else ""
    if found.is_none:
        screen.fold("", f"Nothing is rebuilt{since}.")
    for state, what in (
        ("follows", "rebuilt because their PyTorch is"),
        ("new", "new"),
        ("removed", "removed"),
        ("text only", "with another text; nothing of them is rebuilt"),
        ("unchanged", "unchanged"),
    ):
        names = [change.package for change in found.of(state)]  # type: ignore[arg-type]
        if names:
            which = "" if state == "unchanged" else f": {some(names)}"
            screen.fold("", f"{counted(len(names), 'package')} {what}{which}")


def _groups(changes: list[PackageChange]) -> dict[tuple[str, ...], list[str]]:
    groups = grouped((change.causes, change.package) for change in changes)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))
