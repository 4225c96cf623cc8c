"""What an inspection looks at, the files of a package and their closure, and what it finds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base.console import some
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.known_hardware import KnownCompanion
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.nix import store

_GIB: Final = 1 << 30
_GROWTH: Final = 1.1  #: more than this many times the size of an earlier result fails
_SUBJECT: Final = "the closure"
_WITH_VERSION: Final = re.compile(r"(?:^|-(?=cuda_))cuda(?!_compat)[a-z_-]*(\d+\.\d+)")
"""Names with the version of their CUDA release (NVIDIA's release notes, component versions), and
the prefix that all CUDA packages in nixpkgs have since 2025: cuda13.0-cuda_cudart-13.0.96. Others,
such as libcublas, cudnn and nccl, have their own versions.
"""
_TORCH: Final = re.compile(r"python3\.\d+-(?:torch-|pytorch\d+-\S*-)\d+(?:\.\d+)+(?:\.?dev\d+)?")
"""PyTorch as nixpkgs and the recipes name it, without the name of an output."""
_CUDA: Final = re.compile(
    "(lib)?(cuda|cudnn|nccl|cu(blas|fft|rand|solver|sparse|file)|nv(jitlink|fatbin|jpeg|shmem))"
)
_TORCH_FILES: Final = msgspec.toml.decode(
    Path(__file__).with_name("torch.toml").read_bytes(), type=KnownCompanion
)
"""PyTorch, described as companion_versions.toml describes the companions."""


class Target(Struct, kw_only=True):
    """The built files of a package: a result, or without an output a folder of the user."""

    package: Package
    folder: Path  #: of the main library, or where it should be
    output: str = ""  #: store path
    earlier: tuple[str, int] = ("", 0)  #: report and bytes of the closure of an earlier result

    @property
    def product(self) -> KnownCompanion:
        """What the libraries are called and where they are."""
        return known_hardware.load().companion.get(self.package.name, _TORCH_FILES)

    def closure(self) -> list[str]:
        """Return the store paths of a result; none for a folder. Raises ToolError."""
        return store.requisites(self.output) if self.output else []

    def has_main(self, folder: Path) -> bool:
        """Whether a folder has the product's main library, of any file type."""
        return any(os.path.lexists(folder / name) for name in self.product.main)


class InspectionFinding(Struct):
    """What is not as expected; undecided: it could not be read."""

    severity: Literal["error", "undecided", "warning"]
    path: str  #: the library or other thing that has it
    found: str
    expected: str = ""
    fix: str = ""


Findings = Iterator[InspectionFinding]


def check_closure(target: Target, figures: dict[str, Any]) -> Findings:
    """Compare the CUDA versions and the size of a closure with what is allowed."""
    paths = target.closure()
    names = [Path(path).name.partition("-")[2] for path in paths]
    by_size = sorted(zip(names, store.sizes(paths), strict=True), key=lambda item: -item[1])
    figures |= {"bytes": sum(held for _, held in by_size), "largest": dict(by_size[:10])}
    yield from check_names(target.package, sorted(names))
    yield from check_size(target, figures["bytes"], figures["largest"])


def check_size(target: Target, size: int, largest: dict[str, int]) -> Findings:
    """Find a closure above the budget of the matrix, or far above that of an earlier result."""
    variant, (report, before) = target.package.variant, target.earlier
    budget = variant.release.build.closure_gib
    limit = (budget.gpu if variant.gpu else budget.cpu) if budget else None
    listing = ", ".join(f"{name} {held / _GIB:.1f}" for name, held in largest.items())
    found = f"{size / _GIB:.1f} GiB; the largest: {listing}"
    if limit is not None and size > limit * _GIB:
        right = f"at most {limit} GiB (closure_gib in matrix.toml)"
        yield InspectionFinding("error", _SUBJECT, found, right)
    elif before and size > before * _GROWTH:
        right = f"at most 10 % more than the last build, which had {before / _GIB:.1f} GiB"
        fix = f"look at the overlays in the recipe; if it is meant, delete {report}"
        yield InspectionFinding("error", _SUBJECT, found, right, fix)


def check_names(package: Package, names: list[str]) -> Findings:
    """Find what the names of store paths say of CUDA, and of the PyTorch of a companion."""
    cuda, of_cuda = package.cuda, list(filter(_CUDA.match, names))
    right, problem = f"CUDA {cuda.version} and no other" if cuda else "no CUDA at all", ""
    if cuda is None:
        problem = f"CUDA in a CPU-only variant: {some(of_cuda)}" if of_cuda else ""
    elif not of_cuda:
        problem = "no CUDA at all"
    elif others := [it for it in names if {*_WITH_VERSION.findall(it)} - {cuda.version}]:
        problem = f"another CUDA: {some(others)}"
    if problem:
        yield InspectionFinding("error", _SUBJECT, problem, right)
    if package.companion:
        yield from check_torch(package.variant, names)


def check_torch(variant: Variant, names: Sequence[str]) -> Findings:
    """Find a closure of a companion without the PyTorch of its variant, or with another one."""
    right = f"{variant.pname}-{variant.version}"
    found = sorted({match[0] for match in map(_TORCH.match, names) if match})
    if [name.endswith(right) for name in found] != [True]:
        yield InspectionFinding("error", _SUBJECT, f"PyTorch {some(found) or 'nowhere'}", right)
