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
from build_pytorch.inspect.target import Findings, InspectionFinding, Target
from build_pytorch.matrix import build_features
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.versions import minor_version, order

_ORIGIN: Final = "the files"
_LIBRARIES: Final = "the libraries"
_OWN: Final = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so")
_BLAS: Final = "libopenblas*.so*"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_LONGEST: Final = 1 << 16  #: bytes of CXX_FLAGS
_NO_CUPTI: Final = "-DLIBKINETO_NOCUPTI"
"""In CXX_FLAGS of a build whose Kineto found no CUPTI: torch.profiler records no CUDA activity.
Debian's libtorch-cuda-2.6 has it; official CUDA wheels of 2.11 to 2.15 do not (2026-11-21)."""
_ENABLES_NOTHING: Final = re.compile(
    "-m(64|no-.+|(tune|cmodel|fpmath|abi|prefer-vector-width|tls-dialect|branch-protection)=.+)"
)
"""Options of the target that enable no instructions (GCC manual, x86 and AArch64 options)."""


def check_config(target: Target, figures: dict[str, Any]) -> Findings:
    """Compare what version.py and the main library state with the matrix."""
    stated, flags = dict[str, str](), None
    for folder in (target.folder.parent, target.folder):
        with contextlib.suppress(OSError):
            stated = stated_in(read_named(folder / "version.py").decode(errors="replace"))
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


def stated_in(text: str) -> dict[str, str]:
    """Return the texts that the text of a version.py defines, "" for None."""
    lines = r"^(\w+)\b[^=\n]*= (?:None\b|['\"]([^'\"\n]+)['\"])"
    return dict(re.findall(lines, text, re.MULTILINE))


def judge_config(
    package: Package, version: str | None, cuda: str | None, flags: str | None
) -> Findings:
    """Compare a configuration with the matrix; `cuda`: "" for none. What is None is undecided."""
    known = {"the version": version}
    stated = order(version or "").base_version  # companions have a0 at their release tags too
    if package.companion is None:
        known |= {"the CUDA version": cuda, "CXX_FLAGS": flags}
        stated = (version or "").partition("+")[0]  # after it: who built it, and how (PEP 440)
        wanted = package.cuda.version if package.cuda else "none"
        if cuda is not None and minor_version(cuda or "none") != minor_version(wanted):
            yield InspectionFinding("error", _ORIGIN, f"CUDA {cuda or 'none'}", f"CUDA {wanted}")
        for found in _wrong_flags(package, flags.split()) if flags is not None else ():
            right = f"{' '.join(package.cpu.flags)} and no other"
            yield InspectionFinding("error", _ORIGIN, f"CXX_FLAGS {found}", right)
    if version is not None and stated != package.version:
        yield InspectionFinding("error", _ORIGIN, f"version {version}", package.version)
    if unknown := [name for name, value in known.items() if value is None]:
        yield InspectionFinding("undecided", _ORIGIN, f"{', '.join(unknown)} not found")


def _wrong_flags(variant: Variant, flags: Sequence[str]) -> Iterator[str]:
    """Yield which flags are missing, and which enable instructions that nobody asked for."""
    wanted, harmful = variant.cpu.flags, ("-m", _NO_CUPTI) if variant.gpu else ("-m",)
    if missing := [flag for flag in wanted if flag not in flags]:
        yield f"without {' '.join(missing)}"
    surplus = [flag for flag in flags if flag.startswith(harmful) and flag not in wanted]
    if surplus := [flag for flag in surplus if not _ENABLES_NOTHING.fullmatch(flag)]:
        yield f"with {' '.join(surplus)}"


def check_features(target: Target, figures: dict[str, Any]) -> Findings:
    """Find a BLAS that is not the one asked for. Warn of what only the official wheel has."""
    variant = target.package.variant
    # The text of an OpenBLAS in the closure says what its threads are.
    beside = (Path(it) / "lib/libopenblas.so" for it in target.closure() if "-openblas-" in it)
    figures["features"] = found = features_in([*with_blas(target.folder), *beside])
    if blas := build_features.other_blas(variant, found):
        yield InspectionFinding("error", _LIBRARIES, f"BLAS: {blas}", variant.group.blas)
    version, wheel = variant.version, build_features.wheel_for(variant)
    problems = ["no feature shows in their names and texts"]
    if wheel is None:
        fix = f"run `python scripts/wheel_facts.py {version}`"
        problems = [f"nothing to compare with for {variant.platform}; {fix}"]
    elif found:
        lacking = build_features.lacking(wheel, "files", found, has_cuda=variant.gpu is not None)
        problems = [text for _, text in lacking]
    for text in problems:
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
