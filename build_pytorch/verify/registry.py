"""All checks by category, the selection by id or category, and the reference page of all checks."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Final, NamedTuple

from build_pytorch.base import digest
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.verify.check import Check, CheckList


class Category(NamedTuple):
    """What the checks of a category look at, and the modules in checks/ that hold them."""

    about: str
    modules: tuple[str, ...]


CATEGORIES: Final = {
    "matrix": Category("Whether the rules of matrix.toml are needed and agree.", ("matrix_rules",)),
    "text": Category(
        "Which recipe files exist, and the text of each, however broken.",
        ("text_files", "text_contents"),
    ),
    "generated": Category(
        "Whether recipes and docs are what the matrix and the templates yield, and their numbers "
        "are true.",
        ("generated",),
    ),
    "compiler": Category(
        "Whether a gcc of each platform and an nvcc of the release's CUDA, where installed, "
        "accept the flags and GPU architectures of the matrix.",
        ("compiler",),
    ),
    "syntax": Category(
        "Whether recipes are valid Nix, by `nix-instantiate --parse`; skipped without Nix.",
        ("syntax",),
    ),
    "evaluation": Category(
        "What recipes evaluate to, unchanged and offline, against a model of nixpkgs that comes "
        "with the project. Needs Nix.",
        ("evaluation_identity", "evaluation_build"),
    ),
    "hooks": Category(
        "What the build hooks of recipes do: they run in Bash with stand-ins for the source; "
        "variables, files and numbers of jobs are compared with the matrix. Needs Nix.",
        ("hooks",),
    ),
}
"""The categories in the order of runs and reports: those that wait for Nix come last.

A module is imported if one of its checks is wanted.
"""


def checks_of(category: str) -> list[Check]:
    """Return the checks of a category."""
    found: list[Check] = []
    for module in CATEGORIES[category].modules:
        checks: CheckList = import_module(f"build_pytorch.verify.checks.{module}").CHECKS
        found += checks
    return found


def chosen(names: Collection[str] = ()) -> list[Check]:
    """Return the checks of these ids and categories, or all, in the order of reports.

    Raises BuildPytorchError for an unknown name.
    """
    # Without ids, the modules of other categories are not imported.
    categories = [name for name in CATEGORIES if name in names or not set(names) <= {*CATEGORIES}]
    checks = [(name, check) for name in categories or CATEGORIES for check in checks_of(name)]
    known = [check.id for _, check in checks] + list(CATEGORIES)
    for name in names:
        if name not in known:
            hint = near_miss(name, known) or "; `invoke verify --explain list` prints all"
            raise BuildPytorchError(f'no check or category "{name}"{hint}')
    return [check for name, check in checks if not names or name in names or check.id in names]


def reference_page() -> str:
    """Return the reference page of all checks, with its digest."""
    lines = [
        "# The checks",
        "",
        "<!-- Generated from build_pytorch/verify/checks/ by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "`invoke verify` runs all of them, `invoke verify --only NAME` a check or a category.",
        "`invoke verify --explain NAME` says what one requires, why, and how to fix a finding;",
        "with an unknown name it lists all. No check shows that a recipe builds.",
        "",
        "| category | what it looks at | checks |",
        "|---|---|---|",
    ]
    for name, category in CATEGORIES.items():
        checks = ", ".join(f"`{check.id}`" for check in checks_of(name))
        lines.append(f"| {name} | {category.about} | {checks} |")
    return digest.seal("\n".join(lines) + "\n")
