"""Frozen values: what matrix.toml may say (the structs) and what follows from it (Variant).

The structs are the schema: `docs/matrix.schema.json` is generated from them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from build_pytorch.matrix.field_types import (
    Base64,
    BuilderUri,
    Capability,
    CudaFix,
    CudaVersion,
    DocPath,
    DriverVersion,
    FileName,
    Folder,
    Gib,
    GithubName,
    Hours,
    Jobs,
    Key,
    KeyFile,
    Level,
    Name,
    NixName,
    NonEmptyFlags,
    NonEmptyKeys,
    NonEmptyMacros,
    NonEmptyTexts,
    NonEmptyWords,
    NoRev40,
    NoSri,
    PatchName,
    Platform,
    Rev,
    Rev40,
    Size,
    Sri,
    Text,
    Url,
    Version,
    Word,
    Workload,
)

Trail = tuple[str | int, ...]
"""Where a value of matrix.toml stands: keys of tables and indices of arrays."""


class _TomlTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table: every key is known, a misspelled one is an error."""


class TorchSource(_TomlTable, frozen=True, kw_only=True):
    """The source that is built in place of the one nixpkgs has.

    `hash_of` is the rev that the hash was taken for: Nix reuses an old source without a word when
    only the rev changes.
    """

    version: Version
    owner: GithubName
    repo: GithubName
    rev: Rev
    fetcher: Literal["fetchFromGitHub"]
    submodules: bool
    hash: Sri
    hash_of: Rev


class NixpkgsConfig(_TomlTable, frozen=True, kw_only=True):
    """Names in nixpkgs' config that are set to true, for GPU and for CPU-only recipes."""

    gpu: tuple[NixName, ...]
    cpu: tuple[NixName, ...]


class Nixpkgs(_TomlTable, frozen=True, kw_only=True):
    """The nixpkgs revision that all recipes of a release import."""

    rev: Rev40
    fetcher: Literal["fetchTarball"]
    sha256: NoSri
    sha256_of: NoRev40
    retired: tuple[Rev40, ...] = ()
    config: NixpkgsConfig


class CudaToolkit(_TomlTable, frozen=True, kw_only=True):
    """The CUDA of a release: which package set provides it, and which fixes PyTorch needs on it."""

    version: CudaVersion
    package_set: NixName
    driver: DriverVersion
    fixes: tuple[CudaFix, ...] = ()


class Patch(_TomlTable, frozen=True, kw_only=True):
    """A patch for fetchpatch; the hash is the one of the patch as fetchpatch normalises it."""

    reason: Text
    name: PatchName
    url: Url
    fetcher: Literal["fetchpatch"]
    hash: Sri
    hash_of: Url


class PythonVersion(_TomlTable, frozen=True, kw_only=True):
    """The Python that the pin's python3Packages belongs to."""

    version: Version


class Names(_TomlTable, frozen=True, kw_only=True):
    """Parts of names: a recipe is PACKAGE-GPU-ID.nix or PACKAGE-CPU-ID.nix, its pname PNAME-..."""

    package: Name
    pname: Name
    gpu: Name
    cpu: Name


class ClosureBudget(_TomlTable, frozen=True, kw_only=True):
    """How large a built variant may be together with all that it needs at run time, in GiB."""

    gpu: Gib
    cpu: Gib


