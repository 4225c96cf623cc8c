"""Features compiled into PyTorch, as names and texts in its libraries show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.part import PartResult, Progress, Target
from build_pytorch.matrix import build_features
from build_pytorch.nix import store

_SECTIONS: Final = (b".dynstr", b".rodata")
_MOST_TEXT: Final = 1 << 30
"""Bytes of one of these sections."""
_OWN: Final = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so")
_BLAS: Final = "libopenblas*.so*"


def check_features(target: Target, result: PartResult, _progress: Progress) -> None:
    """Find a BLAS that is not the one asked for. Warn of what only the official wheel has."""
    variant = target.variant
    wheel = build_features.wheel_for(variant)
    found = features_in([*with_blas(target.folder), *_blas_of(target)])
    result.passed = ["the libraries"]
    if blas := build_features.other_blas(variant, found):
        fix = "look for BLAS in the summary of CMake in the build log"
        result.error("the libraries", f"BLAS: {blas}", f"{variant.group.blas} (`blas`)", fix)
    if wheel is None:
        version = variant.release.torch.version
        note = f"no official wheel of PyTorch {version} for {variant.platform} was read"
        result.notes.append(f"{note}; `python scripts/wheel_facts.py {version}` reads it")
        return
    result.figures = {"wheel": wheel.source, "features": found}
    expected = f"as in the official wheel of {wheel.torch}"
    if not found:
        result.warning("the libraries", "no feature shows in their names and texts", expected)
        return
    for each in build_features.lacking(wheel, "files", found, has_cuda=variant.gpu is not None):
        result.warning("the libraries", f"{each.problem}; {each.explanation}", expected)


def _blas_of(target: Target) -> list[Path]:
    """Return the OpenBLAS in the closure of a result: its text says what its threads are."""
    paths = store.requisites(str(target.artefact.output)) if target.artefact else []
    found = (Path(path) / "lib/libopenblas.so" for path in paths if "-openblas-" in path)
    return [path for path in found if path.is_file()]


def features_in(libraries: Sequence[Path]) -> dict[str, str]:
    """Return the features that are seen in libraries, as `build_features.seen` does.

    Raises ToolError and OSError for a library that cannot be read.
    """
    return build_features.seen(list(_texts(libraries)), "files")


def with_blas(folder: Path) -> list[Path]:
    """Return PyTorch's libraries in a folder that show features, and the BLAS of a wheel."""
    own = (path for pattern in _OWN for path in folder.glob(pattern))
    blas = (*folder.glob(_BLAS), *folder.parent.parent.glob(f"torch.libs/{_BLAS}"))
    return sorted(path for path in (*own, *blas) if path.is_file())


def _texts(libraries: Sequence[Path]) -> Iterator[bytes]:
    for library in libraries:
        elf = read_elf(library)
        for section in filter(None, map(elf.named, _SECTIONS)):
            if section.size > _MOST_TEXT:
                raise ToolError(f"{library.name}: more than {_MOST_TEXT >> 30} GiB of text")
            with library.open("rb") as file:
                file.seek(section.offset)
                yield file.read(section.size)
