"""`invoke verify`: check recipes and docs and print the result."""

from __future__ import annotations

import os
import sys

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import VerifyOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.verify import verification


def run(options: VerifyOptions) -> int:
    """Verify the recipes and docs below a root, print the result, return the exit code.

    Raises BuildPytorchError for bad input and for a report that cannot be written.
    """
    screen = Screen(sys.stdout)
    if options.list or options.explain:
        _describe(screen, options.explain)
        return EXIT_OK
    matrix = matrix_reader.load()
    result = verification.verify(
        matrix,
        options.root,
        variants=select(matrix, options.variants),
        only=options.only,
        strict=options.strict,
        pinned=options.pinned,
        pages=reference_pages,
    )
    # Not before the verification, during which Nix works: every import ahead of it delays it.
    from build_pytorch.verify.verify_reports import github_annotations, write_junit, write_sarif

    for path, write in ((options.sarif, write_sarif), (options.junit, write_junit)):
        if path:
            try:
                write(result, path)
            except OSError as error:
                raise BuildPytorchError(f"{path}: cannot be written: {error.strerror}") from None
    if options.json:
        print_json(result.as_dict(), sys.stdout)
    else:
        result.print(screen)
        if options.github or os.environ.get("GITHUB_ACTIONS") == "true":
            for line in github_annotations(result):
                screen.line(line)
    return result.exit_code


def _describe(screen: Screen, name: str) -> None:
    found = verification.chosen([name] if name else [])
    width = max(len(check.id) for check in found)
    for check in found:
        screen.line(f"{check.id:<{width}}  {check.title}")
    if name:
        for label, text in (
            ("Why", found[0].why),
            ("To fix it", found[0].fix),
            ("Asked for by", found[0].source),
        ):
            screen.line(f"  {label}: {text}")
