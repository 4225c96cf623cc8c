"""The sources of a matrix: what has a hash, and how Nix fetches it.

A new source is one entry of `KINDS`; a new Nix function is one case of `_request`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_SOURCE, CudaPackages, Pin
from build_pytorch.matrix.tables import Trail

GITHUB: Final = "https://github.com"
GITHUB_VARIABLE: Final = "BUILD_PYTORCH_GITHUB"
"""Environment variable with another base URL for GitHub: a mirror, or a server in a test."""


KINDS: Final = {
    "torch": ("hash", "rev"),
    "torchvision": ("hash", "rev"),
    "torchaudio": ("hash", "rev"),
    "triton": ("hash", "rev"),
    CUDA_PACKAGES_SOURCE: ("hash", "rev"),
    "nixpkgs": ("sha256", "rev"),
    "patch": ("hash", "url"),
}
"""The names of sources with two keys of their tables: that of the hash, and that of the revision or
URL that the hash must belong to. The key of the hash with `_of` added has the one that it was taken
for."""


FAKE: Final = "sha256-" + "A" * 43 + "="
"""The hash that Nix assumes for an empty one."""


class Source(Struct, frozen=True, kw_only=True):
    """A source with a hash.

    Nix fetches it with `function` (as `fetchFromGitHub`) and `arguments`, from the nixpkgs at
    `pin`. `recorded` is the revision or URL that matrix.toml has for its hash.
    """

    name: str
    release: str
    function: str
    arguments: dict[str, str | bool]
    url: str
    rev: str
    pin: str
    hash: str
    taken_for: str
    recorded: str
    trail: Trail
    """The path of the hash in matrix.toml."""

    @property
    def label(self) -> str:
        """The name with the revision or URL, for messages."""
        return f"{self.name} ({self.rev or self.url})"

    @property
    def specified(self) -> str:
        """The hash that Nix expects, as it reports it if it finds another one; "" for any."""
        return self.hash or ("" if self.function == "fetchTarball" else FAKE)

    @property
    def shape(self) -> str:
        """`tree` (Git with submodules), `archive` (Git without), `tarball` or `other`."""
        if self.function == "fetchFromGitHub":
            return "tree" if self.arguments["fetchSubmodules"] else "archive"
        return "tarball" if self.function == "fetchTarball" else "other"

    @property
    def request(self) -> tuple[str, ...]:
        """What is fetched. Sources with the same request are fetched once."""
        return (self.function, self.url, *map(str, self.arguments.items()))


def sources(matrix: Matrix, only: tuple[str, ...] = (), release: str = "") -> list[Source]:
    """Return the sources of all releases or of one, or those with some names.

    Raises BuildPytorchError for a name that none has, and for no such release.
    """
    found = list(_sources(matrix))
    if release:
        require_release(matrix, release)
        tables = _tables(matrix, release)
        found = [source for source in found if source.trail[:-1] in tables]
    names = list(dict.fromkeys(source.name for source in found))
    for name in only:
        if name not in names:
            hint = near_miss(name, names) or f"; there are {', '.join(names)}"
            raise BuildPytorchError(f'no source "{name}"{hint}')
    return [source for source in found if not only or source.name in only]


def _tables(matrix: Matrix, name: str) -> set[Trail]:
    """Return the tables with the sources of a release, some of which may be inherited."""
    release = matrix.releases[name]
    tables: set[Trail] = {("pin", release.nixpkgs.pin)}
    used = [patch for v in matrix.variants if v.release is release for patch in v.effects.patches]
    tables |= {("patch", key) for key, patch in matrix.patches.items() if patch in used}
    ancestor: str | None = name
    while ancestor:
        its = matrix.releases[ancestor]
        for place, source in release.sources.items():
            if its.sources.get(place) == source:
                tables.add(("release", ancestor, *place))
        if its.cuda and release.cuda and its.cuda.packages_from == release.cuda.packages_from:
            tables.add(("release", ancestor, "cuda", "packages_from"))
        ancestor = its.like
    return tables


def _sources(matrix: Matrix) -> Iterator[Source]:
    """Yield the torch, the companions and the pin of each release, each once, then the patches."""
    first: dict[str, str] = {}
    for name, release in matrix.releases.items():
        pin = matrix.pins[key := release.nixpkgs.pin]
        base = matrix.releases[release.like].sources if release.like else {}
        for place, source in release.sources.items():
            if not source.is_of_pin and source != base.get(place):  # not an inherited one
                yield _source(place[-1], name, source, pin, ("release", name, *place))
        packages = release.cuda.packages_from if release.cuda else None
        if packages and not packages.is_copied and packages != _inherited_packages(matrix, name):
            table: Trail = ("release", name, "cuda", "packages_from")
            yield _source(CUDA_PACKAGES_SOURCE, name, packages, pin, table)
        if first.setdefault(key, name) == name:
            yield _source("nixpkgs", name, pin, pin, ("pin", key))
    for key, patch in matrix.patches.items():
        users = [v for v in matrix.variants if patch in v.effects.patches]
        user = users[0] if users else matrix.variants[0]
        yield _source("patch", user.release_name, patch, user.pin, ("patch", key))


def _inherited_packages(matrix: Matrix, name: str) -> CudaPackages | None:
    """Return the source of CUDA packages of the release that a release is like."""
    like = matrix.releases[name].like
    cuda = matrix.releases[like].cuda if like else None
    return cuda.packages_from if cuda else None


def _source(name: str, release: str, values: Any, pin: Pin, table: Trail) -> Source:  # noqa: ANN401
    hash_key, taken_for = KINDS[name]
    url, arguments = _request(values)
    return Source(
        name=name,
        release=release,
        function=values.fetcher,
        arguments=arguments,
        url=url,
        rev=str(arguments.get("rev", "")),
        pin=_tarball(pin),
        hash=getattr(values, hash_key),
        taken_for=getattr(values, taken_for),
        recorded=getattr(values, f"{hash_key}_of"),
        trail=(*table, hash_key),
    )


def _request(values: Any) -> tuple[str, dict[str, str | bool]]:  # noqa: ANN401 - any such table
    """Return the URL of a table's source and the arguments of its Nix function."""
    match values.fetcher:
        case "fetchFromGitHub":
            names = {"owner": values.owner, "repo": values.repo, "rev": values.rev}
            url = f"{_github()}/{values.owner}/{values.repo}"
            return url, {**names, "fetchSubmodules": values.submodules}
        case "fetchTarball":
            url = _tarball(values)
            return url, {"url": url}
        case _:
            url = values.url.replace(GITHUB, _github(), 1)
            return url, {"name": values.name, "url": url}


def _tarball(values: Pin | CudaPackages) -> str:
    """Return the URL of the tarball of a pin, or of the repository of CUDA packages."""
    if isinstance(values, Pin):
        return f"{_github()}/NixOS/nixpkgs/archive/{values.rev}.tar.gz"
    return f"{_github()}/{values.owner}/{values.repo}/archive/{values.rev}.tar.gz"


def _github() -> str:
    """Return the base URL of GitHub, without a slash at its end."""
    return os.environ.get(GITHUB_VARIABLE, GITHUB).rstrip("/")
