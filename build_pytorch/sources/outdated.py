"""What is newer than the matrix: the releases of PyTorch and the branch of nixpkgs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from build_pytorch.base.versions import Version
from build_pytorch.matrix.model import Matrix
from build_pytorch.sources.github import NIXPKGS, GitHub, newest_version

BRANCH: Final = "nixos-unstable"


class UpstreamVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest version of a source of a release, beside ours; `date` is that of a commit."""

    release: str
    name: str
    ours: str
    newest: str
    newer: bool
    date: str = ""


def upstream_versions(matrix: Matrix) -> Iterator[UpstreamVersion]:
    """Compare each release with GitHub. Raises ToolError if GitHub does not answer."""
    github = GitHub()
    for name, release in matrix.releases.items():
        ours = release.torch.version
        newest = newest_version(github.releases(release.torch.owner, release.torch.repo))
        yield UpstreamVersion(
            release=name,
            name="torch",
            ours=ours,
            newest=newest or "?",
            newer=newest is not None and Version(newest) > Version(ours),
        )
        ours = release.nixpkgs.rev
        rev, date = github.head(*NIXPKGS, BRANCH)
        yield UpstreamVersion(
            release=name, name="nixpkgs", ours=ours, newest=rev, newer=rev != ours, date=date
        )
