"""What is fetched: the tables of matrix.toml that name it, and companion_versions.toml.

That file has the packages that may be companions, and their versions by PyTorch.
"""

from __future__ import annotations

import functools
import tomllib
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import files
from build_pytorch.base.versions import digits, in_range, numbers, underscored
from build_pytorch.matrix import field_types as ft

CUDA_PACKAGES = ("cudatoolkit", "cudnn", "nccl", "libcusparse_lt")
"""The CUDA packages that `packages_from` of a release replaces."""
CUDA_PACKAGES_SOURCE = "cuda-packages"
"""The name of `packages_from` among the sources of `invoke prefetch`."""
CUDA_PACKAGES_VARIABLE = "CUDA_TOOLKIT_REPO"
"""Environment variable with a local checkout in place of the repository of `packages_from`."""
GITHUB = "https://github.com"


class TomlTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table; an unknown key is an error."""


# --- what may be a companion ---

_REPOSITORIES = {"torch": "pytorch/pytorch", "triton": "triton-lang/triton"}


class KnownCompanion(TomlTable, frozen=True, kw_only=True):
    """A package that may be a companion; the file explains the fields."""

    title: ft.Text
    repository: ft.Text
    folder: ft.Text
    libraries: str
    main: tuple[str, ...]
    device_code: tuple[str, ...]
    no_device_code: ft.Range | None = None


class KnownVersions(TomlTable, frozen=True, kw_only=True):
    """The versions of a package, each with the versions of PyTorch that it is for."""

    source: ft.Origin
    checked: ft.Date
    torch: dict[ft.Version, ft.Range]


class _CompanionVersions(TomlTable, frozen=True, kw_only=True):
    companion: dict[str, KnownCompanion]
    versions: dict[str, KnownVersions]


@functools.cache
def _companion_versions() -> _CompanionVersions:
    text = files.own_text(__package__, "companion_versions.toml")
    return msgspec.convert(tomllib.loads(text), _CompanionVersions)


def known_companions() -> dict[str, KnownCompanion]:
    """Return the packages that may be companions, by their name in nixpkgs."""
    return _companion_versions().companion


def repository_of(package: str) -> tuple[str, str]:
    """Return owner and repository on GitHub of torch, triton or a companion."""
    known = known_companions().get(package)
    owner, _, repo = (known.repository if known else _REPOSITORIES[package]).partition("/")
    return owner, repo


def required_torch(package: str, version: str) -> str | None:
    """Return the versions of PyTorch that a version of a companion or of triton is for.

    It is such as `==2.10.0` or `>=2.14.0`; None if unknown.
    """
    known = _companion_versions().versions.get(package)
    return known.torch.get(version) if known else None


def version_for(torch: str, package: str) -> str | None:
    """Return the newest version of a companion or of triton for a PyTorch; None if unknown.

    None is known for a nightly, which has the ABI of no release.
    """
    known = {} if ".dev" in torch else _companion_versions().versions[package].torch
    fitting = [version for version, bounds in known.items() if in_range(torch, bounds)]
    return max(fitting, key=numbers, default=None)


# --- tables ---


class HashedTable(TomlTable, frozen=True, kw_only=True):
    """A table with a source and its hash; `HASH_of` beside it has the revision of the hash."""

    function: ClassVar[str]
    """The Nix function that fetches the source."""
    hash_key: ClassVar[str] = "hash"
    source_name: ClassVar[str] = ""
    """Its name for `invoke prefetch --only`; empty: the key of the table."""

    @property
    def address(self) -> str:
        """The URL of the source."""
        raise NotImplementedError

    @property
    def revision(self) -> str:
        """What the hash must belong to: the revision, or the URL of a patch."""
        return str(getattr(self, "rev"))  # noqa: B009 - a field of most subclasses

    @property
    def arguments(self) -> dict[str, str | bool]:
        """The arguments of the Nix function, without the hash."""
        return {"url": self.address}


class PackageSource(HashedTable, frozen=True, kw_only=True):
    """A package of the pinned nixpkgs, or another source in place of it."""

    function: ClassVar[str] = "fetchFromGitHub"

    version: ft.Version  #: version of the package
    source: Literal["nixpkgs", "github"] = "github"  #: nixpkgs: that of the pin with its patches
    owner: ft.GithubName = ""  #: GitHub owner; this and the keys below only for source github
    repo: ft.GithubName = ""  #: GitHub repository
    rev: ft.Rev = ""  #: tag of the version, or a commit
    submodules: bool = False  #: whether the hash covers the submodules
    hash: ft.NoSri = ""  #: hash of the source tree
    hash_of: ft.NoRev = ""  #: rev of the hash: Nix reuses an old source if only rev changes

    @property
    def is_of_pin(self) -> bool:
        """Whether the recipes keep the package of the pin, with its source and its patches."""
        return self.source == "nixpkgs"

    @property
    def address(self) -> str:
        """The URL of the repository."""
        return f"{GITHUB}/{self.owner}/{self.repo}"

    @property
    def arguments(self) -> dict[str, str | bool]:
        """The arguments of fetchFromGitHub."""
        place: dict[str, str | bool] = {"owner": self.owner, "repo": self.repo, "rev": self.rev}
        return {**place, "fetchSubmodules": self.submodules}


class TorchSource(PackageSource, frozen=True, kw_only=True):
    """The PyTorch that is built: that of the pinned nixpkgs, or another source in place of it."""

    version: ft.TorchVersion  #: version of PyTorch; of a nightly such as 2.11.0.dev20251222
    triton_rev: ft.NoRev40 = ""  #: commit of Triton that a nightly names; "" if not known

    @property
    def is_nightly(self) -> bool:
        """Whether it is a revision of a moving branch, not a release."""
        return ".dev" in self.version

    @property
    def nightly_day(self) -> str:
        """The day of a nightly, such as 20251222; empty for a release."""
        return self.version.partition(".dev")[2]


class Companion(PackageSource, frozen=True, kw_only=True):
    """A package that is compiled against the PyTorch of each variant of the release.

    "none" in place of the table leaves out one that the release would inherit.
    """

    patches: Literal["keep", "clear"] = "keep"  #: the patches that the pin has for its own version
    unconfirmed: ft.Text | None = None  #: what nobody has confirmed, such as by a build


# msgspec leaves the allowed keys of a table out of the schema.
Companions = Annotated[
    dict[str, Companion | Literal["none"]],
    Meta(extra_json_schema={"propertyNames": {"enum": list(known_companions())}}),
]


class CudaSetFacts(TomlTable, frozen=True, kw_only=True):
    """What one CUDA package set of a pin contains. What is empty is not known."""

    cccl: Literal["cuda_cccl", "cccl"] | None = None  #: package with the CCCL headers
    capabilities: tuple[ft.Capability, ...] = ()  #: capabilities that packages have code for
    broken: tuple[ft.Text, ...] = ()  #: conditions for which torch is marked as broken on it

    @property
    def unforgiven(self) -> tuple[str, ...]:
        """The conditions that recipes do not forgive: Nix refuses to evaluate such a torch."""
        return tuple(each for each in self.broken if each != "Unsupported CUDA version")


class PinFacts(TomlTable, frozen=True, kw_only=True):
    """What a pin contains beside its versions. What is empty is not known."""

    of: ft.Rev40  #: the revision that has them
    pythons: tuple[ft.Python3, ...] = ()  #: Pythons with packages
    magma_patches: tuple[ft.Content, ...] = ()  #: names of the patches of MAGMA
    torch_patches: tuple[ft.Content, ...] = ()  #: names of the patches of torch with CUDA
    cuda_sets: dict[ft.NixName, CudaSetFacts] = {}
    unconfirmed: ft.Text | None = None  #: which of them nobody has confirmed by an evaluation


class Pin(HashedTable, frozen=True, kw_only=True):
    """A revision of nixpkgs and what it contains. Evaluation checks rely on these facts."""

    function: ClassVar[str] = "fetchTarball"
    hash_key: ClassVar[str] = "sha256"
    source_name: ClassVar[str] = "nixpkgs"

    rev: ft.Rev40  #: the revision
    sha256: ft.NoSri = ""  #: hash of the unpacked tarball; without it Nix sees no changed tarball
    sha256_of: ft.NoRev40 = ""  #: revision of the hash
    date: ft.Text  #: date of the revision, as exactly as it is known
    torch: ft.Version  #: version of python3Packages.torch
    python: ft.Python3  #: version of python3Packages
    cuda: dict[ft.NixName, ft.CudaVersion] = {}  #: CUDA package sets with the version of each
    has: tuple[ft.Word, ...] = ()  #: fixes that it contains, by the names that rules use
    source: ft.Origin  #: where these facts are from
    checked: ft.Date  #: date of the last comparison with the source
    unconfirmed: ft.Text | None = None  #: which of these facts nobody has confirmed
    facts: PinFacts | None = None

    @property
    def address(self) -> str:
        """The URL of the tarball."""
        return f"{GITHUB}/NixOS/nixpkgs/archive/{self.rev}.tar.gz"

    @property
    def doubts(self) -> str:
        """What nobody has confirmed of it; `invoke prefetch --only nixpkgs` does."""
        unsure = [it.unconfirmed for it in (self, self.facts) if it and it.unconfirmed]
        return f"not confirmed: {'; '.join(unsure)}" if unsure else ""

    def contents(self, *, keeps_torch: bool) -> frozenset[str]:
        """Return the names of its fixes and patches; those of torch where its source is kept."""
        facts = self.facts or PinFacts(of=self.rev)
        own = facts.torch_patches if keeps_torch else ()
        return frozenset((*self.has, *facts.magma_patches, *own))

    @property
    def cccl(self) -> str:
        """The package with the CCCL headers in its CUDA package sets."""
        sets = self.facts.cuda_sets.values() if self.facts else ()
        return next((known.cccl for known in sets if known.cccl), "cuda_cccl")

    def cuda_facts(self, package_set: str) -> CudaSetFacts:
        """Return the facts of a CUDA package set; empty ones if they are not known."""
        known = self.facts.cuda_sets if self.facts else {}
        return known.get(package_set, CudaSetFacts())

    def python_set(self, version: str) -> str:
        """Return the package set of a Python: python3Packages or, such as, python311Packages."""
        return "python3Packages" if version == self.python else f"python{digits(version)}Packages"


class Nixpkgs(TomlTable, frozen=True, kw_only=True):
    """The nixpkgs that all recipes of a release import."""

    pin: ft.Key  #: key of the pin
    retired: tuple[ft.Rev40, ...] = ()  #: earlier revisions that no recipe may contain
    config: tuple[ft.NixName, ...]  #: options that are true in its config, beside those of rules


class CudaPackages(HashedTable, frozen=True, kw_only=True):
    """The source of some CUDA packages of the variants that end in `-wrapper`.

    It is a repository with a file `.flox/pkgs/PACKAGE-CUDA.nix` for each, such as
    cudnn-13_0.nix, or a folder with copies of these files. Each GPU variant of the release has a
    second variant then, which takes cudatoolkit, cudnn, nccl and libcusparse_lt from there.
    """

    function: ClassVar[str] = "fetchTarball"
    source_name: ClassVar[str] = CUDA_PACKAGES_SOURCE

    owner: ft.GithubName = ""  #: GitHub owner of the repository; this and the keys below: no folder
    repo: ft.GithubName = ""  #: GitHub repository; the variable CUDA_TOOLKIT_REPO replaces it
    rev: ft.NoRev40 = ""  #: its revision; never a branch
    hash: ft.NoSri = ""  #: hash of the unpacked tarball; without one no build begins
    hash_of: ft.NoRev40 = ""  #: revision of the hash
    same_of: ft.NoRev40 = ""  #: revision whose four packages are those of the pin
    unconfirmed: ft.Text | None = None  #: what nobody has confirmed, such as by a download
    folder: ft.Folder | None = None  #: a folder of this repository with copies of the files

    @property
    def address(self) -> str:
        """The URL of the tarball."""
        return f"{GITHUB}/{self.owner}/{self.repo}/archive/{self.rev}.tar.gz"


class CudaToolkit(TomlTable, frozen=True, kw_only=True):
    """The CUDA of a release; absent in a release without GPU recipes."""

    version: ft.CudaVersion  #: version of CUDA
    package_set: ft.NixName  #: nixpkgs package set that provides it
    driver: ft.DriverVersion  #: oldest Linux driver that runs it
    packages_from: CudaPackages | None = None  #: other source of some of its packages

    def package_file(self, package: str) -> str:
        """Return the name of the file with a package of another source: cudnn-13_0.nix."""
        return f"{package}-{underscored(self.version)}.nix"


class Patch(HashedTable, frozen=True, kw_only=True):
    """A patch that rules apply to a package of nixpkgs."""

    function: ClassVar[str] = "fetchpatch"
    source_name: ClassVar[str] = "patch"

    package: Literal["magma"]  #: the patched package
    reason: ft.Text  #: why the patch is needed; a comment in the recipes
    name: ft.PatchName  #: file name of the patch
    url: ft.Url  #: address of the patch
    hash: ft.NoSri  #: hash of the patch as fetchpatch normalises it
    hash_of: ft.NoUrl  #: address of the hashed patch

    @property
    def address(self) -> str:
        """The URL of the patch."""
        return self.url

    @property
    def revision(self) -> str:
        """The URL of the patch."""
        return self.url

    @property
    def arguments(self) -> dict[str, str | bool]:
        """The arguments of fetchpatch."""
        return {"name": self.name, "url": self.url}
