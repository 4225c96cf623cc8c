"""`invoke log`: the log of the last build of a package, in a pager on a terminal."""

from __future__ import annotations

import os
import pydoc
import sys

from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.base.console import print_json, visible, write
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError, LinkError
from build_pytorch.cli.commands import LogOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.results.package_selection import chosen_package, last_log


class LogDocument(Struct, frozen=True):
    """What --json prints. `at` is when the build ended, or began if it has not ended, in UTC."""

    variant: str
    path: str  #: below the root of the checkout
    size: int  #: bytes
    at: str
    outcome: str  #: as in the ledger, or `not ended`


def run(options: LogOptions) -> int:
    """Show a log, on a terminal from its end. Raises BuildPytorchError if there is none."""
    matrix = matrix_reader.load(options.root)
    package = chosen_package(matrix, options.selection)
    path, build = last_log(matrix, package)
    try:
        data = files.read_below(options.root, path, files.LARGEST_LOG)
    except (OSError, LinkError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BuildPytorchError(f"{path}: cannot be read: {reason}") from None
    if options.json:
        outcome = build.outcome or "not ended"
        print_json(LogDocument(package.id, path, len(data), build.at, outcome), sys.stdout)
        return EXIT_OK
    text = data.decode(errors="replace").expandtabs()
    if not sys.stdout.isatty():
        write(sys.stdout, text)
        return EXIT_OK
    os.environ.setdefault("LESS", "+G")  # less begins at the end
    pydoc.pager(visible(text))
    return EXIT_OK
