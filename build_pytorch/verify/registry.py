"""All checks by category, and the selection of checks by id or category."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Final, NamedTuple

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.verify.check import CheckList, VerifyCheck


class Category(NamedTuple):
    """What the checks of a category look at, and the modules in checks/ that hold them."""

    about: str
    modules: tuple[str, ...]


CATEGORIES: Final = {
    "text": Category(
        "Which recipe files exist, and their text. Works on any file, however broken.",
        ("text_files", "text_contents", "text_mistakes"),
    ),
    "syntax": Category(
        "Whether recipes are valid Nix with a correct structure: `nix-instantiate --parse` where "
        "Nix is installed, tree-sitter elsewhere and for the structure.",
        ("syntax",),
    ),
    "evaluation": Category(
        "What recipes evaluate to: one `nix-instantiate --eval` over all of them, unchanged and "
        "offline, against a model of nixpkgs that comes with the project. Needs Nix.",
        ("evaluation_identity", "evaluation_cuda", "evaluation_build"),
    ),
    "compiler": Category(
        "Whether a real gcc of each platform and a real nvcc of the release's CUDA accept the "
        "flags and GPU architectures of the matrix. A compiler that is missing or of another "
        "version is skipped.",
        ("compiler",),
    ),
    "generated": Category(
        "Whether recipes and docs are what the matrix and the templates yield, and whether the "
        "numbers in the docs are true. The only category that calls the renderer.",
        ("generated",),
    ),
}
"""The categories in the order of reports. A module is imported if one of its checks is wanted."""


def checks_of(category: str) -> list[VerifyCheck]:
    """Return the checks of a category."""
    lists: list[CheckList] = [
        import_module(f"build_pytorch.verify.checks.{module}").CHECKS
        for module in CATEGORIES[category].modules
    ]
    return [check for checks in lists for check in checks]


def chosen(names: Collection[str] = ()) -> list[VerifyCheck]:
    """Return the checks of these ids and categories, or all, in the order of reports.

    Raises BuildPytorchError for an unknown name.
    """
    # Without ids, the modules of other categories are not imported.
    is_categories = bool(names) and all(name in CATEGORIES for name in names)
    categories = [name for name in CATEGORIES if not is_categories or name in names]
    checks = {category: checks_of(category) for category in categories}
    known = [check.id for found in checks.values() for check in found] + list(CATEGORIES)
    for name in names:
        if name not in known:
            hint = near_miss(name, known) or "; --list prints all checks"
            raise BuildPytorchError(f'no check or category "{name}"{hint}')
    return [
        check
        for category, found in checks.items()
        for check in found
        if not names or category in names or check.id in names
    ]
