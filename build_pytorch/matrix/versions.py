"""Dotted versions: their order, and the spellings that names use."""

from __future__ import annotations

import functools
import re
from operator import eq, ge, gt, le, lt
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

_COMPARISONS: Final = {"==": eq, "<=": le, ">=": ge, "<": lt, ">": gt}


def digits(version: str, separator: str = "") -> str:
    """Return a version without its dots: `120` for `12.0`, or `12_0` with a separator."""
    return version.replace(".", separator)


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
def order(version: str) -> Version:
    """Return a key that sorts versions as PEP 440 does: 2.11.0.dev20251222, 2.11.0rc1, 2.11.

    What follows a `+` does not count. Of a text that is no version, the leading numbers do.
    """
    try:
        return Version(version.partition("+")[0])
    except InvalidVersion:
        return Version(".".join(map(str, numbers(version))) or "0")


@functools.lru_cache(maxsize=4096)
def in_range(version: str, bounds: str) -> bool:
    """Return whether a version is within all bounds, such as 12.9 in `>=12.8, <13.0`.

    A nightly and a candidate are below their release: 2.11.0.dev20251222 is in `<2.11`.
    """
    value = order(version)
    limits = SpecifierSet(bounds)
    return all(_COMPARISONS[it.operator](value, order(it.version)) for it in limits)
