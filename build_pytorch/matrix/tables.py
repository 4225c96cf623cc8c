"""The tables of matrix.toml as types.

matrix.schema.json beside this file and docs/reference/matrix.md are generated from the structs: the
meaning of a table is its docstring, the meaning of a key is the `#:` comment beside it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from msgspec import Struct, field

from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.versions import digits

_FLOX_FOLDER: Final = ".flox/pkgs"
FAKE: Final = "sha256-" + "A" * 43 + "="
"""The hash that Nix assumes for an empty one."""
CUDA_PACKAGES: Final = ("cudatoolkit", "cudnn", "nccl", "libcusparse_lt")
"""The CUDA packages that `packages_from` of a release replaces."""
CUDA_PACKAGES_SOURCE: Final = "cuda-packages"
"""The name of `packages_from` among the sources of `invoke prefetch`."""
CUDA_PACKAGES_VARIABLE: Final = "CUDA_TOOLKIT_REPO"
"""Environment variable with a local checkout in place of the repository of `packages_from`."""
GITHUB: Final = "https://github.com"


class TomlTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table; an unknown key is an error."""


# --- what is fetched ---


class Origin(NamedTuple):
    """Where a source is fetched from."""

    function: str  #: the Nix function that fetches it
    address: str  #: URL of the repository, the tarball or the patch
    revision: str  #: what its hash must belong to: the revision, or the URL of a patch
    arguments: dict[str, str | bool]  #: those of the function, without the hash


class HashedTable(TomlTable, frozen=True, kw_only=True):
    """A table with a source and its hash; `HASH_of` beside it has the revision of the hash."""

    hash_key: ClassVar[str] = "hash"
    source_name: ClassVar[str] = ""
    """Its name for `invoke prefetch --only`; empty: the key of the table."""

    @property
    def origin(self) -> Origin:
        """Where the source is fetched from."""
        raise NotImplementedError


def _tarball(owner: str, repo: str, rev: str) -> Origin:
    url = f"{GITHUB}/{owner}/{repo}/archive/{rev}.tar.gz"
    return Origin("fetchTarball", url, rev, {"url": url})


class PackageSource(HashedTable, frozen=True, kw_only=True):
    """A package of the pinned nixpkgs, or another source in place of it."""

    submodules: ClassVar[bool] = False
    """Whether its source, and so its hash, has the submodules."""

    version: ft.Version  #: version of the package
    source: Literal["nixpkgs", "github"] = "github"  #: nixpkgs: that of the pin with its patches
    owner: ft.GithubName = ""  #: GitHub owner; this and the keys below only for source github
    repo: ft.GithubName = ""  #: GitHub repository
    rev: ft.Rev = ""  #: tag of the version, or a commit
    hash: ft.NoSri = ""  #: hash of the source tree
    hash_of: ft.NoRev = ""  #: rev of the hash: Nix reuses an old source if only rev changes

    @property
    def is_of_pin(self) -> bool:
        """Whether the recipes keep the package of the pin, with its source and its patches."""
        return self.source == "nixpkgs"

    @property
    def origin(self) -> Origin:
        """Where the source is fetched from."""
        url = f"{GITHUB}/{self.owner}/{self.repo}"
        place: dict[str, str | bool] = {"owner": self.owner, "repo": self.repo, "rev": self.rev}
        place["fetchSubmodules"] = self.submodules
        return Origin("fetchFromGitHub", url, self.rev, place)


class TorchSource(PackageSource, frozen=True, kw_only=True):
    """The PyTorch that is built: that of the pinned nixpkgs, or another source in place of it."""

    submodules: ClassVar[bool] = True

    version: ft.TorchVersion  #: version of PyTorch; of a nightly such as 2.11.0.dev20251222
    triton_rev: ft.NoRev40 = ""  #: commit of Triton that a nightly names; "" if not known

    @property
    def is_nightly(self) -> bool:
        """Whether it is a revision of a moving branch, not a release."""
        return ".dev" in self.version


