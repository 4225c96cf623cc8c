"""`invoke log`: the log of the last build of a package, in a pager on a terminal."""

from __future__ import annotations

import os
import pydoc
import sys

from invoke.context import Context

from build_pytorch.tasks.command import command, load


@command
def log(c: Context, package: str) -> None:
    """Show the log of the last build of a package."""
    from build_pytorch.base import files
    from build_pytorch.base.console import visible, write
    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.results.package_selection import chosen_package, last_log

    matrix = load()
    path = last_log(matrix, chosen_package(matrix, package))
    try:
        data = files.read_below(matrix.root, path, files.LARGEST_LOG)
    except OSError as error:
        raise BuildPytorchError(f"{path}: cannot be read: {error.strerror}") from None
    text = data.decode(errors="replace").expandtabs()
    if sys.stdout.isatty():
        os.environ.setdefault("LESS", "+G")  # less begins at the end
        pydoc.pager(visible(text))
    else:
        write(sys.stdout, text)
