"""Spellings of dotted versions that names and compilers use.

Versions are compared with `packaging.version.Version`. It takes 5 ms to import and is therefore not
imported on the path of every command.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from collections.abc import Callable
from typing import Final

NEWEST: Final = "newest"
"""In place of a version or a revision: the newest one."""

_ENDING: Final = re.compile(r"[0-9.]*[0-9](?:\.dev([0-9]{1,9})|rc([0-9]{1,9}))?")

_Comparison = Callable[[tuple[int, ...], tuple[int, ...]], bool]
_COMPARISONS: Final[dict[str, _Comparison]] = {
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def digits(version: str) -> str:
    """Return a version without its dots: such as `120` for `12.0`."""
    return version.replace(".", "")


def underscored(version: str) -> str:
    """Return a version with underscores for dots: such as `12_9` for `12.9`."""
    return version.replace(".", "_")


def minor_version(version: str) -> str:
    """Return the major and minor number: such as `2.9` for `2.9.1`."""
    return ".".join(version.split(".")[:2])


@functools.lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a text from outside, for comparing; never raises.

    For `2.9.1+cu130` (2, 9, 1); empty if the text begins with no number.
    """
    found = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


@functools.lru_cache(maxsize=4096)
def order(version: str) -> tuple[int, ...]:
    """Return a key that sorts versions as PEP 440 does: 2.11.0.dev20251222, 2.11.0rc1, 2.11.

    Missing numbers are 0. A text from outside that begins with no number sorts first.
    """
    major, minor, patch = (*numbers(version)[:3], 0, 0, 0)[:3]
    found = _ENDING.match(version)
    dev, candidate = found.groups() if found else (None, None)
    stage = (0, int(dev)) if dev else (1, int(candidate)) if candidate else (2, 0)
    return (major, minor, patch, *stage)


def plain_capability(capability: str) -> str:
    """Return the compute capability of the GPU itself: such as `12.1` for code for `12.1a`."""
    return capability.rstrip("af")


def is_revision(text: str) -> bool:
    """Return whether a text is a full Git revision, 40 hex digits."""
    return re.fullmatch("[0-9a-f]{40}", text) is not None


def in_range(version: str, bounds: str) -> bool:
    """Return whether a version is within all bounds, such as 12.9 in `>=12.8, <13.0`.

    A nightly and a candidate are below their release: 2.11.0.dev20251222 is in `<2.11`.
    """
    value = order(version)
    return all(compare(value, limit) for compare, limit in _limits(bounds))


@functools.cache
def _limits(bounds: str) -> tuple[tuple[_Comparison, tuple[int, ...]], ...]:
    limits = []
    for bound in bounds.replace(" ", "").split(","):
        operation = next(text for text in _COMPARISONS if bound.startswith(text))
        limits.append((_COMPARISONS[operation], order(bound.removeprefix(operation))))
    return tuple(limits)


def own_version() -> str:
    """Return the version of this program; 0 if it runs without being installed."""
    from importlib import metadata  # 20 ms

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("build-pytorch")
    return "0"
