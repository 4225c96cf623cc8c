"""`invoke verify`: check recipes and docs and print the result."""

from __future__ import annotations

import os
import sys

from build_pytorch.base import console
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.cli.commands import VerifyOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import variants_of
from build_pytorch.results.package_selection import chosen_packages
from build_pytorch.verify import registry, verification
from build_pytorch.verify.verification import VerificationResult


def run(options: VerifyOptions) -> int:
    """Verify the recipes and docs below a root, print the result, return the exit code.

    Raises BuildPytorchError for bad input.
    """
    if options.list or options.explain:
        _describe(Screen(sys.stdout), options.explain)
        return EXIT_OK
    if options.against or options.expect:
        from build_pytorch.cli import rebuild_report

        return rebuild_report.run(options)
    matrix = matrix_reader.load(options.root)
    variants = variants_of(chosen_packages(matrix, options.selection))
    result = verification.verify(
        matrix,
        options.root,
        variants=variants,
        only=options.only,
        strict=options.strict,
        pinned=options.pinned,
        pages=reference_pages,
    )
    _print(result, options)
    return result.exit_code


def _print(result: VerificationResult, options: VerifyOptions) -> None:
    """Print a result in the wanted formats."""
    # Not at the top: every import ahead of the verification delays the start of Nix.
    from build_pytorch.verify import reports

    if options.json:
        console.print_json(reports.document(result), sys.stdout)
    else:
        reports.show(result, Screen(sys.stdout), verbose=options.verbose)
    is_github = os.environ.get("GITHUB_ACTIONS") == "true" and not options.json
    if options.github or is_github:
        reports.print_annotations(result, sys.stdout)


def _describe(screen: Screen, name: str) -> None:
    found = registry.chosen([name] if name else [])
    width = max(len(check.id) for check in found) + 2
    for check in found:
        screen.fold(f"{check.id:<{width}}", check.title, indent=width)
    if name:
        screen.fold("  Why: ", found[0].why, indent=7)
        screen.fold("  Fix: ", found[0].fix, indent=7)
