"""Closure of a built package: one CUDA version, and no more bytes than allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import store

_GIB: Final = 1 << 30
_GROWTH: Final = 1.1  #: more than this many times the size of an earlier result fails
_SUBJECT: Final = "the closure"
_MOST: Final = 10
_STORE_PREFIX: Final = re.compile(r".*/(?:[0-9a-z]{32}-)?")
_WITH_VERSION: Final = re.compile(
    r"cuda(\d+\.\d+)-|cuda_(?!compat)[a-z_]+-(\d+\.\d+)\.|cuda(?:toolkit|-merged)-(\d+\.\d+)"
    r"|lib(?:nvjitlink|nvfatbin)-(\d+\.\d+)\."
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


def cuda_versions(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the CUDA versions in the names of store paths, each with these names."""
    found: dict[str, list[str]] = {}
    for name in names:
        prefix = _WITH_VERSION.match(name)
        after = prefix and _WITH_VERSION.match(name, prefix.end())
        for version in {match[match.lastindex or 0] for match in (prefix, after) if match}:
            found.setdefault(version, []).append(name)
    return dict(sorted(found.items()))


def check_closure(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Compare the CUDA versions and the size of a closure with what is allowed."""
    paths = target.closure()
    names = [_STORE_PREFIX.sub("", path, count=1) for path in paths]
    sizes = zip(names, store.sizes(paths), strict=True)
    by_size = sorted(sizes, key=lambda item: -item[1])
    figures |= {"bytes": sum(held for _, held in by_size), "largest": dict(by_size[:_MOST])}
    variant = target.package.variant
    yield from check_cuda(variant, sorted(names))
    if target.package.companion:
        yield from check_torch(variant, sorted(names))
    yield from check_size(target, figures["bytes"], figures["largest"])


def check_size(target: Target, size: int, largest: dict[str, int]) -> Iterator[InspectionFinding]:
    """Find a closure above the budget of the matrix, or far above that of an earlier result."""
    variant, (report, before) = target.package.variant, target.earlier
    budget = variant.release.build.closure_gib
    limit = (budget.gpu if variant.gpu else budget.cpu) if budget else None
    listing = ", ".join(f"{name} {held / _GIB:.1f}" for name, held in largest.items())
    found = f"{size / _GIB:.1f} GiB; the largest: {listing}"
    if limit is not None and size > limit * _GIB:
        expected = f"at most {limit} GiB (closure_gib in matrix.toml)"
        yield InspectionFinding("error", _SUBJECT, found, expected)
    if before and size > before * _GROWTH:
        expected = f"at most 10 % more than the last build, which had {before / _GIB:.1f} GiB"
        fix = f"look at the overlays in the recipe; if it is meant, delete {report}"
        yield InspectionFinding("error", _SUBJECT, found, expected, fix)


def check_cuda(variant: Variant, names: list[str]) -> Iterator[InspectionFinding]:
    """Find CUDA in a CPU-only closure, none in another one, and every other CUDA version."""
    found, cuda = list(filter(_CUDA.match, names)), variant.gpu and variant.release.cuda
    if not cuda:
        if found:
            what = f"CUDA in a CPU-only variant: {_some(found)}"
            yield InspectionFinding("error", _SUBJECT, what, "no CUDA at all")
        return
    right, versions = f"CUDA {cuda.version} and no other", cuda_versions(names)
    if not found:
        yield InspectionFinding("error", _SUBJECT, "no CUDA at all", right)
    elif not versions:
        what = f"{_some(found)}: no name with a CUDA version"
        yield InspectionFinding("warning", _SUBJECT, what, right)
    for version, holders in versions.items():
        if version != cuda.version:
            yield InspectionFinding("error", _SUBJECT, f"CUDA {version}: {_some(holders)}", right)


def check_torch(variant: Variant, names: list[str]) -> Iterator[InspectionFinding]:
    """Find a closure of a companion without the PyTorch of its variant, or with another one."""
    found = sorted({match[0] for match in map(_TORCH.match, names) if match})
    right = f"{variant.pname}-{variant.version}"
    if not any(name.endswith(right) for name in found):
        what = f"no {right}; PyTorch in it: {_some(found) or 'none'}"
        yield InspectionFinding("error", _SUBJECT, what, right)
    elif len(found) > 1:
        what = f"several PyTorch: {_some(found)}"
        yield InspectionFinding("error", _SUBJECT, what, f"{right} only")


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
