"""Checks: the rules that recipes and docs must keep, one module for each way of looking at them.

    inventory   which files there are, against which there should be
    text        what the recipes say, read as text
    mistakes    what they must not say any more
    syntax      whether they are Nix, and in the right order
    assertions  what they evaluate to, against what the matrix says (evaluation asks Nix)
    toolchain   whether real compilers take what the matrix promises
    generated   whether recipes and docs are what the matrix and the templates yield

A new check is a value in the CHECKS of its module; a new category is a module in `categories`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Variant

if TYPE_CHECKING:
    from build_pytorch.verify.check import Check
    from build_pytorch.verify.verify_reports import VerificationResult


_CATEGORIES: Final = {
    "inventory": "inventory",
    "text": "text",
    "mistakes": "mistakes",
    "syntax": "syntax",
    "evaluation": "evaluation",
    "toolchain": "compiler",
    "generated": "generated",
}
"""Categories by name, in the order in which they are reported, and the module of each."""


def categories(only: Collection[str] = ()) -> dict[str, tuple[Check, ...]]:
    """The checks of each category, or of some. Only their modules are imported."""
    wanted = [category for category in _CATEGORIES if not only or category in only]
    modules = (
        import_module(f"build_pytorch.verify.checks.{_CATEGORIES[category]}") for category in wanted
    )
    return {category: module.CHECKS for category, module in zip(wanted, modules, strict=True)}


def all_checks() -> list[Check]:
    """Every check, in the order in which they are reported."""
    return [check for checks in categories().values() for check in checks]


def chosen(names: Collection[str]) -> list[Check]:
    """The checks of these ids and categories, or all. Raises BuildPytorchError for an unknown name."""
    if names and all(name in _CATEGORIES for name in names):
        return [check for checks in categories(names).values() for check in checks]
    every = categories()
    ids = [check.id for checks in every.values() for check in checks]
    for name in names:
        if name not in every and name not in ids:
            hint = near_miss(name, [*ids, *every]) or "; --list names them"
            raise BuildPytorchError(f'no check "{name}"{hint}')
    return [
        check
        for category, checks in every.items()
        for check in checks
        if not names or check.id in names or category in names
    ]


def verify(  # noqa: PLR0913 - what a person may ask of a verification
    matrix: Matrix,
    root: Path,
    *,
    variants: Sequence[Variant] | None = None,
    only: Collection[str] = (),
    strict: bool = False,
    pinned: bool = False,
    pages: Callable[[], Mapping[str, str]] | None = None,
) -> VerificationResult:
    """Run checks on the recipes and docs below a root. Nothing is written there.

    With a selection of variants, checks of the tree as a whole are left out.
    Raises BuildPytorchError for an unknown check, and for a pinned nixpkgs that cannot be had.
    """
    from build_pytorch.verify.check import Context

    context = Context(matrix, root, variants, pinned=pinned, pages=pages)
    # Nix takes longest: it works while the other categories are imported and look at the text.
    if not only or "evaluation" in only:
        from build_pytorch.verify import recipe_evaluation

        recipe_evaluation.prepare(context)

    from build_pytorch.verify.verify_reports import VerificationResult

    wanted = [
        check
        for check in chosen(only)
        if check.applies(context) and (context.is_whole or not check.needs_whole_tree)
    ]
    if not wanted:
        raise BuildPytorchError("these checks look at all variants; leave the patterns out")
    for module in dict.fromkeys(type(check).__module__ for check in wanted):
        # A category that asks other programs starts them all before the first check waits for one.
        if prepare := getattr(import_module(module), "prepare", None):
            prepare(context)
    outcomes = {check.id: check.run(context) for check in sorted(wanted, key=lambda c: c.waits)}
    return VerificationResult(context, [outcomes[check.id] for check in wanted], strict=strict)
