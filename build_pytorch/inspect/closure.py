"""What a built variant depends on: one CUDA, and not more bytes than the matrix allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from build_pytorch.inspect.inspection import Part, Proof, Target, Tell
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import store
from build_pytorch.verify.check import Finding

_GIB: Final = 1 << 30

_STORE_NAME: Final = re.compile(r"/[0-9a-z]{32}-(?P<name>[^/]+)$")

_TELLING: Final = (
    re.compile(r"^cuda(\d+\.\d+)-"),  # nixpkgs since 2025: cuda13.0-cuda_cudart-13.0.96
    re.compile(r"^cuda_(?!compat)[a-z_]+-(\d+\.\d+)\."),
    re.compile(r"^cuda(?:toolkit|-merged)-(\d+\.\d+)"),
    re.compile(r"^lib(?:nvjitlink|nvfatbin)-(\d+\.\d+)\."),
)
"""Names whose version is that of the CUDA they belong to (NVIDIA's release notes, component
versions). libcublas, libcufft, libcurand, libcusolver, libcusparse, cudnn and nccl count by
themselves: one CUDA has numbers such as 13.1, 12.0, 10.4, 12.0, 12.6, 9 and 2."""

_CUDA: Final = re.compile(
    r"^(?:cuda|libcu(?:blas|fft|rand|solver|sparse|file)|libnv(?:jitlink|fatbin|jpeg|shmem)|cudnn"
    r"|nccl|libcudnn|libcusparse_lt|cusparselt)"
)


def versions(paths: Iterable[str]) -> dict[str, list[str]]:
    """The CUDA versions that store paths tell, each with the names that tell it."""
    found: dict[str, list[str]] = {}
    for path in paths:
        name = _name(path)
        told = {match[1] for pattern in _TELLING if (match := pattern.search(name))}
        inner = re.sub(r"^cuda\d+\.\d+-", "", name)
        told |= {match[1] for pattern in _TELLING if (match := pattern.search(inner))}
        for version in told:
            found.setdefault(version, []).append(name)
    return dict(sorted(found.items()))


def cuda_names(paths: Iterable[str]) -> list[str]:
    """The names of store paths that belong to some CUDA, whether they tell which or not."""
    return sorted(name for name in map(_name, paths) if _CUDA.search(name))


def _name(path: str) -> str:
    match = _STORE_NAME.search(path)
    return match["name"] if match else path.rpartition("/")[2]


def look(part: Part, target: Target, tell: Tell) -> Proof:
    """Ask the store what the result needs, how large it is, and which CUDA it belongs to."""
    tell("closure", 0, 0)
    paths = store.requisites(target.output)
    sizes = store.sizes(paths)
    size = sum(sizes)
    told = versions(paths)
    largest = sorted(zip(sizes, paths, strict=True), reverse=True)[:10]
    figures: dict[str, Any] = {
        "paths": len(paths),
        "bytes": size,
        "own_bytes": dict(zip(paths, sizes, strict=True)).get(target.output, 0),
        "cuda": told,
        "largest": {_name(path): number for number, path in largest},
    }
    variant = target.variant
    problems = [*_cuda(variant, paths, told), *_size(variant, size, figures["largest"])]
    return part.proof(["the closure"], problems, figures)


def _cuda(variant: Variant, paths: list[str], told: dict[str, list[str]]) -> Iterator[Finding]:
    expected = variant.release.cuda.version if variant.gpu and variant.release.cuda else None
    names = cuda_names(paths)
    if expected is None:
        if names:
            yield _problem(f"CUDA in a CPU-only variant: {_some(names)}", "no CUDA at all")
        return
    if not names:
        yield _problem("no CUDA at all: this PyTorch is CPU-only", f"CUDA {expected}")
    elif not told:
        yield Finding(
            path="the closure",
            found=f"{_some(names)}, none of which tells its CUDA",
            expected=f"CUDA {expected}",
            severity="warning",
        )
    for version, tellers in told.items():
        if version != expected:
            yield _problem(f"CUDA {version}: {_some(tellers)}", f"CUDA {expected} alone")


def _size(variant: Variant, size: int, largest: dict[str, int]) -> Iterator[Finding]:
    budget = variant.release.build.closure_gib
    limit = (budget.gpu if variant.gpu else budget.cpu) if budget else None
    if limit is not None and size > limit * _GIB:
        listing = ", ".join(f"{name} {number / _GIB:.1f}" for name, number in largest.items())
        yield _problem(
            f"{size / _GIB:.1f} GiB; the largest: {listing}",
            f"at most {limit} GiB (closure_gib in matrix.toml)",
        )


def _problem(found: str, expected: str) -> Finding:
    return Finding(path="the closure", found=found, expected=expected)


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
