"""Exit codes and expected errors, which end as one message on stderr and an exit code."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable
from typing import Final

EXIT_OK: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_UNDECIDED: Final = 3

ENDINGS: Final = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
"""What a command says that a signal ended; its exit code is 128 and the number."""

EXIT_CODES: Final = {
    EXIT_OK: "Done.",
    EXIT_FINDINGS: "Findings of severity error, refused files, or `--check` found something to do. "
    "`build`: a package was not built, also because it would fail again. "
    "`publish`: one was refused or failed. `recommend`: nothing published uses the GPU. "
    "`doctor`: wrong. `outdated --check`: something is newer. Also a command or an option that "
    "Invoke does not know.",
    EXIT_BAD_INPUT: "Bad input: a wrong value of an option, an unknown package, a wrong "
    "matrix.toml, a missing program, a folder that cannot be written. Nothing was changed.",
    EXIT_UNDECIDED: "`smoke`, `inspect`: nothing failed, but not everything was tested.",
    128 + signal.SIGINT: "Interrupted by Ctrl-C (143: by SIGTERM; 129: the terminal was closed).",
}
"""The meaning of each exit code, as the reference page lists them."""


def exit_code_of(outcomes: Iterable[str]) -> int:
    """Return the exit code of tests: 0 if all passed, 1 if one failed, else 3."""
    found = set(outcomes)
    if "failed" in found:
        return EXIT_FINDINGS
    return EXIT_OK if found == {"passed"} else EXIT_UNDECIDED


class BuildPytorchError(Exception):
    """Root of expected errors: the text is what is wrong, where, and what to do.

    A line that is indented has details of the one before, any other is an error of its own.
    """

    exit_code = EXIT_BAD_INPUT


class MatrixError(BuildPytorchError):
    """matrix.toml is unreadable or invalid."""


class NothingSelectedError(BuildPytorchError):
    """No package is in a state that was asked for: nothing to do, which is no error."""


class ToolError(BuildPytorchError):
    """Another program is missing or failed."""


class WriteError(BuildPytorchError):
    """A file cannot be written, or another run holds the lock."""


class TemplateError(BuildPytorchError):
    """A template cannot be rendered."""


def near_miss(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `; did you mean "X"?` if a known word is close to `word`, else an empty text."""
    close = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=cutoff)
    return f'; did you mean "{close[0]}"?' if close else ""
