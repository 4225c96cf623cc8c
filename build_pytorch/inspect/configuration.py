"""What was compiled in, as the files state it: versions, compiler flags, features, BLAS.

The flags are strings in the libraries, which torch.__config__ prints; the versions are in
version.py; features show in names and texts of the libraries. Nothing is run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from build_pytorch.base.files import read_named
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix import build_features
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.versions import minor_version, release_of

_ORIGIN: Final = "the files"
_LIBRARIES: Final = "the libraries"
_OWN: Final = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so")
_BLAS: Final = "libopenblas*.so*"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_LONGEST: Final = 1 << 16  #: bytes of CXX_FLAGS
_NO_CUPTI: Final = "-DLIBKINETO_NOCUPTI"
"""In CXX_FLAGS of a build whose Kineto found no CUPTI (third_party/kineto's CMake, as
cmake/Dependencies.cmake calls it). Debian's libtorch-cuda-2.6 has it; the official CUDA wheels of
2.11, 2.14 and 2.15 do not (2026-11-21)."""
_ENABLES_NOTHING: Final = re.compile(
    r"-m(?:no-.+|tune=.+|cmodel=.+|64|fpmath=.+|abi=.+|prefer-vector-width=.+"
    r"|tls-dialect=.+|branch-protection=.+|outline-atomics|omit-leaf-frame-pointer|stackrealign"
    r"|indirect-branch.*|function-return=.+|fentry|harden-sls=.+)"
)
"""Options of the target that enable no instructions (GCC manual, x86 and AArch64 options)."""


def check_config(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Compare what version.py and the main library state with the matrix."""
    stated, flags = _stated(target), None
    if target.package.companion is None:  # companions state the version only
        flags = cxx_flags(read_elf(target.folder / "libtorch_cpu.so").texts())
    figures |= {"version": stated.get("__version__"), "cuda": stated.get("cuda"), "flags": flags}
    yield from judge_config(target.package, **figures)


def cxx_flags(texts: Iterable[bytes]) -> str | None:
    """Return the string of a library that has CXX_FLAGS, or None."""
    for text in texts:
        if (at := text.find(_CXX)) >= 0:
            whole = text[text.rfind(b"\0", 0, at) + 1 : text.find(b"\0", at)]
            return whole[:_LONGEST].decode(errors="replace")
    return None


def judge_config(
    package: Package, version: str | None, cuda: str | None, flags: str | None
) -> Iterator[InspectionFinding]:
    """Compare a configuration with the matrix; `cuda`: "" for none. What is None is undecided."""
    release, right = package.variant.release, package.version
    known, stated = {"the version": version}, release_of(version)
    if package.companion is None:
        known |= {"the CUDA version": cuda, "CXX_FLAGS": flags}
        stated = (version or "").partition("+")[0]  # after it: who built it, and how (PEP 440)
        wanted = release.cuda.version if package.gpu and release.cuda else ""
        if cuda is not None and minor_version(cuda) != minor_version(wanted):
            found = f"CUDA {cuda or 'none'}"
            yield InspectionFinding("error", _ORIGIN, found, f"CUDA {wanted or 'none'}")
        if flags is not None:
            yield from _check_flags(package.variant, flags.split())
    if version is not None and stated != right:
        yield InspectionFinding("error", _ORIGIN, f"version {version}", right)
    if unknown := [name for name, value in known.items() if value is None]:
        yield InspectionFinding("undecided", _ORIGIN, f"{', '.join(unknown)} not found")


def _check_flags(variant: Variant, flags: Sequence[str]) -> Iterator[InspectionFinding]:
    wanted = variant.cpu.flags
    missing = [flag for flag in wanted if flag not in flags]
    surplus = [flag for flag in flags if flag.startswith("-m") and flag not in wanted]
    surplus = [flag for flag in surplus if not _ENABLES_NOTHING.fullmatch(flag)]
    for preposition, wrong in (("without", missing), ("with", surplus)):
        if wrong:
            found, expected = f"CXX_FLAGS {preposition} {' '.join(wrong)}", " ".join(wanted)
            yield InspectionFinding("error", _ORIGIN, found, f"{expected} and no other")
    if variant.gpu and any(flag.startswith(_NO_CUPTI) for flag in flags):
        expected = "a Kineto with CUPTI: without it torch.profiler records no CUDA activity"
        fix = "give CMake the paths of CUPTI, as nixpkgs' pytorch-pr-108847.patch does"
        yield InspectionFinding("error", _ORIGIN, f"CXX_FLAGS with {_NO_CUPTI}", expected, fix)


def _stated(target: Target) -> dict[str, str]:
    """Return the texts that version.py defines, "" for None; {} if it cannot be read.

    The libraries of a result may be in another output than its Python files.
    """
    package = target.product.folder.partition("/")[0]
    output = target.artefact.output if target.artefact else target.folder
    sites = output.glob(f"lib/python3*/site-packages/{package}")
    for place in (target.folder, target.folder.parent, *sites):
        with contextlib.suppress(OSError):
            return stated_in(read_named(place / "version.py").decode(errors="replace"))
    return {}


def stated_in(text: str) -> dict[str, str]:
    """Return the texts that the text of a version.py defines, "" for None."""
    lines = r"^(\w+)\b[^=\n]*= (?:None\b|['\"]([^'\"\n]+)['\"])"
    return dict(re.findall(lines, text, re.MULTILINE))


def check_features(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Find a BLAS that is not the one asked for. Warn of what only the official wheel has."""
    variant = target.package.variant
    # The text of an OpenBLAS in the closure says what its threads are.
    beside = (Path(it) / "lib/libopenblas.so" for it in target.closure() if "-openblas-" in it)
    figures["features"] = found = features_in([*with_blas(target.folder), *beside])
    if blas := build_features.other_blas(variant, found):
        fix = "look for BLAS in the summary of CMake in the build log"
        asked = f"{variant.group.blas} (`blas`)"
        yield InspectionFinding("error", _LIBRARIES, f"BLAS: {blas}", asked, fix)
    version, wheel = variant.release.torch.version, build_features.wheel_for(variant)
    if wheel is None:
        note = f"no official wheel of PyTorch {version} for {variant.platform} was read"
        fix = f"`python scripts/wheel_facts.py {version}` reads it"
        yield InspectionFinding("note", _LIBRARIES, f"{note}; {fix}")
        return
    lacking = build_features.lacking(wheel, "files", found, has_cuda=variant.gpu is not None)
    problems = [f"{each.problem}; {each.explanation}" for each in lacking]
    for text in problems if found else ["no feature shows in their names and texts"]:
        expected = f"as in the official wheel of {version}"
        yield InspectionFinding("warning", _LIBRARIES, text, expected)


def features_in(libraries: Iterable[Path]) -> dict[str, str]:
    """Return the features that are seen in libraries that exist. Raises ToolError and OSError."""
    texts = [text for path in libraries if path.is_file() for text in read_elf(path).texts()]
    return build_features.seen(texts, "files")


def with_blas(folder: Path) -> list[Path]:
    """Return PyTorch's libraries in a folder that show features, and the BLAS of a wheel."""
    blas = (*folder.glob(_BLAS), *folder.parent.parent.glob(f"torch.libs/{_BLAS}"))
    return sorted([*(folder / name for name in _OWN), *blas])
