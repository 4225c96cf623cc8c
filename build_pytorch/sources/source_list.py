"""What a matrix downloads, as far as hashes are concerned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Release, Trail

Fetcher = Literal["fetchFromGitHub", "fetchTarball", "fetchpatch"]

GITHUB: Final = "https://github.com"
GITHUB_VARIABLE: Final = "BUILD_PYTORCH_GITHUB"
"""Environment variable with another base URL for GitHub: a mirror, or a server in a test."""


class Source(Struct, frozen=True, kw_only=True):
    """Something with a hash in matrix.toml: how Nix fetches it, and where the hash stands.

    `taken_for` is what the hash is of (a rev or a URL), `recorded` what matrix.toml says it was
    taken for.
    """

    name: str
    release: str
    fetcher: Fetcher
    url: str
    rev: str = ""
    submodules: bool = False
    patch_name: str = ""
    pin: str = ""
    hash: str
    taken_for: str
    recorded: str
    hash_trail: Trail
    recorded_trail: Trail

    @property
    def label(self) -> str:
        """How people name it: `torch`, and what of it."""
        return f"{self.name} ({self.rev or self.url})"

    @property
    def request(self) -> tuple[str, ...]:
        """What is fetched. Sources with the same request are fetched once."""
        return (self.fetcher, self.url, self.rev, str(self.submodules), self.patch_name)


def sources(matrix: Matrix, only: tuple[str, ...] = ()) -> list[Source]:
    """The sources of all releases, or those of some names.

    Raises BuildPytorchError for a name that no release has.
    """
    every = [s for name, release in matrix.releases.items() for s in _of(name, release)]
    names = list(dict.fromkeys(source.name for source in every))
    for name in only:
        if name not in names:
            hint = near_miss(name, names) or f"; there are {', '.join(names)}"
            raise BuildPytorchError(f'no source "{name}"{hint}')
    return [source for source in every if not only or source.name in only]


def github() -> str:
    """The base URL of GitHub, without a slash at its end."""
    return os.environ.get(GITHUB_VARIABLE, GITHUB).rstrip("/")


def _of(name: str, release: Release) -> Iterator[Source]:
    at: Trail = ("release", name)
    torch, nixpkgs, patch = release.torch, release.nixpkgs, release.magma_patch
    tarball = f"{github()}/NixOS/nixpkgs/archive/{nixpkgs.rev}.tar.gz"
    yield Source(
        name="torch",
        release=name,
        fetcher=torch.fetcher,
        url=f"{github()}/{torch.owner}/{torch.repo}",
        rev=torch.rev,
        submodules=torch.submodules,
        hash=torch.hash,
        taken_for=torch.rev,
        recorded=torch.hash_of,
        hash_trail=(*at, "torch", "hash"),
        recorded_trail=(*at, "torch", "hash_of"),
    )
    yield Source(
        name="nixpkgs",
        release=name,
        fetcher=nixpkgs.fetcher,
        url=tarball,
        hash=nixpkgs.sha256,
        taken_for=nixpkgs.rev,
        recorded=nixpkgs.sha256_of,
        hash_trail=(*at, "nixpkgs", "sha256"),
        recorded_trail=(*at, "nixpkgs", "sha256_of"),
    )
    if patch:
        yield Source(
            name="magma_patch",
            release=name,
            fetcher=patch.fetcher,
            url=patch.url.replace(GITHUB, github(), 1),
            patch_name=patch.name,
            pin=tarball,
            hash=patch.hash,
            taken_for=patch.url,
            recorded=patch.hash_of,
            hash_trail=(*at, "magma_patch", "hash"),
            recorded_trail=(*at, "magma_patch", "hash_of"),
        )
