"""Build configuration: versions and compiler flags, as the built files state them.

The flags are strings in the libraries, which torch.__config__ prints; the versions are in
version.py. A variant that can run here must also import its torch.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final

from packaging.version import Version

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import open_named, read_named
from build_pytorch.base.versions import minor_version
from build_pytorch.inspect.part import PartResult, Progress, Target
from build_pytorch.matrix.model import CompanionPackage, Variant
from build_pytorch.results.artefacts import Artefact, interpreter
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import cpu_mismatch

_SECONDS: Final = 300.0
_ORIGIN: Final = "the files"
_VERSION_FILE: Final = "version.py"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_NO_CUPTI: Final = "-DLIBKINETO_NOCUPTI"
"""In CXX_FLAGS of a build whose Kineto found no CUPTI (third_party/kineto's CMake, as
cmake/Dependencies.cmake calls it). Debian's libtorch-cuda-2.6 has it; the official CUDA wheels of
2.11, 2.14 and 2.15 do not (2026-11-21)."""
_HAS_CUPTI: Final = "-DHAS_CUPTI"
_SAYS_CUPTI: Final = Version("2.14")
"""From here on the official CUDA wheels have the flag above."""
_ENABLES_NOTHING: Final = re.compile(
    r"-m(?:no-.+|tune=.+|cmodel=.+|64|fpmath=.+|abi=.+|prefer-vector-width=.+"
    r"|tls-dialect=.+|branch-protection=.+|outline-atomics|omit-leaf-frame-pointer|stackrealign"
    r"|indirect-branch.*|function-return=.+|fentry|harden-sls=.+)"
)
"""Options of the target that enable no instructions (GCC manual, x86 and AArch64 options)."""
_LONGEST: Final = 1 << 16
"""Bytes on either side of what is searched for in a library."""
_PIECE: Final = 1 << 24


def check_config(target: Target, result: PartResult, _progress: Progress) -> None:
    """Compare the configuration with the matrix. What is unknown leaves the part undecided."""
    stated, variant = _stated(target), target.variant
    version, cuda = stated.get("__version__"), stated.get("cuda")
    if isinstance(target.package, CompanionPackage):  # its files state the version only
        result.passed = [_VERSION_FILE]
        result.figures = {"from": _VERSION_FILE, "version": version}
        if version is None:
            result.reason = f"{_VERSION_FILE}: the version not found"
        elif script.release_of(version) != target.package.version:
            found = f"{target.product.title} {version}"
            result.error(_VERSION_FILE, found, target.package.version)
        return
    flags = _string_with(target.folder / "libtorch_cpu.so", _CXX)
    not_asked = "a folder has no Python of its own"
    if target.artefact:
        not_asked = cpu_mismatch(variant, platform.machine(), script.cpu_facts()["flags"])
        if not not_asked:
            result.passed.append("torch")
            _check_import(target.artefact, variant, result)
    result.passed.append(_ORIGIN)
    known = {"the version": version, "the CUDA version": cuda, "CXX_FLAGS": flags}
    if unknown := [name for name, value in known.items() if value is None]:
        result.reason = f"{_ORIGIN}: {', '.join(unknown)} not found"
    result.figures = {"from": _ORIGIN, "not_asked": not_asked}
    result.figures |= {"version": version, "cuda": cuda, "cxx_flags": flags}
    _check_versions(variant, version, cuda, result)
    if flags is not None:
        _check_flags(variant, flags.split(), result)


def _check_import(built: Artefact, variant: Variant, result: PartResult) -> None:
    """Let the variant's Python import torch, and find an error or a torch from elsewhere.

    Raises ToolError if there is no Python, or if it does not start or end.
    """
    python, env = interpreter(built, variant.release.python.version)
    argv = [str(python), "-c", "import torch; print(torch.__file__)"]
    done = process.start(argv, env=env).finish(_SECONDS)
    file = done.stdout.partition("\n")[0]
    if done.expired:
        raise ToolError(f"its Python did not finish within {_SECONDS:g} s")
    if done.code:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.code}"])[-1]
        found = f"its Python cannot import torch: {last}"
        result.error("torch", found, "a torch that can be imported")
    elif not built.holds(file):
        found = f"its Python imports another torch: {file or 'none'}"
        result.error("torch", found, f"one in {built.output}")


def _check_versions(
    variant: Variant, version: str | None, cuda: str | None, result: PartResult
) -> None:
    release = variant.release
    if version is not None and version.partition("+")[0] != release.torch.version:
        result.error(_ORIGIN, f"PyTorch {version}", release.torch.version)
    wanted = release.cuda.version if variant.gpu and release.cuda else ""
    if cuda is not None and minor_version(cuda) != minor_version(wanted):
        result.error(_ORIGIN, f"CUDA {cuda or 'none'}", f"CUDA {wanted or 'none'}")


def _check_flags(variant: Variant, flags: list[str], result: PartResult) -> None:
    wanted = variant.cpu.flags
    if missing := [flag for flag in wanted if flag not in flags]:
        found = f"CXX_FLAGS without {' '.join(missing)}"
        result.error(_ORIGIN, found, f"all of {' '.join(wanted)}")
    surplus = [flag for flag in flags if flag.startswith("-m") and flag not in wanted]
    if surplus := [flag for flag in surplus if not _ENABLES_NOTHING.fullmatch(flag)]:
        result.error(_ORIGIN, f"CXX_FLAGS with {' '.join(surplus)}", f"only {' '.join(wanted)}")
    if variant.gpu is None:
        return
    expected = "a Kineto with CUPTI: without it torch.profiler records no CUDA activity"
    fix = "give CMake the paths of CUPTI, as nixpkgs' pytorch-pr-108847.patch does"
    if off := [flag for flag in flags if flag.startswith(_NO_CUPTI)]:
        result.error(_ORIGIN, f"CXX_FLAGS with {off[0]}", expected, fix)
    elif Version(variant.release.torch.version) >= _SAYS_CUPTI and _HAS_CUPTI not in flags:
        result.warning(_ORIGIN, f"CXX_FLAGS without {_HAS_CUPTI}", expected, fix)


def _stated(target: Target) -> dict[str, str]:
    """Return the texts that version.py defines, "" for None; {} if it cannot be read.

    The libraries of a result may be in another output than its Python files.
    """
    places = [target.folder, target.folder.parent]
    if target.artefact:
        package = target.product.folder.partition("/")[0]
        places += target.artefact.output.glob(f"lib/python3*/site-packages/{package}")
    for place in places:
        try:
            text = read_named(place / _VERSION_FILE).decode(errors="replace")
        except OSError:
            continue
        return stated_in(text)
    return {}


def stated_in(text: str) -> dict[str, str]:
    """Return the texts that the text of a version.py defines, "" for None."""
    lines = r"^(\w+)\b[^=\n]*= (?:None\b|['\"]([^'\"\n]+)['\"])"
    return dict(re.findall(lines, text, re.MULTILINE))


def _string_with(library: Path, part: bytes) -> str | None:
    """Return the string of a library that contains some bytes, at most 64 KiB to either side."""
    try:
        file = os.fdopen(open_named(library), "rb")
    except OSError:
        return None
    with file:
        for begin in range(0, os.fstat(file.fileno()).st_size, _PIECE):
            at = os.pread(file.fileno(), _PIECE + len(part), begin).find(part) + begin
            if at >= begin:
                first = max(0, at - _LONGEST)
                text = os.pread(file.fileno(), 2 * _LONGEST, first)
                before, after = text[: at - first], text[at - first :]
                whole = before.rpartition(b"\0")[2] + after.partition(b"\0")[0]
                return whole.decode(errors="replace")
    return None
