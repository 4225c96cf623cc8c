"""Checks: the rules that recipes and docs must keep, one module for each way of looking at them.

    inventory   which files there are, against which there should be
    text        what the recipes say, read as text
    mistakes    what they must not say any more
    syntax      whether they are Nix, and in the right order
    assertions  what they evaluate to, against what the matrix says (evaluation asks Nix)
    toolchain   whether real compilers take what the matrix promises
    generated   whether recipes and docs are what the matrix and the templates yield

A new check is a value in the CHECKS of its module; a new road is a module in `roads`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Variant

if TYPE_CHECKING:
    from build_pytorch.verify.check import Check
    from build_pytorch.verify.verify_reports import Result


_ROADS: Final = {
    "inventory": "inventory",
    "text": "text",
    "mistakes": "mistakes",
    "syntax": "syntax",
    "evaluation": "evaluation",
    "toolchain": "compiler",
    "generated": "generated",
}
"""Roads by name, in the order in which they are reported, and the module of each."""


def roads(only: Collection[str] = ()) -> dict[str, tuple[Check, ...]]:
    """The checks of each road, or of some. Only their modules are imported."""
    wanted = [road for road in _ROADS if not only or road in only]
    modules = (import_module(f"build_pytorch.verify.checks.{_ROADS[road]}") for road in wanted)
    return {road: module.CHECKS for road, module in zip(wanted, modules, strict=True)}


def all_checks() -> list[Check]:
    """Every check, in the order in which they are reported."""
    return [check for checks in roads().values() for check in checks]


def chosen(names: Collection[str]) -> list[Check]:
    """The checks of these ids and roads, or all. Raises BuildPytorchError for an unknown name."""
    if names and all(name in _ROADS for name in names):
        return [check for checks in roads(names).values() for check in checks]
    every = roads()
    ids = [check.id for checks in every.values() for check in checks]
    for name in names:
        if name not in every and name not in ids:
            hint = near_miss(name, [*ids, *every]) or "; --list names them"
            raise BuildPytorchError(f'no check "{name}"{hint}')
    return [
        check
        for road, checks in every.items()
        for check in checks
        if not names or check.id in names or road in names
    ]


def verify(  # noqa: PLR0913 - what a person may ask of a verification
    matrix: Matrix,
    root: Path,
    *,
    variants: Sequence[Variant] | None = None,
    only: Collection[str] = (),
    strict: bool = False,
    pinned: bool = False,
) -> Result:
    """Run checks on the recipes and docs below a root. Nothing is written there.

    With a selection of variants, checks of the tree as a whole are left out.
    Raises BuildPytorchError for an unknown check, and for a pinned nixpkgs that cannot be had.
    """
    from build_pytorch.verify.check import Context

    context = Context(matrix, root, variants, pinned=pinned)
    # Nix takes longest: it works while the other roads are imported and look at the text.
    if not only or "evaluation" in only:
        from build_pytorch.verify import recipe_evaluation

        recipe_evaluation.prepare(context)

    from build_pytorch.verify.verify_reports import Result

    wanted = [
        check
        for check in chosen(only)
        if check.applies(context) and (context.is_whole or not check.needs_whole_tree)
    ]
    if not wanted:
        raise BuildPytorchError("these checks look at all variants; leave the patterns out")
    for module in dict.fromkeys(type(check).__module__ for check in wanted):
        # A road that asks other programs starts them all before the first check waits for one.
        if prepare := getattr(import_module(module), "prepare", None):
            prepare(context)
    outcomes = {check.id: check.run(context) for check in sorted(wanted, key=lambda c: c.waits)}
    return Result(context, [outcomes[check.id] for check in wanted], strict=strict)
