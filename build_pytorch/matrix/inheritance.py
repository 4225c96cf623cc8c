"""Releases that have the values of another one (`like`), and names that contain versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import digits, minor_version, underscored
from build_pytorch.matrix.matrix_errors import quoted
from build_pytorch.matrix.tables import Trail

PLACEHOLDER: Final = r"\{(release|torch|python|cuda)\}"
"""The key of the release, or digits of one of its versions, in a folder or a name."""
_OWN: Final = frozenset({"like", "notes", "cleanup"})
"""Keys that a release does not inherit."""


def apply(raw: dict[str, Any]) -> Iterator[tuple[Trail, str]]:
    """Complete the releases of a parsed matrix in place; yield each `like` that is wrong.

    Tables are merged, other values replaced. Values of a wrong type are left for the reader.
    """
    releases = raw.get("release")
    if not isinstance(releases, dict):
        return
    for name, release in releases.items():
        like = release.get("like") if isinstance(release, dict) else None
        if not isinstance(like, str):
            continue
        other = releases.get(like)
        found = f"found {quoted(like)}"
        if like == name:
            yield ("release", name, "like"), f"{found}, the release itself; allowed: another one"
        elif not isinstance(other, dict):
            hint = near_miss(like, releases)
            yield ("release", name, "like"), f"{found}; allowed: the key of a release{hint}"
        elif "like" in other:
            what = f"{found}, which is like another one itself; allowed: a release without `like`"
            yield ("release", name, "like"), what
        else:
            base = {key: value for key, value in other.items() if key not in _OWN}
            releases[name] = _merged(base, release)
    for name, release in releases.items():
        if isinstance(release, dict):
            releases[name] = _with_versions(name, release)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the values of another one where it has none."""
    merged = base | own
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
    return merged


def _with_versions(name: str, release: dict[str, Any]) -> dict[str, Any]:
    """Return a release with the placeholders of its folder and its names replaced."""

    def version(table: str) -> str:
        values = release.get(table)
        found = values.get("version") if isinstance(values, dict) else None
        return found if isinstance(found, str) else ""

    known = {
        "release": name,
        "torch": digits(minor_version(version("torch"))),
        "python": digits(version("python")),
        "cuda": underscored(version("cuda")),
    }

    def replaced(value: Any) -> Any:  # noqa: ANN401 - any value of a matrix
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        if not isinstance(value, str) or "{" not in value:
            return value
        return re.sub(PLACEHOLDER, lambda match: known[match[1]] or match[0], value)

    scheme: dict[str, Any] = {
        key: replaced(release[key]) for key in ("folder", "catalog", "names") if key in release
    }
    if isinstance(companions := release.get("companion"), dict):
        scheme["companion"] = {
            key: each | {"folder": replaced(each["folder"])}
            if isinstance(each, dict) and "folder" in each
            else each
            for key, each in companions.items()
        }
    return release | scheme
