"""`invoke publish`: publish built packages with Flox, one after the other."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final, get_args

from msgspec import Struct

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import PublishOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.field_types import Platform
from build_pytorch.publish.publication import Publication, Publishing, publish
from build_pytorch.results.package_selection import chosen_packages

_COLOURS: Final = {"publish": "green", "refused": "red"}


class PublishDocument(Struct, frozen=True, kw_only=True):
    """What --json prints."""

    variants: list[Publication]
    exit_code: int


def run(options: PublishOptions) -> int:
    """Publish packages that are built and have evidence. Return the exit code.

    Raises BuildPytorchError for a wrong or a missing selection.
    """
    if not options.selection.is_narrow:
        raise BuildPytorchError("name what to publish, such as 'cpu-*' or 'sm120-*'")
    if options.system not in {"", *get_args(Platform)}:
        known_ones = " or ".join(get_args(Platform))
        raise BuildPytorchError(f'--system: found "{options.system}"; allowed: {known_ones}')
    matrix = matrix_reader.load(options.root)
    how = Publishing(
        organization=options.org or matrix.publisher,
        system=options.system,
        without_evidence=options.without_evidence,
    )
    packages = chosen_packages(matrix, options.selection)
    screen = Screen(sys.stderr if options.json else sys.stdout)
    rows = publish(options.root, packages, how, dry_run=True, say=screen.line)
    said = ((row.action, row.variant, row.reason) for row in rows)
    screen.plan(said, _COLOURS, verbose=options.verbose)
    if not options.dry_run and any(row.action == "publish" for row in rows):
        rows = publish(options.root, packages, how, dry_run=False, say=screen.line)
    counts = Counter(row.action for row in rows)
    screen.line(", ".join(f"{number} {action}" for action, number in counts.items()))
    code = EXIT_FINDINGS if counts["refused"] + counts["failed"] else EXIT_OK
    if options.json:
        print_json(PublishDocument(variants=rows, exit_code=code), sys.stdout)
    return code
