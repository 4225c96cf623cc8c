"""The types of matrix.toml, and the variants that follow from it.

docs/reference/matrix.schema.json and docs/reference/matrix.md are generated from the structs: the
meaning of a table is its docstring, the meaning of a key is the `#:` comment beside it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Struct

from build_pytorch.base.versions import digits, numbers
from build_pytorch.matrix import field_types as ft

Trail = tuple[str | int, ...]
"""The path of a value in matrix.toml: keys of tables and indices of arrays."""


class _TomlTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table; an unknown key is an error."""


class TorchSource(_TomlTable, frozen=True, kw_only=True):
    """The PyTorch source that is built in place of the one in nixpkgs."""

    version: ft.Version  #: version of PyTorch
    owner: ft.GithubName  #: GitHub owner
    repo: ft.GithubName  #: GitHub repository
    rev: ft.Rev  #: tag of the version, or a commit
    fetcher: Literal["fetchFromGitHub"]  #: Nix fetcher; determines what the hash covers
    submodules: bool  #: whether the hash covers the submodules
    hash: ft.NoSri  #: hash of the source tree
    hash_of: ft.NoRev  #: rev of the hash: Nix reuses an old source if only rev changes


class NixpkgsConfig(_TomlTable, frozen=True, kw_only=True):
    """Options that are set to true in the config of nixpkgs."""

    gpu: tuple[ft.NixName, ...]  #: options for GPU recipes
    cpu: tuple[ft.NixName, ...]  #: options for CPU-only recipes


class Nixpkgs(_TomlTable, frozen=True, kw_only=True):
    """The nixpkgs revision that all recipes of a release import."""

    rev: ft.Rev40  #: the pinned revision
    fetcher: Literal["fetchTarball"]  #: Nix fetcher
    sha256: ft.NoSri  #: hash of the unpacked tarball
    sha256_of: ft.NoRev40  #: revision of the hash
    retired: tuple[ft.Rev40, ...] = ()  #: earlier pins that no recipe may contain
    config: NixpkgsConfig


class CudaToolkit(_TomlTable, frozen=True, kw_only=True):
    """The CUDA of a release; absent in a release without GPU recipes."""

    version: ft.CudaVersion  #: version of CUDA
    package_set: ft.NixName  #: nixpkgs package set that provides it
    driver: ft.DriverVersion  #: oldest Linux driver that runs it
    fixes: tuple[ft.CudaFix, ...] = ()  #: changes that PyTorch needs to build on it

    def source_fixes(self, gpu: GpuArchitecture) -> tuple[ft.CudaFix, ...]:
        """Return the fixes that change the source of a build for a GPU architecture."""
        changes = ("find-cuda-toolkit-stub", "cupti-paths", "codegen-condition")
        return tuple(
            fix
            for fix in self.fixes
            if fix in changes and (fix != "codegen-condition" or gpu.codegen_base)
        )


class Patch(_TomlTable, frozen=True, kw_only=True):
    """A patch that the pinned MAGMA needs to compile."""

    reason: ft.Text  #: why the patch is needed; a comment in the recipes
    name: ft.PatchName  #: file name of the patch
    url: ft.Url  #: address of the patch
    fetcher: Literal["fetchpatch"]  #: Nix fetcher
    hash: ft.NoSri  #: hash of the patch as fetchpatch normalises it
    hash_of: ft.NoUrl  #: address of the hashed patch


class PythonVersion(_TomlTable, frozen=True, kw_only=True):
    """The Python of the release."""

    version: ft.Version  #: version of python3Packages in the pinned nixpkgs


class Names(_TomlTable, frozen=True, kw_only=True):
    """Parts of the names: a recipe is PACKAGE-GPU-ID.nix or PACKAGE-CPU-ID.nix."""

    package: ft.Name  #: first part of the package name
    pname: ft.Name  #: first part of the derivation's pname
    gpu: ft.Name  #: second part of both names for GPU variants
    cpu: ft.Name  #: second part of both names for CPU-only variants


class ClosureBudget(_TomlTable, frozen=True, kw_only=True):
    """Maximum size in GiB of a built variant with everything that it needs at run time."""

    gpu: ft.Gib  #: limit for GPU variants
    cpu: ft.Gib  #: limit for CPU-only variants


