"""Which sources of a matrix a command takes, and the place of GitHub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.hashed_sources import Source
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.source_tables import GITHUB

GITHUB_VARIABLE: Final = "BUILD_PYTORCH_GITHUB"
"""Environment variable with another base URL for GitHub: a mirror, or a server in a test."""


def sources(matrix: Matrix, only: Sequence[str] = (), release: str = "") -> list[Source]:
    """Return the sources of all releases or of one, or those with some names.

    Raises BuildPytorchError for a name that none has, and for no such release.
    """
    found = matrix.sources()
    if release:
        require_release(matrix, release)
        found = [source for source in found if _is_of(matrix, release, source)]
    names = list(dict.fromkeys(source.name for source in found))
    for name in only:
        if name not in names:
            hint = near_miss(name, names) or f"; there are {', '.join(names)}"
            raise BuildPytorchError(f'no source "{name}"{hint}')
    return [source for source in found if not only or source.name in only]


def _is_of(matrix: Matrix, name: str, source: Source) -> bool:
    """Return whether a release uses a source; it may inherit its table."""
    release = matrix.releases[name]
    kind, key, *place = source.place
    if kind == "pin":
        return key == release.nixpkgs.pin
    if kind == "patch":
        return any(source.table in v.effects.patches for v in matrix.of_release(name))
    is_same = release.hashed.get(tuple(map(str, place))) == source.table
    return key in {name, release.like} and is_same


def mirrored(url: str) -> str:
    """Return a URL with the base URL for GitHub that is in use."""
    return url.replace(GITHUB, os.environ.get(GITHUB_VARIABLE, GITHUB).rstrip("/"), 1)


def arguments(source: Source) -> dict[str, str | bool]:
    """Return the arguments of the Nix function that fetches a source."""
    given = source.table.arguments
    return given | ({"url": mirrored(str(given["url"]))} if "url" in given else {})
