"""Closure of a built package: one CUDA version, and no more bytes than allowed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.nix import store

_GIB: Final = 1 << 30
_GROWTH: Final = 1.1  #: more than this many times the size of an earlier result fails
_SUBJECT: Final = "the closure"
_MOST: Final = 10  #: packages that are listed
_WITH_VERSION: Final = re.compile(
    r"(?:^cuda|(?:^|-)cuda_(?!compat)[a-z_]+-|^cuda(?:toolkit|-merged)-"
    r"|^lib(?:nvjitlink|nvfatbin)-)(\d+\.\d+)"
)
"""Names with the version of their CUDA release (NVIDIA's release notes, component versions), and
the prefix that all CUDA packages in nixpkgs have since 2025: cuda13.0-cuda_cudart-13.0.96.
libcublas, libcufft, libcurand, libcusolver, libcusparse, cudnn and nccl have their own versions:
one CUDA release has numbers such as 13.1, 12.0, 10.4, 12.0, 9 and 2.
"""
_TORCH: Final = re.compile(r"python3\.\d+-(?:torch-|pytorch\d+-\S*-)\d+(?:\.\d+)+(?:\.?dev\d+)?")
"""PyTorch as nixpkgs and the recipes name it, without the name of an output."""
_CUDA: Final = re.compile(
    r"cuda|libcu(?:blas|fft|rand|solver|sparse|file)|libnv(?:jitlink|fatbin|jpeg|shmem)|cudnn"
    r"|nccl|libcudnn|libcusparse_lt|cusparselt"
)


def check_closure(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Compare the CUDA versions and the size of a closure with what is allowed."""
    paths = target.closure()
    names = [re.sub(r"^[0-9a-z]{32}-", "", Path(path).name) for path in paths]
    by_size = sorted(zip(names, store.sizes(paths), strict=True), key=lambda item: -item[1])
    figures |= {"bytes": sum(held for _, held in by_size), "largest": dict(by_size[:_MOST])}
    yield from check_names(target.package, sorted(names))
    yield from check_size(target, figures["bytes"], figures["largest"])


def check_size(target: Target, size: int, largest: dict[str, int]) -> Iterator[InspectionFinding]:
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


def check_names(package: Package, names: list[str]) -> Iterator[InspectionFinding]:
    """Find what the names of store paths say of CUDA, and of the PyTorch of a companion."""
    variant, found = package.variant, list(filter(_CUDA.match, names))
    cuda, versions = variant.gpu and variant.release.cuda, defaultdict[str, list[str]](list)
    for name in names:
        for version in set(_WITH_VERSION.findall(name)):
            versions[version].append(name)
    right = f"CUDA {cuda.version} and no other" if cuda else "no CUDA at all"
    if bool(found) != bool(cuda):
        text = f"CUDA in a CPU-only variant: {_some(found)}" if found else "no CUDA at all"
        yield InspectionFinding("error", _SUBJECT, text, right)
    elif cuda and not versions:
        text = f"{_some(found)}: no name with a CUDA version"
        yield InspectionFinding("warning", _SUBJECT, text, right)
    for version, holders in sorted(versions.items()):
        if cuda and version != cuda.version:
            yield InspectionFinding("error", _SUBJECT, f"CUDA {version}: {_some(holders)}", right)
    if package.companion:
        yield from check_torch(variant, names)


def check_torch(variant: Variant, names: Sequence[str]) -> Iterator[InspectionFinding]:
    """Find a closure of a companion without the PyTorch of its variant, or with another one."""
    right = f"{variant.pname}-{variant.version}"
    found = sorted({match[0] for match in map(_TORCH.match, names) if match})
    if [name.endswith(right) for name in found] != [True]:
        yield InspectionFinding("error", _SUBJECT, f"PyTorch {_some(found) or 'nowhere'}", right)


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