class Build(_TomlTable, frozen=True, kw_only=True):
    """Limits and needs of one build; sizes in GiB. What they are measured on stands beside them."""

    max_jobs: Jobs
    system_features: NonEmptyWords
    job_memory: Size
    reserved_memory: Size
    disk: Size
    core_hours: Hours
    closure_gib: ClosureBudget | None = None

    def cores(self, memory: float, cpus: int) -> int:
        """How many compile jobs fit: into so many GiB, on so many CPUs, and at least one."""
        fitting = int((memory - self.reserved_memory) // self.job_memory)
        return max(1, min(fitting, cpus, self.max_jobs))


class Builder(_TomlTable, frozen=True, kw_only=True):
    """A machine that Nix may hand builds to: a line of its machines file.

    `key` is the SSH key's file, `jobs` how many builds it takes at once, `host_key` the host's
    public key in base64. Nix manual, "Remote builds".
    """

    uri: BuilderUri
    platforms: Annotated[
        tuple[Platform, ...], Meta(min_length=1, description="a list with at least one platform")
    ]
    key: KeyFile | None = None
    jobs: Jobs = 1
    speed: Jobs = 1
    features: tuple[Word, ...] = ()
    host_key: Base64 | None = None

    @property
    def line(self) -> str:
        """The machine as Nix reads it."""
        features = ",".join(self.features) or "-"
        platforms = ",".join(self.platforms)
        words = [self.uri, platforms, self.key or "-", str(self.jobs), str(self.speed), features]
        return " ".join([*words, "-", *([self.host_key] if self.host_key else [])])


class Group(_TomlTable, frozen=True, kw_only=True):
    """A block of variants: every GPU architecture of it with every CPU ISA of it, in this order."""

    title: Text
    kind: Literal["gpu", "cpu-only"]
    platform: Platform
    gpu: tuple[Key, ...] = ()
    cpu: NonEmptyKeys


class Cleanup(_TomlTable, frozen=True, kw_only=True):
    """What becomes of a file that stood in the release's folder before this project did."""

    file: FileName
    action: Literal["delete", "rewrite", "keep"]
    reason: Text


class Release(_TomlTable, frozen=True, kw_only=True):
    """One PyTorch on one nixpkgs pin, one CUDA and one Python, with the variants built of it."""

    folder: Folder
    notes: DocPath
    torch: TorchSource
    nixpkgs: Nixpkgs
    cuda: CudaToolkit | None = None
    magma_patch: Patch | None = None
    python: PythonVersion
    names: Names
    build: Build
    group: Annotated[
        tuple[Group, ...], Meta(min_length=1, description="a list with at least one group")
    ]
    cleanup: tuple[Cleanup, ...] = ()


class GpuArchitecture(_TomlTable, frozen=True, kw_only=True):
    """A GPU architecture. `hosts` lists, for each platform that has it, the products there."""

    capability: Capability
    family: Text
    hosts: Annotated[
        dict[Platform, NonEmptyTexts],
        Meta(min_length=1, description="a platform with the products that exist for it"),
    ]
    first_cuda: CudaVersion
    last_cuda: CudaVersion | None = None

    @property
    def products(self) -> tuple[str, ...]:
        """The products of all platforms, in the order of the matrix."""
        return tuple(product for products in self.hosts.values() for product in products)


class CpuIsa(_TomlTable, frozen=True, kw_only=True):
    """A CPU ISA.

    `cpuinfo` are the flags of /proc/cpuinfo that together prove a CPU; `macros` are what a
    compiler predefines once it generates code for the ISA. `level` orders the ISAs of a platform:
    of those that a CPU has, the highest is recommended, unless one is `good_for` the work at hand.
    """

    title: Text
    platform: Platform
    level: Level
    good_for: tuple[Workload, ...] = ()
    flags: NonEmptyFlags
    cpuinfo: NonEmptyWords
    macros: NonEmptyMacros
    cpus: NonEmptyTexts
    lacking: tuple[Text, ...] = ()


class MatrixFile(_TomlTable, frozen=True, kw_only=True):
    """matrix.toml as it is written."""

    release: Annotated[dict[Key, Release], Meta(min_length=1, description="at least one release")]
    builder: tuple[Builder, ...] = ()
    gpu: dict[Key, GpuArchitecture]
    cpu: Annotated[dict[Key, CpuIsa], Meta(min_length=1, description="at least one CPU ISA")]


class Phase(StrEnum):
    """A slice of the plan; the value is its title."""

    CLEAN_UP = "clean up"
    GPU_X86 = "GPU x86"
    GPU_ARM = "GPU ARM"
    CPU_ONLY = "CPU-only"
    DOCS = "docs"

    @property
    def number(self) -> int:
        """1 to 5."""
        return list(Phase).index(self) + 1


class Variant(Struct, frozen=True, kw_only=True):
    """One PyTorch to build: a release, a GPU architecture or none, a CPU ISA."""

    release_name: str
    release: Release
    group: Group
    gpu_key: str | None
    gpu: GpuArchitecture | None
    cpu_key: str
    cpu: CpuIsa

    @property
    def id(self) -> str:
        """The short name people use: `sm120-avx512`, `cpu-avx2`."""
        return f"{self.gpu_key or 'cpu'}-{self.cpu_key}"

    @property
    def _suffix(self) -> str:
        names = self.release.names
        prefix = names.gpu if self.gpu else names.cpu
        return f"{prefix}-{self.gpu_key}-{self.cpu_key}" if self.gpu else f"{prefix}-{self.cpu_key}"

    @property
    def package(self) -> str:
        """The Flox package name, which is the stem of the recipe's file."""
        return f"{self.release.names.package}-{self._suffix}"

    @property
    def pname(self) -> str:
        """The derivation's pname; it says which PyTorch is inside."""
        return f"{self.release.names.pname}-{self._suffix}"

    @property
    def path(self) -> str:
        """The recipe's path below the root."""
        return f"{self.release.folder}/{self.package}.nix"

    @property
    def phase(self) -> Phase:
        """The phase of the plan that writes this variant's recipe."""
        if self.gpu is None:
            return Phase.CPU_ONLY
        return Phase.GPU_X86 if self.cpu.platform == "x86_64-linux" else Phase.GPU_ARM

    @property
    def impossible(self) -> str | None:
        """Why no machine has this pair of GPU and CPU, or None where one exists.

        Derived from the hosts in the matrix: a variant nobody can run is still generated,
        because the plan asks for the full block, yet it is never advertised.
        """
        if self.gpu is None or self.cpu.platform in self.gpu.hosts:
            return None
        real = " and ".join(self.gpu.hosts)
        return (
            f"no {self.cpu.platform} machine has {self.gpu_label}: "
            f"{', '.join(self.gpu.products)} on {real} only"
        )

    @property
    def products(self) -> tuple[str, ...]:
        """The GPUs it is for: those of its platform, or all where there is none on it."""
        if self.gpu is None:
            return ()
        return self.gpu.hosts.get(self.cpu.platform, self.gpu.products)

    @property
    def status(self) -> str:
        """`buildable` or `impossible-host`."""
        return "impossible-host" if self.impossible else "buildable"

    @property
    def gpu_label(self) -> str:
        """How people write the architecture: `SM120`; empty for CPU-only."""
        return (self.gpu_key or "").upper()


class Matrix(Struct, frozen=True, kw_only=True, eq=False):
    """A matrix.toml that was read and found consistent. Equal only to itself: a key."""

    releases: dict[str, Release]
    gpus: dict[str, GpuArchitecture]
    cpus: dict[str, CpuIsa]
    builders: tuple[Builder, ...]
    variants: tuple[Variant, ...]
    warnings: tuple[str, ...]
    """What is allowed and still worth mending, each with its place."""
    text: str
    """matrix.toml as it is written, for docs that quote it."""

    def of_release(self, name: str) -> tuple[Variant, ...]:
        """The variants of one release, in the order of its groups."""
        return tuple(v for v in self.variants if v.release_name == name)