class Companion(PackageSource, frozen=True, kw_only=True):
    """A package that is compiled against the PyTorch of each variant of the release.

    "none" in place of the table leaves out one that the release would inherit.
    """

    patches: Literal["keep", "clear"] = "keep"  #: the patches that the pin has for its own version
    unconfirmed: ft.Text | None = None  #: what nobody has confirmed, such as by a build


class CudaSetFacts(TomlTable, frozen=True, kw_only=True):
    """What one CUDA package set of a pin contains. What is empty is not known."""

    cccl: Literal["cuda_cccl", "cccl"] | None = None  #: package with the CCCL headers
    capabilities: tuple[ft.Capability, ...] = ()  #: capabilities that packages have code for
    broken: tuple[ft.Text, ...] = ()  #: conditions for which torch is marked as broken on it


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
    source: ft.Text  #: where these facts are from
    checked: ft.Date  #: date of the last comparison with the source
    unconfirmed: ft.Text | None = None  #: which of these facts nobody has confirmed
    facts: PinFacts | None = None

    @property
    def origin(self) -> Origin:
        """Where the source is fetched from."""
        return _tarball("NixOS", "nixpkgs", self.rev)

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
    def origin(self) -> Origin:
        """Where the source is fetched from."""
        return _tarball(self.owner, self.repo, self.rev)


class CudaToolkit(TomlTable, frozen=True, kw_only=True):
    """The CUDA of a release; absent in a release without GPU recipes."""

    version: ft.CudaVersion  #: version of CUDA
    package_set: ft.NixName  #: nixpkgs package set that provides it
    driver: ft.DriverVersion  #: oldest Linux driver that runs it
    packages_from: CudaPackages | None = None  #: other source of some of its packages

    def package_file(self, package: str) -> str:
        """Return the name of the file with a package of another source: cudnn-13_0.nix."""
        return f"{package}-{digits(self.version, '_')}.nix"


class Patch(HashedTable, frozen=True, kw_only=True):
    """A patch that rules apply to a package of nixpkgs."""

    source_name: ClassVar[str] = "patch"

    package: Literal["magma"]  #: the patched package
    reason: ft.Text  #: why the patch is needed; a comment in the recipes
    name: ft.PatchName  #: file name of the patch
    url: ft.Url  #: address of the patch
    hash: ft.NoSri  #: hash of the patch as fetchpatch normalises it
    hash_of: ft.NoUrl  #: address of the hashed patch

    @property
    def origin(self) -> Origin:
        """Where the source is fetched from."""
        return Origin("fetchpatch", self.url, self.url, {"name": self.name, "url": self.url})


# --- rules ---


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
    magma_core_hours: ft.Hours = 0  #: CPU core hours of MAGMA and NCCL for a GPU architecture
    cache: ft.CacheFolder = ""  #: folder of a compiler cache that builds use where they see it
    require_builder_feature: bool = False  #: add builder_feature of the ISA to system_features
    closure_gib: ClosureBudget | None = None
    cpu_only: CpuOnlyBuild | None = None

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
    gpu: tuple[ft.Key, ...] = ()  #: keys of GPU architectures; none for CPU-only variants
    cpu: ft.NonEmptyKeys  #: keys of CPU ISAs, which also decide on the platform
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

    like: ft.Key | None = None  #: other release, for values that it lacks; not notes, cleanup
    folder: ft.Folder  #: folder of the recipes; Flox takes every .nix file below it
    catalog: ft.Key = "main"  #: package names are unique among the releases with one value
    notes: ft.DocPath | None = None  #: build notes; the page of the release links them
    purpose: ft.Text = "no purpose given"  #: for which machines or programs it exists
    support: ft.Text = "no support level given"  #: what is known about its builds
    torch: TorchSource
    companion: dict[str, Companion | Literal["none"]] = {}
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
    def folders(self) -> tuple[str, ...]:
        """The folders of recipes, the own one first; of companions also if it has none now."""
        own = dict.fromkeys((self.folder, *(it.folder for it in self.group if it.folder)))
        return tuple(dict.fromkeys((*own, *map(companion_folder_of, own))))


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
    source: ft.Text | None = None  #: where these facts are from
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
    source: ft.Text | None = None  #: where these facts are from
    checked: ft.Date | None = None  #: date of the last comparison with the source


