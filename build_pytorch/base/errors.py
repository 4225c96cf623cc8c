"""The one error root. Whatever is raised from it ends as one line on stderr and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

EXIT_OK: Final = 0
EXIT_FINDINGS: Final = 1
"""Findings, refused files, or (with --check) something that would change."""
EXIT_BAD_INPUT: Final = 2
"""Wrong arguments, a wrong matrix.toml, a missing program, a folder that cannot be written."""
EXIT_UNPROVED: Final = 3
"""Nothing failed, and nothing was proved either: skipped, not run, or run on another GPU only."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as shells count it: 128 + SIGINT."""


class BuildPytorchError(Exception):
    """An expected error. Its text says what is wrong, where, and what to do; no traceback."""

    exit_code = EXIT_BAD_INPUT


class MatrixError(BuildPytorchError):
    """matrix.toml cannot be read, or says something that cannot be true."""


class ToolError(BuildPytorchError):
    """Another program is missing, or failed where it should not."""


class WriteError(BuildPytorchError):
    """A file could not be written, or another run is writing."""


class TemplateError(BuildPytorchError):
    """A template cannot be rendered."""


def near_miss(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` where something known is close to the word, else nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
