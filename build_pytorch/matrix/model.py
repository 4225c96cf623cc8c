"""The variants and companions that follow from matrix.toml, and the matrix as a whole."""

from __future__ import annotations

import functools
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Struct, structs

from build_pytorch.base import paths
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.field_types import dotted
from build_pytorch.matrix.matrix_text import line_of
from build_pytorch.matrix.tables import (
    Build,
    Companion,
    CpuIsa,
    CudaPackages,
    CudaToolkit,
    GpuArchitecture,
    Group,
    MatrixFile,
    PackageSource,
    Patch,
    Pin,
    Release,
    Rule,
)

_OF_SOURCE = frozenset({"find-cuda-toolkit-stub", "cupti-paths", "codegen-condition"})


class Phase(StrEnum):
    """One of the generating commands `invoke phase1` and on; the value is its title."""

    CLEAN_UP = "clean up"
    GPU_X86 = "GPU x86"
    GPU_ARM = "GPU ARM"
    CPU_ONLY = "CPU-only"
    DOCS = "docs"

    @property
    def number(self) -> int:
        """1 for the first."""
        return list(Phase).index(self) + 1

    @property
    def command(self) -> str:
        """The name of its command."""
        return f"phase{self.number}"


class Effects(Struct, frozen=True, kw_only=True):
    """What the rules of the matrix change in the recipe of a variant."""

    rules: tuple[Rule, ...] = ()  #: the rules that apply, in the order of the matrix
    environment: dict[str, str] = {}
    cmake_flags: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    fixes: tuple[str, ...] = ()


class Package(Struct, frozen=True, kw_only=True, dict=True):
    """What has a recipe: a variant, or a companion that is compiled against one.

    A variant is one PyTorch to build: a release, a GPU architecture or none, and a CPU ISA.
    """

    release_name: str
    release: Release
    pin: Pin
    group: Group
    gpu_key: str | None
    gpu: GpuArchitecture | None
    cpu_key: str
    cpu: CpuIsa
    platform: ft.Platform
    kind: ft.Kind  #: GPU code, none, or Apple's Metal (mps)
    phase: Phase  #: the phase that writes the recipe
    gpu_label: str  #: the architecture in upper case, such as `SM120`; empty for CPU-only variants
    products: tuple[str, ...]  #: the GPUs it is for: those of its platform, or all if none is on it
    impossible: str | None
    """Why no machine has this pair of GPU and CPU, or None if one exists.

    Such a package is generated and verified, and never recommended.
    """
    status: str  #: `buildable` or `impossible-host`
    driver: str  #: the oldest Linux driver: of the CUDA, or of a newer GPU; empty without a GPU
    builder_features: tuple[str, ...]  #: what builders need: requiredSystemFeatures of the recipe
    config: tuple[str, ...]  #: the options that are true in the config of its nixpkgs, each once
    python_set: str  #: the attribute of nixpkgs that has the packages of its Python
    short_id: str  #: the name inside its release, such as `sm120-avx512`, `cpu-avx2+torchvision`
    id: str  #: the name in the matrix: with several releases such as `cuda12_8/sm120-avx512`
    package: str  #: the Flox package name, which is also the stem of the recipe's file name
    pname: str  #: that of the derivation: for a variant with the version of PyTorch
    attribute: str  #: the name in release.nix: the package, behind the release where two share it
    folder: str  #: the folder of its recipe
    alias_of: str = ""  #: id of the package of its release that is as fast, by `same_as` of its ISA
    is_wrapper: bool = False  #: it takes CUDA packages from the other source of its release
    same_build_as: Package | None = None
    """The variant from which a wrapper differs in its name alone, without a local checkout."""
    effects: Effects = Effects()
    name: str = "torch"  #: the package of nixpkgs
    companion: Companion | None = None  #: its table; None for a variant
    torch: Package | None = None  #: the variant that a companion is compiled against

    @property
    def variant(self) -> Package:
        """The variant of a companion; a variant itself."""
        return self.torch or self

    @property
    def title(self) -> str:
        """How the product calls itself, such as TorchVision."""
        return known_hardware.load().companion[self.name].title if self.companion else "PyTorch"

    @functools.cached_property
    def path(self) -> str:
        """The recipe's path below the root."""
        return f"{self.folder}/{self.package}.nix"

    @property
    def source(self) -> PackageSource:
        """The source of PyTorch or of the companion."""
        return self.companion or self.release.torch

    @property
    def version(self) -> str:
        """The version of PyTorch or of the companion."""
        return self.source.version

    @property
    def cuda(self) -> CudaToolkit | None:
        """The CUDA of the release; None without a GPU."""
        return self.release.cuda if self.gpu else None

    @property
    def build(self) -> Build:
        """The limits and requirements of its build."""
        build = self.release.build
        own = None if self.gpu else build.cpu_only
        return structs.replace(build, **structs.asdict(own)) if own else build

    @property
    def passthru(self) -> dict[str, str | None]:
        """The attributes by which programs choose a package."""
        gpu, cpu, blas = self.gpu.capability if self.gpu else None, self.cpu_key, self.group.blas
        found = {"gpuArch": gpu, "cpuISA": cpu, "blasProvider": blas}
        if self.gpu and blas == "openblas":
            found["blasProvider"] = "cublas"
        if self.kind == "mps":
            found = {"gpuArch": "mps", "cpuISA": None, "blasProvider": "veclib"}
        return {key: it for key, it in found.items() if key != "blasProvider" or not self.companion}

    @property
    def packages_from(self) -> CudaPackages | None:
        """The source of CUDA packages other than its pin, or None."""
        return self.cuda.packages_from if self.cuda and self.is_wrapper else None

    @property
    def source_fixes(self) -> tuple[str, ...]:
        """The fixes that change the source."""
        base = self.gpu and self.gpu.codegen_base
        left_out = {"cupti-paths"} if self.has_cupti_flags else set()
        fixes = (fix for fix in self.effects.fixes if fix in _OF_SOURCE - left_out)
        own = tuple(fix for fix in fixes if base or fix != "codegen-condition")
        # A patch of nixpkgs does the same to its own torch.
        needs_links = self.group.blas == "mkl" and not self.source.is_of_pin
        return (*own, "mkl-link-folders") if needs_links else own

    @property
    def has_cupti_flags(self) -> bool:
        """Whether CMake gets the paths of CUPTI by flags, and no text of the source changes.

        nixpkgs then exports other variables than the changed text reads, and newer sources of
        PyTorch have no such text.
        """
        return "cupti-paths" in self.effects.fixes and "cmake-flags" in self.pin.has

    @property
    def untaken_hashes(self) -> tuple[tuple[str, str], ...]:
        """The names and places of its sources that have no hash yet: without, no build begins."""
        left_out = () if self.is_wrapper else ("packages_from",)
        found = [
            (table.source_name or place[-1], f"release.{self.release_name}.{'.'.join(place)}")
            for place, table in self.release.hashed.items()
            if not getattr(table, table.hash_key) and place[-1] not in left_out
            if place[0] != "companion" or place[-1] == self.name
        ]
        patches = (("patch", f"patch {p.name}") for p in self.effects.patches if not p.hash)
        return (*found, *patches)


