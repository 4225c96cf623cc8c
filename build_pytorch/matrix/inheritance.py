"""Values that a release has of another one (`like`), and placeholders in its texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base.errors import near_miss
from build_pytorch.base.versions import digits, minor_version
from build_pytorch.matrix.field_types import Fault, quoted, wrong
from build_pytorch.matrix.known_hardware import OF_CUDA

PLACEHOLDER: Final = r"\{(release|torch|python|cuda)\}"
"""The key of the release, or digits of one of its versions."""
_OWN: Final = frozenset({"like", "notes", "cleanup"})
"""Keys that a release does not inherit."""
_WITH_GITHUB: Final = frozenset(
    {"owner", "repo", "rev", "submodules", "hash", "hash_of", "patches"}
)


def complete(raw: dict[str, Any]) -> Iterator[Fault]:
    """Complete the releases of a parsed matrix in place; yield each `like` that is wrong.

    Tables are merged, other values replaced. Values of a wrong type are left for the reader.
    """
    releases = raw.get("release")
    if not isinstance(releases, dict):
        return
    waiting = {name: own for name, own in releases.items() if isinstance(own, dict)}
    done: dict[str | None, dict[str, Any]] = {None: {}}
    while ready := [name for name, own in waiting.items() if _like(own) in done]:
        for name in ready:
            own = waiting.pop(name)
            base = {key: it for key, it in done[_like(own)].items() if key not in _OWN}
            done[name] = _merged(base, own)
    for name, own in waiting.items():  # an unknown one, or a circle
        found = wrong(quoted(own["like"]), "the key of another release, in no circle")
        yield ("release", name, "like"), f"{found}{near_miss(own['like'], filter(None, done))}"
    releases |= {name: _with_versions(name, own) for name, own in done.items() if name}


def _like(release: dict[str, Any]) -> str | None:
    """Return the release whose values this one has; a value of a wrong type is none."""
    other = release.get("like")
    return other if isinstance(other, str) else None


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the values of another one where it has none.

    A package of the pin has none of the values of a source in place of it.
    """
    left_out: set[str] = set()
    if own.get("source") == "nixpkgs":
        left_out |= _WITH_GITHUB
    if "driver" in base and "version" in own:  # of another CUDA
        left_out |= set(OF_CUDA)
    merged = {key: value for key, value in base.items() if key not in left_out} | own
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
    return merged


def _with_versions(name: str, release: dict[str, Any]) -> Any:  # noqa: ANN401 - values of TOML
    """Return a release with its key and its versions in place of the placeholders."""
    versions = {
        table: str(values.get("version") or "")
        for table, values in release.items()
        if isinstance(values, dict)
    }
    known = {
        "release": name,
        "torch": digits(minor_version(versions.get("torch", ""))),
        "python": digits(versions.get("python", "")),
        "cuda": digits(versions.get("cuda", ""), "_"),
    }

    def replaced(value: Any) -> Any:  # noqa: ANN401 - any value of TOML
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        if isinstance(value, list):
            return [replaced(each) for each in value]
        if not isinstance(value, str):
            return value
        return re.sub(PLACEHOLDER, lambda match: known[match[1]] or match[0], value)

    return replaced(release)
