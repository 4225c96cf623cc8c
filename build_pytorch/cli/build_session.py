"""The nox sessions `build(VARIANT)`: one variant each, with the options of `invoke build`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from build_pytorch.base.errors import EXIT_INTERRUPTED, EXIT_OK, BuildPytorchError
from build_pytorch.cli import build
from build_pytorch.cli.commands import COMMANDS, BuildCommandOptions
from build_pytorch.cli.declaration import options_from, parsed
from build_pytorch.cli.entry import guarded


def run_session(package: str, argv: Sequence[str]) -> tuple[int, str]:
    """Build one variant with the arguments after `--`.

    Returns the exit code, and why the variant is skipped, empty if it is not. `nox -s build`
    without `-- --all` is refused: it selects every variant, which is days of work.
    """
    command, skipped = COMMANDS["build"], ""
    arguments = parsed(command, argv, 'nox -s "build(VARIANT)" --')

    def run() -> int:
        nonlocal skipped
        if _selects_everything() and not arguments["all"]:
            raise BuildPytorchError(
                "`nox -s build` builds every variant; name one as in "
                '-s "build(sm120-avx512)", choose by tag as in -t sm120, or add -- --all'
            )
        try:
            given = {**arguments, "variants": [package]}
            return build.run(options_from(BuildCommandOptions, given))
        except build.NothingToBuildError as reason:
            skipped = str(reason)
            return EXIT_OK

    return guarded(run), skipped


def ends_nox(code: int) -> bool:
    """Return whether nox ends with this exit code; if not, it continues with the next session."""
    named = [word for word in _nox_words() if word.startswith("build(")]
    return code >= EXIT_INTERRUPTED or len(named) == 1 or _selects_everything()


def _selects_everything() -> bool:
    return "build" in _nox_words()


def _nox_words() -> list[str]:
    """Return the words of the command line before `--`, and the sessions of NOXSESSION."""
    words = " ".join(sys.argv[1:]).partition(" -- ")[0].replace("=", " ").split()
    return words + os.environ.get("NOXSESSION", "").split(",")
