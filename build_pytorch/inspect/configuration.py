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

from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import read_named
from build_pytorch.base.versions import in_range, minor_version
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix import build_features
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.smoke.script import release_of

_ORIGIN: Final = "the files"
_LIBRARIES: Final = "the libraries"
_SECTIONS: Final = (b".dynstr", b".rodata")
_OWN: Final = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so")
_BLAS: Final = "libopenblas*.so*"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_LONGEST: Final = 1 << 16  #: bytes of CXX_FLAGS before and after it
_NO_CUPTI: Final = "-DLIBKINETO_NOCUPTI"
"""In CXX_FLAGS of a build whose Kineto found no CUPTI (third_party/kineto's CMake, as
cmake/Dependencies.cmake calls it). Debian's libtorch-cuda-2.6 has it; the official CUDA wheels of
2.11, 2.14 and 2.15 do not (2026-11-21)."""
_HAS_CUPTI: Final = "-DHAS_CUPTI"
_SAYS_CUPTI: Final = ">=2.14"
"""Versions of which the official CUDA wheels have the flag above (2026-11-21)."""
_ENABLES_NOTHING: Final = re.compile(
    r"-m(?:no-.+|tune=.+|cmodel=.+|64|fpmath=.+|abi=.+|prefer-vector-width=.+"
    r"|tls-dialect=.+|branch-protection=.+|outline-atomics|omit-leaf-frame-pointer|stackrealign"
    r"|indirect-branch.*|function-return=.+|fentry|harden-sls=.+)"
)
"""Options of the target that enable no instructions (GCC manual, x86 and AArch64 options)."""
_MOST_TEXT: Final = 1 << 28
"""Bytes of a section of texts; the largest of an official wheel has 19 MB (2.11.0)."""


def check_config(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Compare what version.py and the main library state with the matrix."""
    stated, flags = _stated(target), None
    if target.package.companion is None:  # companions state the version only
        flags = cxx_flags(_texts([target.folder / "libtorch_cpu.so"]))
    figures |= {"version": stated.get("__version__"), "cuda": stated.get("cuda"), "flags": flags}
    yield from judge_config(target.package, **figures)


def cxx_flags(texts: Iterable[bytes]) -> str | None:
    """Return the string of a library that has CXX_FLAGS, or None."""
    for text in texts:
        if (at := text.find(_CXX)) >= 0:
            before = text[max(0, at - _LONGEST) : at].rpartition(b"\0")[2]
            after = text[at : at + _LONGEST].partition(b"\0")[0]
            return (before + after).decode(errors="replace")
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
            yield from _check_flags(package, flags.split())
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
    if variant.gpu is None:
        return
    expected = "a Kineto with CUPTI: without it torch.profiler records no CUDA activity"
    fix = "give CMake the paths of CUPTI, as nixpkgs' pytorch-pr-108847.patch does"
    if off := [flag for flag in flags if flag.startswith(_NO_CUPTI)]:
        yield InspectionFinding("error", _ORIGIN, f"CXX_FLAGS with {off[0]}", expected, fix)
    elif in_range(variant.release.torch.version, _SAYS_CUPTI) and _HAS_CUPTI not in flags:
        found = f"CXX_FLAGS without {_HAS_CUPTI}"
        yield InspectionFinding("warning", _ORIGIN, found, expected, fix)


def _stated(target: Target) -> dict[str, str]:
    """Return the texts that version.py defines, "" for None; {} if it cannot be read.

    The libraries of a result may be in another output than its Python files.
    """
    places = [target.folder, target.folder.parent]
    package = target.product.folder.partition("/")[0]
    output = target.artefact.output if target.artefact else target.folder
    for place in (*places, *output.glob(f"lib/python3*/site-packages/{package}")):
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
    found = features_in([*with_blas(target.folder), *filter(Path.is_file, beside)])
    figures["features"] = found
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
    expected = f"as in the official wheel of {version}"
    lacking = build_features.lacking(wheel, "files", found, has_cuda=variant.gpu is not None)
    problems = [f"{each.problem}; {each.explanation}" for each in lacking]
    for text in problems if found else ["no feature shows in their names and texts"]:
        yield InspectionFinding("warning", _LIBRARIES, text, expected)


def features_in(libraries: Iterable[Path]) -> dict[str, str]:
    """Return the features that are seen in libraries. Raises ToolError and OSError."""
    return build_features.seen(_texts(libraries), "files")


def with_blas(folder: Path) -> list[Path]:
    """Return PyTorch's libraries in a folder that show features, and the BLAS of a wheel."""
    own = (folder / name for name in _OWN)
    blas = (*folder.glob(_BLAS), *folder.parent.parent.glob(f"torch.libs/{_BLAS}"))
    return sorted(path for path in (*own, *blas) if path.is_file())


def _texts(libraries: Iterable[Path]) -> list[bytes]:
    """Return the names and texts of libraries."""
    found = []
    for library in libraries:
        sections = read_elf(library).sections
        with library.open("rb") as file:
            for at, length in (sections[name] for name in _SECTIONS if name in sections):
                if length > _MOST_TEXT:
                    raise ToolError(f"{library.name}: more than {_MOST_TEXT >> 20} MiB of text")
                file.seek(at)
                found.append(file.read(length))
    return found