class Build(_TomlTable, frozen=True, kw_only=True):
    """Limits and requirements of one build."""

    max_jobs: ft.Jobs  #: maximum number of parallel compile jobs
    system_features: ft.NonEmptyWords  #: requiredSystemFeatures of the derivation
    job_memory: ft.Size  #: peak memory of one compile job in GiB
    reserved_memory: ft.Size  #: memory in GiB that is left to the system
    disk: ft.Size  #: disk space in GiB for sources, objects and the result
    core_hours: ft.Hours  #: CPU core hours of one build
    cuda_host_flags: bool = False  #: compile the CPU code in .cu files with the flags of the ISA
    require_builder_feature: bool = False  #: add builder_feature of the ISA to system_features
    closure_gib: ClosureBudget | None = None

    def memory(self, jobs: int, cores: int) -> float:
        """Return the memory in GiB of so many builds at once, with so many compile jobs each."""
        return (self.reserved_memory + self.job_memory * cores) * jobs

    def cores(self, memory: float, cpus: int) -> int:
        """Return the number of compile jobs for this memory in GiB and CPUs; at least 1."""
        fitting = int((memory - self.reserved_memory) // self.job_memory)
        return max(1, min(fitting, cpus, self.max_jobs))


class Builder(_TomlTable, frozen=True, kw_only=True):
    """A remote build machine: a line of Nix's machines file (Nix manual, "Remote builds")."""

    uri: ft.BuilderUri  #: SSH address of the machine
    platforms: ft.NonEmptyPlatforms  #: platforms that it builds for
    key: ft.KeyFile | None = None  #: SSH private key on this machine
    jobs: ft.Jobs = 1  #: number of builds that it runs at once
    speed: ft.Jobs = 1  #: speed relative to other builders
    features: tuple[ft.SystemFeature, ...] = ()  #: system features that it offers
    host_key: ft.Base64 | None = None  #: public SSH host key in base64

    @property
    def line(self) -> str:
        """The machine as a line of Nix's machines file."""
        limits = f"{self.jobs} {self.speed} {','.join(self.features) or '-'} -"
        words = (self.uri, ",".join(self.platforms), self.key or "-", limits, self.host_key or "")
        return " ".join(words).rstrip()


class Group(_TomlTable, frozen=True, kw_only=True):
    """A block of variants: each of its GPU architectures with each of its CPU ISAs."""

    title: ft.Text  #: title of the group in the docs
    kind: Literal["gpu", "cpu-only"]  #: whether the variants have GPU code
    platform: ft.Platform  #: platform of the variants
    gpu: tuple[ft.Key, ...] = ()  #: keys of GPU architectures; empty for kind cpu-only
    cpu: ft.NonEmptyKeys  #: keys of CPU ISAs of the platform


class Cleanup(_TomlTable, frozen=True, kw_only=True):
    """A hand-written recipe that was in the folder before recipes were generated."""

    file: ft.FileName  #: file name in the release's folder
    action: Literal["delete", "rewrite", "keep"]  #: what phase 1 or the generator does with it
    reason: ft.Text  #: why; printed with the action


class Manual(_TomlTable, frozen=True, kw_only=True):
    """A file or folder in the release's folder that is written by hand and never overwritten.

    The recipe of a variant is verified, and its differences from the template are notes. Anything
    else is a package of its own: no check looks at it.
    """

    file: ft.PlaceInFolder  #: its path below the release's folder
    reason: ft.Text  #: why it is written by hand; printed with it
    waive: ft.Waivers = {}  #: checks that the recipe of a variant need not pass


class Release(_TomlTable, frozen=True, kw_only=True):
    """One PyTorch on one nixpkgs pin, one CUDA and one Python, with its variants."""

    folder: ft.Folder  #: folder of the recipes; Flox takes every .nix file below it
    notes: ft.DocPath  #: build notes of the release, with a generated table of its variants
    torch: TorchSource
    nixpkgs: Nixpkgs
    cuda: CudaToolkit | None = None
    magma_patch: Patch | None = None
    python: PythonVersion
    names: Names
    build: Build
    group: Annotated[tuple[Group, ...], ft.filled("group")]
    cleanup: tuple[Cleanup, ...] = ()
    manual: tuple[Manual, ...] = ()


class GpuArchitecture(_TomlTable, frozen=True, kw_only=True):
    """A GPU architecture; its key is sm and the digits of the capability."""

    capability: ft.Capability  #: compute capability as nvidia-smi and torch report it
    family: ft.Text  #: name of the GPU family
    hosts: ft.Hosts  #: products by platform; on other platforms a variant is impossible-host
    first_cuda: ft.CudaVersion  #: oldest CUDA that compiles for it
    last_cuda: ft.CudaVersion | None = None  #: newest CUDA that compiles for it; absent: no limit
    codegen_base: ft.Capability | None = None  #: PyTorch adds its arch-specific code to this one
    own_libraries: bool = False  #: compile NCCL and MAGMA for it; nixpkgs does not by default
    driver: ft.DriverVersion | None = None  #: oldest driver that knows it; absent: that of CUDA

    @property
    def code(self) -> str:
        """The capability as compilers write it, such as 120."""
        return digits(self.capability)

    @property
    def products(self) -> tuple[str, ...]:
        """The products of all platforms, in the order of the matrix."""
        return tuple(dict.fromkeys(name for names in self.hosts.values() for name in names))


class CpuIsa(_TomlTable, frozen=True, kw_only=True):
    """A CPU instruction set. The ISA of a machine is the one of the highest level that it runs."""

    title: ft.Text  #: name in docs and recipes
    platform: ft.Platform  #: platform of the ISA
    level: ft.Level  #: order of the ISAs of a platform
    flags: ft.NonEmptyFlags  #: flags for the compilers
    cpuinfo: ft.NonEmptyWords  #: flags of /proc/cpuinfo that a CPU must have to run it
    macros: ft.NonEmptyMacros  #: macros that a compiler predefines with these flags
    cpus: ft.NonEmptyTexts  #: examples of CPUs that have it
    lacking: tuple[ft.Text, ...] = ()  #: examples of CPUs that do not have it
    builder_feature: ft.SystemFeature | None = None  #: system feature of Nix builders that run it


class WorkShare(_TomlTable, frozen=True, kw_only=True):
    """A part of the work, relative to one GPU variant that is built alone."""

    share: ft.Share  #: the part; 1 is one GPU variant
    basis: ft.Basis  #: whether the value was measured; extrapolated: from measured samples
    source: ft.Text  #: where the value comes from


class Work(_TomlTable, frozen=True, kw_only=True):
    """What the work of a build consists of: the model behind `invoke build --share --dry-run`."""

    cxx: WorkShare  #: C and C++ objects; they depend on the CPU ISA only
    cuda: WorkShare  #: CUDA objects; they depend on the GPU architecture only
    link: WorkShare  #: configure, generate code, link and install
    replay: WorkShare  #: read the objects of a variant from the compiler caches
    cpu_only_cxx: WorkShare  #: C and C++ objects of a CPU-only variant
    cpu_only_miss: WorkShare  #: those of them that no GPU variant of the ISA has
    nccl: WorkShare  #: one build of NCCL
    magma: WorkShare  #: one build of MAGMA


class MatrixFile(_TomlTable, frozen=True, kw_only=True):
    """The whole of matrix.toml."""

    release: Annotated[dict[ft.Key, Release], ft.filled("release", "table")]
    work: Work | None = None
    builder: tuple[Builder, ...] = ()
    gpu: dict[ft.Key, GpuArchitecture]
    cpu: Annotated[dict[ft.Key, CpuIsa], ft.filled("CPU ISA", "table")]


class Phase(StrEnum):
    """One of the five generating commands `invoke phase1..5`; the value is its title."""

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
    """One PyTorch to build: a release, a GPU architecture or none, and a CPU ISA."""

    release_name: str
    release: Release
    group: Group
    gpu_key: str | None
    gpu: GpuArchitecture | None
    cpu_key: str
    cpu: CpuIsa

    @property
    def id(self) -> str:
        """The short name inside a release, such as `sm120-avx512` or `cpu-avx2`."""
        return f"{self.gpu_key or 'cpu'}-{self.cpu_key}"

    @property
    def cuda(self) -> CudaToolkit | None:
        """The CUDA of the release; None without a GPU."""
        return self.release.cuda if self.gpu else None

    @property
    def driver(self) -> str:
        """The oldest Linux driver: that of the CUDA, or of the GPU if it is newer; "" without."""
        if not (self.gpu and self.release.cuda):
            return ""
        return max(self.release.cuda.driver, self.gpu.driver or "", key=numbers)

    @property
    def _suffix(self) -> str:
        names = self.release.names
        return f"{names.gpu}-{self.id}" if self.gpu else f"{names.cpu}-{self.cpu_key}"

    @property
    def package(self) -> str:
        """The Flox package name, which is also the stem of the recipe's file name."""
        return f"{self.release.names.package}-{self._suffix}"

    @property
    def pname(self) -> str:
        """The derivation's pname, which contains the version of PyTorch."""
        return f"{self.release.names.pname}-{self._suffix}"

    @property
    def path(self) -> str:
        """The recipe's path below the root."""
        return f"{self.release.folder}/{self.package}.nix"

    @property
    def phase(self) -> Phase:
        """The phase that writes this variant's recipe."""
        if self.gpu is None:
            return Phase.CPU_ONLY
        return Phase.GPU_X86 if self.cpu.platform == "x86_64-linux" else Phase.GPU_ARM

    @property
    def impossible(self) -> str | None:
        """Why no machine has this pair of GPU and CPU, or None if one exists.

        Derived from the hosts in the matrix. Such a variant is generated and verified, and never
        recommended.
        """
        if self.gpu is None or self.cpu.platform in self.gpu.hosts:
            return None
        real = f"{', '.join(self.gpu.products)} on {' and '.join(self.gpu.hosts)} only"
        return f"no {self.cpu.platform} machine has {self.gpu_label}: {real}"

    @property
    def untaken_hashes(self) -> tuple[str, ...]:
        """The tables of its sources that have no hash yet. Without all, it cannot be built."""
        patch = self.release.magma_patch if self.gpu else None
        hashes = {"torch": self.release.torch.hash, "magma_patch": patch.hash if patch else "-"}
        return tuple(table for table, hash_ in hashes.items() if not hash_)

    @property
    def builder_features(self) -> tuple[str, ...]:
        """The system features that a builder needs: requiredSystemFeatures of the recipe."""
        build, feature = self.release.build, self.cpu.builder_feature
        own = (feature,) if build.require_builder_feature and feature else ()
        return (*build.system_features, *own)

    @property
    def products(self) -> tuple[str, ...]:
        """The GPUs it is for: those of its platform, or all if there is none on it."""
        if self.gpu is None:
            return ()
        return self.gpu.hosts.get(self.cpu.platform, self.gpu.products)

    @property
    def status(self) -> str:
        """`buildable` or `impossible-host`."""
        return "impossible-host" if self.impossible else "buildable"

    @property
    def gpu_label(self) -> str:
        """The architecture in upper case, such as `SM120`; empty for CPU-only variants."""
        return (self.gpu_key or "").upper()


class Matrix(Struct, frozen=True, kw_only=True, eq=False):
    """A consistent matrix.toml. Compares by identity, so that it can be a cache key."""

    releases: dict[str, Release]
    gpus: dict[str, GpuArchitecture]
    cpus: dict[str, CpuIsa]
    builders: tuple[Builder, ...]
    work: Work | None
    variants: tuple[Variant, ...]
    notes: tuple[str, ...]
    """What is allowed and not complete, each with its place in the file."""
    text: str
    """The text of matrix.toml."""

    @property
    def manual(self) -> dict[str, Manual]:
        """What is written by hand, by path below the root."""
        releases = self.releases.values()
        return {f"{release.folder}/{e.file}": e for release in releases for e in release.manual}

    def is_foreign(self, path: str) -> bool:
        """Return whether a file is, or is in, what a person keeps beside the recipes."""
        manual = self.manual
        if not manual or path in {variant.path for variant in self.variants}:
            return False
        return any(path == place or path.startswith(f"{place}/") for place in manual)

    def of_release(self, name: str) -> tuple[Variant, ...]:
        """Return the variants of one release, in the order of its groups."""
        return tuple(v for v in self.variants if v.release_name == name)
