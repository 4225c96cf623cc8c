"""Closure of a built variant: one CUDA version, and a size within the limit of matrix.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from build_pytorch.inspect.part import Findings, PartRun, error, warning
from build_pytorch.matrix.model import CompanionPackage, Variant
from build_pytorch.nix import store

_GIB: Final = 1 << 30
_SUBJECT: Final = "the closure"
_STORE_NAME: Final = re.compile(r"/[0-9a-z]{32}-(?P<name>[^/]+)$")

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


def cuda_versions(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the CUDA versions in the names of store paths, each with these names."""
    found: dict[str, list[str]] = {}
    for name in map(_name, paths):
        prefix = _WITH_VERSION.match(name)
        after = prefix and _WITH_VERSION.match(name, prefix.end())
        for version in {match[match.lastindex or 0] for match in (prefix, after) if match}:
            found.setdefault(version, []).append(name)
    return dict(sorted(found.items()))


def _name(path: str) -> str:
    match = _STORE_NAME.search(path)
    return match["name"] if match else path.rpartition("/")[2]


def look(run: PartRun) -> Findings:
    """Query the closure of the result and compare its CUDA versions and its size."""
    assert run.target.artefact  # noqa: S101 - the part needs a result
    run.progress("closure", 0, 0)
    run.subjects.append(_SUBJECT)
    output, variant = str(run.target.artefact.output), run.target.variant
    paths = store.requisites(output)
    sizes = dict(zip(paths, store.sizes(paths), strict=True))
    largest = sorted(paths, key=sizes.__getitem__, reverse=True)[:10]
    size, versions = sum(sizes.values()), cuda_versions(paths)
    run.figures = {
        "paths": len(paths),
        "bytes": size,
        "own_bytes": sizes.get(output, 0),
        "cuda": versions,
        "largest": {_name(path): sizes[path] for path in largest},
    }
    names = sorted(map(_name, paths))
    yield from _cuda(variant, names, versions)
    if isinstance(run.target.package, CompanionPackage):
        yield from _torch(variant, names)
    budget = variant.release.build.closure_gib
    limit = (budget.gpu if variant.gpu else budget.cpu) if budget else None
    if limit is not None and size > limit * _GIB:
        listing = ", ".join(f"{_name(path)} {sizes[path] / _GIB:.1f}" for path in largest)
        found = f"{size / _GIB:.1f} GiB; the largest: {listing}"
        yield error(_SUBJECT, found, f"at most {limit} GiB (closure_gib in matrix.toml)")


def _torch(variant: Variant, names: list[str]) -> Findings:
    """Find a closure of a companion without the PyTorch of its variant, or with another one."""
    found = sorted({match[0] for match in map(_TORCH.match, names) if match})
    right = f"{variant.pname}-{variant.version}"
    if not any(name.endswith(right) for name in found):
        yield error(_SUBJECT, f"no {right}; PyTorch in it: {_some(found) or 'none'}", right)
    elif len(found) > 1:
        yield error(_SUBJECT, f"several PyTorch: {_some(found)}", f"{right} only")


def _cuda(variant: Variant, names: list[str], versions: dict[str, list[str]]) -> Findings:
    cuda, found = variant.release.cuda, list(filter(_CUDA.match, names))
    if variant.gpu is None or cuda is None:
        if found:
            yield error(_SUBJECT, f"CUDA in a CPU-only variant: {_some(found)}", "no CUDA at all")
        return
    if not found:
        yield error(_SUBJECT, "no CUDA at all", f"CUDA {cuda.version}")
    elif not versions:
        expected = f"CUDA {cuda.version}"
        yield warning(_SUBJECT, f"{_some(found)}: no name with a CUDA version", expected)
    for version, holders in versions.items():
        if version != cuda.version:
            expected = f"CUDA {cuda.version} only"
            yield error(_SUBJECT, f"CUDA {version}: {_some(holders)}", expected)


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
