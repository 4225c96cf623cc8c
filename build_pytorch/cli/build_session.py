"""The nox sessions `build(VARIANT)`: one variant each, with the options of `invoke build`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from build_pytorch.base import paths
from build_pytorch.base.errors import EXIT_INTERRUPTED, EXIT_OK
from build_pytorch.cli import build
from build_pytorch.cli.commands import BuildCommandOptions
from build_pytorch.cli.declaration import options_from
from build_pytorch.cli.entry import guarded, read_calls, run_calls


def run_session(variant: str, argv: Sequence[str]) -> tuple[int, str]:
    """Build one variant with the arguments after `--`.

    Returns the exit code, and why the variant is skipped, empty if it is not.
    """
    skipped = ""

    def run() -> int:
        nonlocal skipped
        ((command, given),) = read_calls(["build", *argv])
        if "help" in given:
            return run_calls([(command, given)])
        given["variants"] = [variant]
        try:
            return build.run(options_from(BuildCommandOptions, given, paths.PROJECT))
        except build.NothingToBuildError as reason:
            skipped = str(reason)
            return EXIT_OK

    return guarded(run), skipped


def ends_nox(code: int) -> bool:
    """Return whether nox ends with this exit code; if not, it continues with the next session."""
    words = " ".join(sys.argv[1:]).partition(" -- ")[0].replace("=", " ").split()
    words += os.environ.get("NOXSESSION", "").split(",")
    return code >= EXIT_INTERRUPTED or sum(word.startswith("build(") for word in words) == 1
