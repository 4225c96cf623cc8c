"""Dotted versions: comparison and the spellings that names and compilers use."""

from __future__ import annotations

from packaging.version import Version

__all__ = ["Version", "digits", "minor_version", "underscored"]


def digits(version: str) -> str:
    """Return a version without its dots: such as `120` for `12.0`."""
    return version.replace(".", "")


def underscored(version: str) -> str:
    """Return a version with underscores for dots: such as `12_9` for `12.9`."""
    return version.replace(".", "_")


def minor_version(version: str) -> str:
    """Return the major and minor number: such as `2.9` for `2.9.1`."""
    return ".".join(version.split(".")[:2])
