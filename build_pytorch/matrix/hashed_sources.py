"""The one list of what has a hash in matrix.toml.

A new kind of source is a struct below `HashedTable` in source_tables.py, and a field of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_SOURCE, HashedTable, Patch, Pin
from build_pytorch.matrix.tables import Release

FAKE: Final = "sha256-" + "A" * 43 + "="
"""The hash that Nix assumes for an empty one."""


class Source(Struct, frozen=True, kw_only=True):
    """A table of matrix.toml with a hash, and the first release that uses it."""

    name: str  #: for `invoke prefetch --only`, such as torch
    release: str
    place: Trail  #: the path of the table in matrix.toml
    table: HashedTable
    pin: Pin  #: the nixpkgs whose functions fetch it
    may_wait: bool
    """Whether a missing hash is a note and no finding: each move of a nightly needs another one."""
    hash: str  #: of matrix.toml; empty if it is not taken yet
    taken_for: str  #: the revision or URL that the hash must belong to
    recorded: str  #: the revision or URL that matrix.toml has for its hash

    @property
    def trail(self) -> Trail:
        """The path of the hash in matrix.toml."""
        return (*self.place, self.table.hash_key)

    @property
    def label(self) -> str:
        """The name with the revision or URL, for messages."""
        return f"{self.name} ({self.table.arguments.get('rev') or self.table.address})"

    @property
    def specified(self) -> str:
        """The hash that Nix expects, as it reports it if it finds another one; "" for any."""
        return self.hash or ("" if self.table.function == "fetchTarball" else FAKE)

    def values(self, taken: str) -> dict[Trail, str]:
        """Return the values of matrix.toml that record a hash."""
        of = (*self.place, f"{self.table.hash_key}_of")
        return {self.trail: taken, of: self.taken_for}


def sources(
    releases: Mapping[str, Release],
    pins: Mapping[str, Pin],
    patches: Mapping[str, Patch],
    patch_users: Mapping[str, str],
) -> list[Source]:
    """Return the sources of each release that it does not inherit, with its pin; then patches.

    `patch_users` has the first release that uses a patch, by key; by default the first one.
    """
    found: list[Source] = []

    def add(release: str, place: Trail, table: HashedTable, *, may_wait: bool) -> None:
        source = Source(
            name=table.source_name or str(place[-1]),
            release=release,
            place=place,
            table=table,
            pin=pins[releases[release].nixpkgs.pin],
            may_wait=may_wait,
            hash=getattr(table, table.hash_key),
            taken_for=getattr(table, table.revision_key),
            recorded=getattr(table, f"{table.hash_key}_of"),
        )
        found.append(source)

    pin_users: dict[str, str] = {}
    for name, release in releases.items():
        inherited = releases[release.like].hashed if release.like else {}
        for place, table in release.hashed.items():
            if inherited.get(place) != table:
                may_wait = release.torch.is_nightly or table.source_name == CUDA_PACKAGES_SOURCE
                add(name, ("release", name, *place), table, may_wait=may_wait)
        key = release.nixpkgs.pin
        if pin_users.setdefault(key, name) == name:
            add(name, ("pin", key), pins[key], may_wait=True)
    for key, patch in patches.items():
        add(patch_users.get(key, next(iter(releases))), ("patch", key), patch, may_wait=False)
    return found
