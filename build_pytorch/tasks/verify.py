"""`invoke verify`: check recipes and docs, or say what a change rebuilds."""

from __future__ import annotations

import os
import sys

from invoke.context import Context

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.tasks.command import command, load, words


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
    from build_pytorch.results.package_state import chosen_packages
    from build_pytorch.tasks.phases import reference_pages
    from build_pytorch.verify import rebuilds, reports, verification

    screen = Screen(sys.stdout)
    if explain:
        reports.explain(explain, screen)
        return EXIT_OK
    matrix = load()
    chosen = {package.variant.path for package in chosen_packages(matrix, packages)}
    variants = tuple(variant for variant in matrix.variants if variant.path in chosen)
    if against:
        if only or pinned:
            raise BuildPytorchError("--against: runs no checks; leave --only and --pinned out")
        found = rebuilds.since(matrix, against, variants)
        if json:
            print_json(found, sys.stdout)
        else:
            rebuilds.show(found, screen, verbose=verbose)
        return EXIT_FINDINGS if strict and not found.is_none else EXIT_OK
    result = verification.verify(
        matrix,
        matrix.root,
        variants=variants,
        only=words(only),
        strict=strict,
        pinned=pinned,
        pages=reference_pages(),
    )
    if json:
        print_json(result, sys.stdout)
        return result.exit_code
    reports.show(result, screen, verbose=verbose)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        reports.print_annotations(result, sys.stdout)
    return result.exit_code
