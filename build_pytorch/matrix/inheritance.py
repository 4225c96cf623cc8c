"""Releases that have the values of another one (`like`), and names that contain versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import digits, minor_version, underscored
from build_pytorch.matrix.matrix_errors import quoted, wrong
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
        if like == name:
            yield (
                ("release", name, "like"),
                wrong(f"{quoted(like)}, the release itself", "another one"),
            )
        elif not isinstance(other, dict):
            allowed = f"the key of a release{near_miss(like, releases)}"
            yield ("release", name, "like"), wrong(quoted(like), allowed)
        elif "like" in other:
            found = f"{quoted(like)}, which is like another one itself"
            yield ("release", name, "like"), wrong(found, "a release without `like`")
        else:
            base = {key: value for key, value in other.items() if key not in _OWN}
            releases[name] = _merged(base, release)
    for name, release in releases.items():
        if isinstance(release, dict):
            _replace_placeholders(name, release)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the values of another one where it has none."""
    merged = base | own
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
    return merged


def _replace_placeholders(name: str, release: dict[str, Any]) -> None:
    """Replace the placeholders of the folders and names of a release."""
    version = {
        table: values.get("version") if isinstance(values, dict) else None
        for table, values in release.items()
    }
    torch, python, cuda = (str(version.get(table) or "") for table in ("torch", "python", "cuda"))
    known = {
        "release": name,
        "torch": digits(minor_version(torch)),
        "python": digits(python),
        "cuda": underscored(cuda),
    }

    def replaced(value: Any) -> Any:  # noqa: ANN401 - any value of a matrix
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        if not isinstance(value, str):
            return value
        return re.sub(PLACEHOLDER, lambda match: known[match[1]] or match[0], value)

    for key in {"folder", "catalog", "names"} & release.keys():
        release[key] = replaced(release[key])
    if isinstance(companions := release.get("companion"), dict):
        release["companion"] = {
            key: {**table, "folder": replaced(table["folder"])}
            if isinstance(table, dict) and "folder" in table
            else table
            for key, table in companions.items()
        }
