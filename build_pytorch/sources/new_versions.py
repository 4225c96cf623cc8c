"""The versions that a release moves to, as options of commands name them."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import field_types
from build_pytorch.matrix.field_types import misfits
from build_pytorch.sources.nightly import NightlyCommit


class NewVersions(Struct, frozen=True, kw_only=True):
    """The versions to move to. What is None stays as it is."""

    torch: field_types.Version | None = None
    nixpkgs: str | None = None  #: a revision, or the key of a pin
    cuda: field_types.CudaVersion | None = None
    python: field_types.Python3 | None = None
    commit: NightlyCommit | None = None  #: the new source of a nightly
    without: tuple[str, ...] = ()  #: companions to leave out

    @property
    def words(self) -> str:
        """The versions, in words."""
        if self.commit:
            return f"{self.commit.version} {self.commit.rev}"
        given = {name: getattr(self, name) for name in ("torch", "nixpkgs", "cuda", "python")}
        words = [f"{name} {version}" for name, version in given.items() if version]
        return " and ".join([*words, *(f"no {name}" for name in self.without)])


def new_versions(**versions: str | tuple[str, ...]) -> NewVersions:
    """Return the versions that are not empty. Raises BuildPytorchError for a malformed one."""
    given = {name: version for name, version in versions.items() if version}
    for (name, *_), what in misfits(given, NewVersions):
        raise BuildPytorchError(f"--{name}: {what}")
    return msgspec.convert(given, NewVersions)


def new_name(name: str) -> str:
    """Return the key of a new release. Raises BuildPytorchError for a malformed one."""
    for _, what in misfits(name, field_types.Key):
        raise BuildPytorchError(f"name of the release: {what}")
    return name
