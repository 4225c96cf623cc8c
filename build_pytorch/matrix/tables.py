"""The tables of matrix.toml as types.

matrix.schema.json beside this file and docs/reference/matrix.md are generated from the structs: the
meaning of a table is its docstring, the meaning of a key is the `#:` comment beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from build_pytorch.base.versions import digits
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.source_tables import (
    CUDA_PACKAGES_SOURCE,
    Companion,
    Companions,
    CudaToolkit,
    HashedTable,
    Nixpkgs,
    PackageSource,
    Patch,
    Pin,
    TomlTable,
    TorchSource,
)

_FLOX_FOLDER: Final = ".flox/pkgs"
FAKE: Final = "sha256-" + "A" * 43 + "="
"""The hash that Nix assumes for an empty one."""


class Condition(TomlTable, frozen=True, kw_only=True):
    """Properties of a variant. All keys that are present must hold; one of each list must."""

    kind: tuple[ft.Kind, ...] = ()  #: kinds of variants
    gpu: tuple[ft.Key, ...] = ()  #: GPU architectures
    capability: ft.Range = ""  #: compute capabilities, of which the variant has one
    cpu: tuple[ft.Key, ...] = ()  #: CPU ISAs
    cuda: ft.Range = ""  #: versions of the release's CUDA
    torch_source: Literal["nixpkgs", "github"] | None = None  #: source of PyTorch
    pin_has: tuple[ft.Content, ...] = ()  #: fixes and patches; those of torch where it is the pin's
    not_in_default_capabilities: bool = False  #: a capability is not a default one of its CUDA set


class Effect(TomlTable, frozen=True, kw_only=True):
    """What a rule changes in a recipe."""

    environment: dict[ft.Variable, ft.Setting] = {}  #: variables of the build's environment
    cmake_flags: tuple[ft.CmakeFlag, ...] = ()  #: further flags for CMake
    patches: tuple[ft.Key, ...] = ()  #: keys of patches
    fixes: tuple[ft.Fix, ...] = ()  #: changes that the templates know by name

    @property
    def words(self) -> str:
        """The changes in one line."""
        words = [f"{name}={value}" for name, value in self.environment.items()]
        words += [*self.cmake_flags, *self.fixes]
        return " ".join([*words, *(f"patch {key}" for key in self.patches)])


class Rule(TomlTable, frozen=True, kw_only=True):
    """A condition, and what it changes in the recipes of the variants for which it holds."""

    id: ft.Word  #: name of the rule
    when: Condition
    effect: Effect
    reason: ft.Text  #: why; a comment in the recipes
    source: ft.Url  #: evidence for the reason
    checked: ft.Date  #: date of the last comparison with the source
    until: Condition | None = None
    unconfirmed: ft.Text | None = None  #: what nobody has confirmed, such as by a build


class PythonVersion(TomlTable, frozen=True, kw_only=True):
    """The Python of the release."""

    version: ft.Python3  #: version; python3Packages if it is that of the pin


class Names(TomlTable, frozen=True, kw_only=True):
    """Parts of the names: a recipe is PACKAGE-GPU-ID.nix or PACKAGE-CPU-ID.nix.

    The suffix comes after the ID.
    """

    package: ft.Name  #: first part of the package name
    pname: ft.Name  #: first part of the derivation's pname
    gpu: ft.Name  #: second part of both names for GPU variants
    cpu: ft.Name  #: second part of both names for CPU-only variants
    mps: ft.Name = "darwin-mps"  #: second part of both names for variants of kind mps
    suffix: ft.NameEnd = ""  #: end of both names, such as -nightly


class ClosureBudget(TomlTable, frozen=True, kw_only=True):
    """Maximum size in GiB of a built variant with everything that it needs at run time."""

    gpu: ft.Gib  #: limit for GPU variants
    cpu: ft.Gib  #: limit for CPU-only variants


class CpuOnlyBuild(TomlTable, frozen=True, kw_only=True):
    """What a build without CUDA needs in place of the values of the release."""

    job_memory: ft.Size  #: peak memory of one compile job in GiB
    disk: ft.Size  #: disk space in GiB for sources, objects and the result
    core_hours: ft.Hours  #: CPU core hours of one build


class Build(TomlTable, frozen=True, kw_only=True):
    """Limits and requirements of one build."""

    max_jobs: ft.Jobs  #: maximum number of parallel compile jobs
    system_features: ft.NonEmptyWords  #: requiredSystemFeatures of the derivation
    job_memory: ft.Size  #: peak memory of one compile job in GiB
    reserved_memory: ft.Size  #: memory in GiB that is left to the system
    disk: ft.Size  #: disk space in GiB for sources, objects and the result
    core_hours: ft.Hours  #: CPU core hours of one build
    magma_core_hours: ft.Hours = 0  #: CPU core hours of MAGMA, which Nix builds before PyTorch
    cuda_host_flags: bool = False  #: compile the CPU code in .cu files with the flags of the ISA
    cache: ft.CacheFolder = ""  #: folder of a compiler cache that builds use where they see it
    require_builder_feature: bool = False  #: add builder_feature of the ISA to system_features
    closure_gib: ClosureBudget | None = None
    cpu_only: CpuOnlyBuild | None = None

    @property
    def without_cuda(self) -> Build:
        """The limits of a build without CUDA."""
        return replace(self, **asdict(self.cpu_only)) if self.cpu_only else self

    def memory(self, jobs: int, cores: int) -> float:
        """Return the memory in GiB of so many builds at once, with so many compile jobs each."""
        return (self.reserved_memory + self.job_memory * cores) * jobs

    def cores(self, memory: float, cpus: int) -> int:
        """Return the number of compile jobs for this memory in GiB and CPUs; at least 1."""
        fitting = int((memory - self.reserved_memory) // self.job_memory)
        return max(1, min(fitting, cpus, self.max_jobs))


class Group(TomlTable, frozen=True, kw_only=True):
    """A block of variants: each of its GPU architectures with each of its CPU ISAs."""

    title: ft.Text  #: title of the group in the docs
    kind: ft.Kind  #: GPU code, none, or Apple's Metal (mps)
    platform: ft.Platform  #: platform of the variants
    gpu: tuple[ft.Key, ...] = ()  #: keys of GPU architectures; empty for kind cpu-only
    cpu: ft.NonEmptyKeys  #: keys of CPU ISAs of the platform
    folder: ft.Folder | None = None  #: folder of its recipes, if it is not that of the release
    blas: ft.Blas = "openblas"  #: BLAS and LAPACK; mkl on x86_64-linux only, with allowUnfree


class Cleanup(TomlTable, frozen=True, kw_only=True):
    """A hand-written recipe that was in the folder before recipes were generated."""

    file: ft.FileName  #: file name in the release's folder
    action: Literal["delete", "rewrite", "keep"]  #: what phase 1 or the generator does with it
    reason: ft.Text  #: why; printed with the action


class Release(TomlTable, frozen=True, kw_only=True):
    """One PyTorch on one nixpkgs pin, one CUDA and one Python, with its variants.

    In its texts, {release}, {torch}, {python} and {cuda} stand for the key of the release and for
    its versions.
    """

    like: ft.Key | None = None  #: release above, for values that it lacks; not notes, cleanup
    folder: ft.Folder  #: folder of the recipes; Flox takes every .nix file below it
    catalog: ft.Key = "main"  #: package names are unique among the releases with one value
    notes: ft.DocPath | None = None  #: build notes; the page of the release links them
    purpose: ft.Text = "no purpose given"  #: for which machines or programs it exists
    support: ft.Text = "no support level given"  #: what is known about its builds
    torch: TorchSource
    companion: Companions = {}
    nixpkgs: Nixpkgs
    cuda: CudaToolkit | None = None
    python: PythonVersion
    names: Names
    build: Build
    group: Annotated[tuple[Group, ...], ft.filled("group")]
    cleanup: tuple[Cleanup, ...] = ()

    @property
    def companions(self) -> dict[str, Companion]:
        """The companions that have recipes, by name."""
        return {k: it for k, it in self.companion.items() if isinstance(it, Companion)}

    @property
    def sources(self) -> dict[tuple[str, ...], PackageSource]:
        """The sources of PyTorch and of the packages beside it, by the path of their table."""
        found: dict[tuple[str, ...], PackageSource] = {("torch",): self.torch}
        return found | {("companion", name): each for name, each in self.companions.items()}

    @property
    def hashed(self) -> dict[tuple[str, ...], HashedTable]:
        """The tables of the release whose source has a hash, by their path below it."""
        found: dict[tuple[str, ...], HashedTable] = {
            place: source for place, source in self.sources.items() if not source.is_of_pin
        }
        packages = self.cuda and self.cuda.packages_from
        if packages and not packages.folder:
            found["cuda", "packages_from"] = packages
        return found

    @property
    def kept(self) -> set[str]:
        """The paths of recipes that stay as a person wrote them."""
        return {f"{self.folder}/{entry.file}" for entry in self.cleanup if entry.action == "keep"}

    @property
    def variant_folders(self) -> tuple[str, ...]:
        """The folders of the recipes of variants, the own one first."""
        groups = (group.folder for group in self.group if group.folder)
        return tuple(dict.fromkeys((self.folder, *groups)))

    @property
    def companion_folders(self) -> tuple[str, ...]:
        """The folders of the companions of its variants, also if the matrix has none now."""
        return tuple(dict.fromkeys(map(companion_folder_of, self.variant_folders)))

    @property
    def folders(self) -> tuple[str, ...]:
        """All folders of recipes."""
        return (*self.variant_folders, *self.companion_folders)


def companion_folder_of(folder: str) -> str:
    """Return the folder of companions of the variants in a folder."""
    before, ours, _ = folder.partition(_FLOX_FOLDER)
    return f"{before}companions/{_FLOX_FOLDER}" if ours else f"{folder}-companions"


def environment_of(folder: str) -> str:
    """Return the Flox environment of a folder of recipes, below the root; "." is the root."""
    return folder.removesuffix(_FLOX_FOLDER).rstrip("/") or "."


class GpuArchitecture(TomlTable, frozen=True, kw_only=True):
    """A GPU architecture. Its key is sm and the digits of the capability."""

    capability: ft.Capability  #: compute capability as nvidia-smi and torch report it
    family: ft.Text  #: name of the GPU family
    hosts: ft.Hosts  #: products by platform; on other platforms a variant is impossible-host
    first_cuda: ft.CudaVersion  #: oldest CUDA that compiles for it
    last_cuda: ft.CudaVersion | None = None  #: newest CUDA that compiles for it; absent: no limit
    codegen_base: ft.Capability | None = None  #: PyTorch adds its arch-specific code to this one
    driver: ft.DriverVersion | None = None  #: oldest driver that knows it; absent: that of CUDA
    source: ft.Origin | None = None  #: where these facts are from
    checked: ft.Date | None = None  #: date of the last comparison with the source
    unconfirmed: ft.Text | None = None  #: which of them nobody has confirmed

    @property
    def code(self) -> str:
        """The capability as compilers write it, such as 120."""
        return digits(self.capability)

    @property
    def products(self) -> tuple[str, ...]:
        """The products of all platforms, in the order of the matrix."""
        return tuple(dict.fromkeys(name for names in self.hosts.values() for name in names))


class CpuIsa(TomlTable, frozen=True, kw_only=True):
    """A CPU instruction set. The ISA of a machine is the one of the highest level that it runs."""

    title: ft.Text = ""  #: name in docs and recipes; by default its key
    platform: ft.Platform  #: platform of the ISA
    level: ft.Level  #: order of the ISAs of a platform
    flags: tuple[ft.Flag, ...]  #: flags for the compilers; empty for the baseline of Darwin
    cpuinfo: tuple[ft.Word, ...]  #: flags of /proc/cpuinfo that a CPU must have to run it
    macros: tuple[ft.Macro, ...] = ()  #: macros that a compiler predefines with these flags
    cpus: tuple[ft.Text, ...] = ()  #: examples of CPUs that have it
    lacking: tuple[ft.Text, ...] = ()  #: examples of CPUs that do not have it
    builder_feature: ft.SystemFeature | None = None  #: system feature of Nix builders that run it
    same_as: ft.NoText = ""  #: ISA whose builds are as fast: those of this one are aliases
    evidence: ft.NoText = ""  #: the comparison for same_as: builds, machines, interval, date
    source: ft.Origin | None = None  #: where these facts are from
    checked: ft.Date | None = None  #: date of the last comparison with the source


class MatrixFile(TomlTable, frozen=True, kw_only=True):
    """The whole of matrix.toml."""

    publisher: ft.Organization = ""  #: organization on FloxHub for which packages are published
    repository: ft.Repository = ""  #: address of this repository; the page links it
    pin: Annotated[dict[ft.Key, Pin], ft.filled("pin", "table")]
    patch: dict[ft.Key, Patch] = {}
    rule: tuple[Rule, ...] = ()
    release: Annotated[dict[ft.Key, Release], ft.filled("release", "table")]
    gpu: dict[ft.Key, GpuArchitecture] = {}
    cpu: dict[ft.Key, CpuIsa] = {}


# --- what has a hash ---


class Source(Struct, frozen=True, kw_only=True):
    """A table of matrix.toml with a hash, and the first release that uses it."""

    release: str
    place: ft.Trail  #: the path of the table in matrix.toml
    table: HashedTable
    pin: Pin  #: the nixpkgs whose functions fetch it
    may_wait: bool
    """Whether a missing hash is a note and no finding: each move of a nightly needs another one."""

    @property
    def name(self) -> str:
        """The name for `invoke prefetch --only`, such as torch."""
        return self.table.source_name or str(self.place[-1])

    @property
    def trail(self) -> ft.Trail:
        """The path of the hash in matrix.toml."""
        return (*self.place, self.table.hash_key)

    @property
    def hash(self) -> str:
        """The hash of matrix.toml; empty if it is not taken yet."""
        return str(getattr(self.table, self.table.hash_key))

    @property
    def taken_for(self) -> str:
        """The revision or URL that the hash must belong to."""
        return self.table.revision

    @property
    def recorded(self) -> str:
        """The revision or URL that matrix.toml has for its hash."""
        return str(getattr(self.table, f"{self.table.hash_key}_of"))

    @property
    def label(self) -> str:
        """The name with the revision or URL, for messages."""
        return f"{self.name} ({self.taken_for})"

    @property
    def specified(self) -> str:
        """The hash that Nix expects, as it reports it if it finds another one; "" for any."""
        return self.hash or ("" if self.table.function == "fetchTarball" else FAKE)

    def values(self, taken: str) -> dict[ft.Trail, str]:
        """Return the values of matrix.toml that record a hash."""
        return {self.trail: taken, (*self.place, f"{self.table.hash_key}_of"): self.taken_for}


def sources(
    releases: Mapping[str, Release], pins: Mapping[str, Pin], patches: Mapping[str, Patch]
) -> list[Source]:
    """Return the sources of each release that it does not inherit, with its pin; then patches."""
    found: list[Source] = []
    keys: list[str] = []
    for name, release in releases.items():
        key, pin = release.nixpkgs.pin, pins[release.nixpkgs.pin]
        inherited = releases[release.like].hashed if release.like else {}
        for place, table in release.hashed.items():
            if inherited.get(place) != table:
                waits = release.torch.is_nightly or table.source_name == CUDA_PACKAGES_SOURCE
                at: ft.Trail = ("release", name, *place)
                found.append(Source(release=name, place=at, table=table, pin=pin, may_wait=waits))
        if key not in keys:
            at = ("pin", key)
            found.append(Source(release=name, place=at, table=pin, pin=pin, may_wait=True))
            keys.append(key)
    first, pin = next(iter(releases)), pins[keys[0]]
    for key, patch in patches.items():
        at = ("patch", key)
        found.append(Source(release=first, place=at, table=patch, pin=pin, may_wait=False))
    return found
