"""Exit codes and expected errors, which end as one message on stderr and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

EXIT_OK: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_BAD_INPUT: Final = 2


class BuildPytorchError(Exception):
    """Root of expected errors: the text is what is wrong, where, and what to do.

    A line that is indented has details of the one before, any other is an error of its own.
    """


class MatrixError(BuildPytorchError):
    """matrix.toml is unreadable or invalid."""


class NothingSelectedError(BuildPytorchError):
    """No package is in a state that was asked for: nothing to do, which is no error."""


class ToolError(BuildPytorchError):
    """Another program is missing or failed."""


class WriteError(BuildPytorchError):
    """A file cannot be written, or another run holds the lock."""


def near_miss(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `; did you mean "X"?` if a known word is close to `word`, else an empty text."""
    close = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=cutoff)
    return f'; did you mean "{close[0]}"?' if close else ""
