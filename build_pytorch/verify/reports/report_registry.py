"""The formats of reports. Module FORMAT_report has the function `write(result, stream)`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final, TextIO

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.verify.verification import VerificationResult

FORMATS: Final = (
    "sarif",
    "junit",
    "json",
    "terminal",
    "github",
)
"""The options of `verify` that select a format have these names; a module is imported if asked."""


def write(report_format: str, result: VerificationResult, stream: TextIO) -> None:
    """Write a result in a format."""
    module = import_module(f"build_pytorch.verify.reports.{report_format}_report")
    module.write(result, stream)


def write_file(report_format: str, result: VerificationResult, path: Path) -> None:
    """Write a result in a format to a file. Raises BuildPytorchError."""
    try:
        with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            write(report_format, result, stream)
    except OSError as error:
        raise BuildPytorchError(f"{path}: cannot be written: {error.strerror}") from None
