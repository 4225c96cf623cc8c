"""Closure of a built package: one CUDA version, and a size within the limit of matrix.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from build_pytorch.inspect.part import PartResult, Progress, Target
from build_pytorch.matrix.model import CompanionPackage, Variant
from build_pytorch.nix import store

_GIB: Final = 1 << 30
_SUBJECT: Final = "the closure"
_STORE_PREFIX: Final = re.compile(r".*/(?:[0-9a-z]{32}-)?")

_WITH_VERSION: Final = re.compile(
    r"cuda(\d+\.\d+)-|cuda_(?!compat)[a-z_]+-(\d+\.\d+)\.|cuda(?:toolkit|-merged)-(\d+\.\d+)"
    r"|lib(?:nvjitlink|nvfatbin)-(\d+\.\d+)\."
)
"""Names with the version of their CUDA release (NVIDIA's release notes, component versions), from
their begin, and after the prefix that all CUDA packages in nixpkgs have since 2025:
cuda13.0-cuda_cudart-13.0.96. libcublas, libcufft, libcurand, libcusolver, libcusparse, cudnn and
nccl have their own versions: one CUDA release has numbers such as 13.1, 12.0, 10.4, 12.0, 9 and 2.
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


def check_closure(target: Target, result: PartResult, _progress: Progress) -> None:
    """Query the closure of the result and compare its CUDA versions and its size."""
    assert target.artefact  # noqa: S101 - the part needs a result
    result.passed = [_SUBJECT]
    output, variant = str(target.artefact.output), target.variant
    paths = store.requisites(output)
    sizes = dict(zip(paths, store.sizes(paths), strict=True))
    largest = {_name(path): sizes[path] for path in sorted(paths, key=sizes.__getitem__)[:-11:-1]}
    names, size = sorted(map(_name, paths)), sum(sizes.values())
    result.figures = {
        "paths": len(paths),
        "bytes": size,
        "own_bytes": sizes.get(output, 0),
        "cuda": cuda_versions(names),
        "largest": largest,
    }
    check_cuda(variant, names, result)
    if isinstance(target.package, CompanionPackage):
        check_torch(variant, names, result)
    budget = variant.release.build.closure_gib
    limit = (budget.gpu if variant.gpu else budget.cpu) if budget else None
    if limit is not None and size > limit * _GIB:
        listing = ", ".join(f"{name} {part / _GIB:.1f}" for name, part in largest.items())
        found = f"{size / _GIB:.1f} GiB; the largest: {listing}"
        result.error(_SUBJECT, found, f"at most {limit} GiB (closure_gib in matrix.toml)")


def check_torch(variant: Variant, names: list[str], result: PartResult) -> None:
    """Find a closure of a companion without the PyTorch of its variant, or with another one."""
    found = sorted({match[0] for match in map(_TORCH.match, names) if match})
    right = f"{variant.pname}-{variant.version}"
    if not any(name.endswith(right) for name in found):
        result.error(_SUBJECT, f"no {right}; PyTorch in it: {_some(found) or 'none'}", right)
    elif len(found) > 1:
        result.error(_SUBJECT, f"several PyTorch: {_some(found)}", f"{right} only")


def check_cuda(variant: Variant, names: list[str], result: PartResult) -> None:
    """Find CUDA in a CPU-only closure, none in another one, and every other CUDA version."""
    cuda, found = variant.release.cuda, list(filter(_CUDA.match, names))
    if variant.gpu is None or cuda is None:
        if found:
            result.error(_SUBJECT, f"CUDA in a CPU-only variant: {_some(found)}", "no CUDA at all")
        return
    expected, versions = f"CUDA {cuda.version}", cuda_versions(names)
    if not found:
        result.error(_SUBJECT, "no CUDA at all", expected)
    elif not versions:
        result.warning(_SUBJECT, f"{_some(found)}: no name with a CUDA version", expected)
    for version, holders in versions.items():
        if version != cuda.version:
            result.error(_SUBJECT, f"CUDA {version}: {_some(holders)}", f"{expected} only")


def _name(path: str) -> str:
    return _STORE_PREFIX.sub("", path, count=1)


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