class Source(Struct, frozen=True, kw_only=True):
    """What a table of matrix.toml has a hash of."""

    release: str  #: the first release that uses it
    name: str  #: its name for `invoke prefetch --only`, such as torch
    place: ft.Trail  #: the path of the table in matrix.toml
    hash_key: str  #: the key of the hash in the table
    hash: str  #: the hash of matrix.toml; empty if it is not taken yet
    recorded: str  #: the revision or URL that matrix.toml has for its hash
    origin: Origin
    pin: Pin  #: the nixpkgs whose functions fetch it
    may_wait: bool
    """Whether a missing hash is a note and no finding: each move of a nightly needs another one."""

    @property
    def trail(self) -> ft.Trail:
        """The path of the hash in matrix.toml."""
        return (*self.place, self.hash_key)

    @property
    def label(self) -> str:
        """The name with the revision or URL, for messages."""
        return f"{self.name} ({self.origin.revision})"

    @property
    def specified(self) -> str:
        """The hash that Nix expects, as it reports it if it finds another one; "" for any."""
        return self.hash or ("" if self.origin.function == "fetchTarball" else FAKE)

    def values(self, taken: str) -> dict[ft.Trail, str]:
        """Return the values of matrix.toml that record a hash."""
        return {self.trail: taken, (*self.place, f"{self.hash_key}_of"): self.origin.revision}


class MatrixFile(TomlTable, frozen=True, kw_only=True):
    """The whole of matrix.toml."""

    publisher: ft.Organization = ""  #: organization on FloxHub for which packages are published
    repository: ft.NoUrl = ""  #: address of this repository; the page links it
    pins: Annotated[dict[ft.Key, Pin], ft.filled("pin", "table")] = field(name="pin")
    patches: dict[ft.Key, Patch] = field(name="patch", default_factory=dict)
    rules: tuple[Rule, ...] = field(name="rule", default=())
    releases: Annotated[dict[ft.Key, Release], ft.filled("release", "table")] = field(
        name="release"
    )
    gpus: dict[ft.Key, GpuArchitecture] = field(name="gpu", default_factory=dict)
    cpus: dict[ft.Key, CpuIsa] = field(name="cpu", default_factory=dict)

    def sources(self) -> list[Source]:
        """Return what has a hash: of each release that it does not inherit, its pin; patches."""
        tables: list[tuple[str, ft.Trail, HashedTable]] = []
        for name, release in self.releases.items():
            inherited = self.releases[release.like].hashed if release.like else {}
            own = {at: it for at, it in release.hashed.items() if inherited.get(at) != it}
            tables += [(name, ("release", name, *at), it) for at, it in own.items()]
            key = release.nixpkgs.pin
            tables.append((name, ("pin", key), self.pins[key]))
        first = next(iter(self.releases))
        tables += [(first, ("patch", key), patch) for key, patch in self.patches.items()]
        found: dict[ft.Trail, Source] = {}
        for name, place, table in tables:
            release = self.releases[name]
            is_of_others = table.source_name in {CUDA_PACKAGES_SOURCE, "nixpkgs"}
            found[place] = found.get(place) or Source(
                release=name,
                name=table.source_name or str(place[-1]),
                place=place,
                hash_key=table.hash_key,
                hash=getattr(table, table.hash_key),
                recorded=getattr(table, f"{table.hash_key}_of"),
                origin=table.origin,
                pin=self.pins[release.nixpkgs.pin],
                may_wait=is_of_others or (release.torch.is_nightly and place[0] == "release"),
            )
        return list(found.values())
