"""`invoke verify`: check recipes and docs and print the result."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

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

    Raises BuildPytorchError for bad input and for a report that cannot be written.
    """
    if options.list or options.explain:
        _describe(Screen(sys.stdout), options.explain)
        return EXIT_OK
    if options.against or options.expect:
        from build_pytorch.cli import rebuild_report

        return rebuild_report.run(options)
    given = msgspec.structs.asdict(options)
    named = {n: value for n, value in given.items() if isinstance(value, Path) and n != "root"}
    if named:
        from build_pytorch.verify import reports

        reports.check_files(named)  # first, as a verification may take minutes
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
    _print(result, options, named)
    return result.exit_code


def _print(result: VerificationResult, options: VerifyOptions, named: dict[str, Path]) -> None:
    """Print a result in the wanted formats and write it to the named files."""
    # Not at the top: every import ahead of the verification delays the start of Nix.
    from build_pytorch.verify import reports

    given = msgspec.structs.asdict(options)
    printed = {"json"} if options.json else {name for name in given if given[name] is True}
    if not options.json:
        screen = Screen(sys.stdout)
        reports.show(result, screen, verbose=options.verbose)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            printed.add("github")
    for name, write in reports.FORMATS.items():
        if name in named:
            reports.write_file(name, result, named[name])
        elif name in printed:
            write(result, sys.stdout)


def _describe(screen: Screen, name: str) -> None:
    found = registry.chosen([name] if name else [])
    width = max(len(check.id) for check in found) + 2
    for check in found:
        screen.fold(f"{check.id:<{width}}", check.title, indent=width)
    if name:
        screen.fold("  Why: ", found[0].why, indent=7)
        screen.fold("  Fix: ", found[0].fix, indent=7)