Variant = Annotated[Package, "its companion is None"]
"""The type of a package that is a variant, for signatures."""


class Matrix(MatrixFile, frozen=True, kw_only=True, eq=False):
    """A consistent matrix.toml with all that is known. Compares by identity, as a cache key."""

    variants: tuple[Variant, ...]
    companions: tuple[Package, ...]
    """The companions of all variants, in the order of the variants."""
    own_rules: tuple[Rule, ...]  #: those that matrix.toml has, the first ones of all
    text: str  #: the text of matrix.toml
    root: Path  #: the checkout that the matrix describes; its templates are used

    @property
    def packages(self) -> tuple[Package, ...]:
        """The variants, then their companions: everything that has a recipe."""
        return (*self.variants, *self.companions)

    @property
    def notes(self) -> tuple[str, ...]:
        """The hashes that are not taken yet, of pins and of nightlies."""
        found = []
        for source in self.sources():
            if source.may_wait and not source.hash:
                unsure = "Nix cannot detect a changed tarball"
                effect = unsure if source.place[0] == "pin" else "no build begins"
                place = f"{paths.MATRIX}:{line_of(self.text, source.place)}: {dotted(source.place)}"
                fix = f"`invoke prefetch --only {source.name}` adds the hash"
                found.append(f"{place} has no {source.hash_key}: {effect}; {fix}")
        return tuple(found)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of recipes of all releases, each once."""
        found = (folder for release in self.releases.values() for folder in release.folders)
        return tuple(dict.fromkeys(found))

    def of_release(self, name: str) -> tuple[Variant, ...]:
        """Return the variants of one release, in the order of its groups."""
        return tuple(v for v in self.variants if v.release_name == name)
