"""Closure of a built package: one CUDA version, and no more bytes than matrix.toml allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import store

_GIB: Final = 1 << 30
_SUBJECT: Final = "the closure"
_MOST: Final = 10
_STORE_PREFIX: Final = re.compile(r".*/(?:[0-9a-z]{32}-)?")
_WITH_VERSION: Final = re.compile(
    r"(?:cuda\d+\.\d+-)?(?:cuda_(?!compat)[a-z_]+-|cuda(?:toolkit|-merged)-|libnv(?:jitlink|fatbin)-)"
    r"(\d+\.\d+)|cuda(\d+\.\d+)-"
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
        if match := _WITH_VERSION.match(name):
            found.setdefault(match[1] or match[2], []).append(name)
    return dict(sorted(found.items()))


def check_closure(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Query the closure of the result and compare its CUDA versions and its size."""
    assert target.artefact  # noqa: S101 - the part needs a result
    paths, variant = store.requisites(str(target.artefact.output)), target.variant
    sizes = zip(map(_name, paths), store.sizes(paths), strict=True)
    by_size = sorted(sizes, key=lambda item: -item[1])
    size = sum(held for _, held in by_size)
    figures |= {"bytes": size, "largest": dict(by_size[:_MOST])}
    names = sorted(name for name, _ in by_size)
    yield from check_cuda(variant, names)
    if target.package.companion:
        yield from check_torch(variant, names)
    budget = variant.release.build.closure_gib
    limit = (budget.gpu if variant.gpu else budget.cpu) if budget else None
    if limit is not None and size > limit * _GIB:
        listing = ", ".join(f"{name} {held / _GIB:.1f}" for name, held in by_size[:_MOST])
        found = f"{size / _GIB:.1f} GiB; the largest: {listing}"
        expected = f"at most {limit} GiB (closure_gib in matrix.toml)"
        yield InspectionFinding("error", _SUBJECT, found, expected)


def check_cuda(variant: Variant, names: list[str]) -> Iterator[InspectionFinding]:
    """Find CUDA in a CPU-only closure, none in another one, and every other CUDA version."""
    found, cuda = list(filter(_CUDA.match, names)), variant.gpu and variant.release.cuda
    right = f"CUDA {cuda.version} and no other" if cuda else "no CUDA at all"
    if bool(found) != bool(cuda):
        what = f"CUDA in a CPU-only variant: {_some(found)}" if found else "no CUDA at all"
        yield InspectionFinding("error", _SUBJECT, what, right)
    for version, holders in cuda_versions(names).items() if cuda else ():
        if cuda and version != cuda.version:
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


def _name(path: str) -> str:
    return _STORE_PREFIX.sub("", path, count=1)


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
