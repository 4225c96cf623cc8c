"""`invoke verify`: check recipes and docs, or say what a change rebuilds."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load, words

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen


@command(texts={"only": "names of checks or categories, with commas: run only these"})
def verify(
    c: Context,
    packages: str = "",
    only: str = "",
    strict: bool = False,
    pinned: bool = False,
    against: str = "",
    explain: str = "",
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Check recipes and docs; exit 1 on errors."""
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
    from build_pytorch.matrix.selection import variants_of
    from build_pytorch.results.package_selection import chosen_packages
    from build_pytorch.tasks.reference_pages import reference_pages
    from build_pytorch.verify import reports, verification

    screen = Screen(sys.stdout)
    if explain:
        _explain(screen, explain)
        return EXIT_OK
    matrix = load()
    variants = variants_of(chosen_packages(matrix, packages))
    if against:
        from build_pytorch.tasks import rebuild_report

        if only or pinned:
            raise BuildPytorchError("--against: runs no checks; leave --only and --pinned out")
        return rebuild_report.run(matrix, variants, against, strict, verbose, json)
    result = verification.verify(
        matrix,
        matrix.root,
        variants=variants,
        only=words(only),
        strict=strict,
        pinned=pinned,
        pages=reference_pages,
    )
    if json:
        print_json(reports.document(result), sys.stdout)
        return result.exit_code
    reports.show(result, screen, verbose=verbose)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        reports.print_annotations(result, sys.stdout)
    return result.exit_code


def _explain(screen: Screen, name: str) -> None:
    """Print the checks of an id or category: title, why, and how to fix a finding.

    Raises BuildPytorchError for an unknown name, and prints all checks.
    """
    from build_pytorch.verify import registry

    every = registry.chosen()
    is_known = name in {*registry.CATEGORIES, *(check.id for check in every)}
    found = registry.chosen([name]) if is_known else every
    width = max(len(check.id) for check in found) + 2
    for check in found:
        screen.fold(f"{check.id:<{width}}", check.title, indent=width)
    if len(found) == 1:
        screen.fold("  Why: ", found[0].why, indent=7)
        screen.fold("  Fix: ", found[0].fix, indent=7)
    registry.chosen([name])
