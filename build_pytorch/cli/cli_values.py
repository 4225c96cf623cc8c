"""What people give as options: text that becomes a number, and empty text that is a mistake."""

from __future__ import annotations

from pathlib import Path

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError


def text(option: str, value: str | None) -> str:
    """The text of an option, empty where it was not given.

    Raises BuildPytorchError where it was given and is empty: then it came from a variable that was
    not set, and what is meant nobody knows.
    """
    if value is not None and not value.strip():
        raise BuildPytorchError(
            f"{option}: found nothing, as from a variable that was not set; "
            "give it a value or leave it out"
        )
    return value or ""


def path(option: str, value: str | None) -> Path | None:
    """The path of an option, None where it was not given. Raises as `text` does."""
    return Path(text(option, value)) if value is not None else None


def root(value: str | Path | None) -> Path:
    """The folder that --root names, or this checkout. Raises BuildPytorchError where it is none."""
    if isinstance(value, str):
        value = path("--root", value)
    return paths.checked_root(value or paths.PROJECT)


def integer(option: str, value: str | int) -> int:
    """A whole number. Raises BuildPytorchError for anything else."""
    try:
        return int(value)
    except ValueError:  # also for thousands of digits
        raise BuildPytorchError(
            f'{option}: found "{_short(str(value))}"; allowed: a whole number'
        ) from None


def number(option: str, value: str | float) -> float:
    """A number. Raises BuildPytorchError for anything else."""
    try:
        return float(value)
    except ValueError:
        raise BuildPytorchError(
            f'{option}: found "{_short(str(value))}"; allowed: a number'
        ) from None


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."  # noqa: PLR2004 - fits a line
