"""`invoke log`: the log of the last build of a package."""

from __future__ import annotations

import sys

from invoke.context import Context

from build_pytorch.tasks.command import command, load


@command
def log(c: Context, package: str) -> None:
    """Show the log of the last build of a package."""
    from build_pytorch.base import files
    from build_pytorch.base.console import write
    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.results.package_selection import chosen_package, last_log

    matrix = load()
    path = last_log(matrix, chosen_package(matrix, package))
    try:
        data = files.read_below(matrix.root, path, files.LARGEST_LOG)
    except OSError as error:
        raise BuildPytorchError(f"{path}: cannot be read: {error.strerror}") from None
    write(sys.stdout, data.decode(errors="replace").expandtabs())
