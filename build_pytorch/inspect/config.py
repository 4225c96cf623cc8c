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

from msgspec import Struct, structs
from packaging.version import Version

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import read_named
from build_pytorch.base.versions import minor_version
from build_pytorch.inspect.cpu_features import enables_more
from build_pytorch.inspect.elf_file import open_regular
from build_pytorch.inspect.part import Findings, PartRun, Target, error, warning
from build_pytorch.matrix.model import CompanionPackage, Variant
from build_pytorch.results.artefacts import Artefact, interpreter
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import cpu_mismatch

_SECONDS: Final = 300.0
_ORIGIN: Final = "the files"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_NO_CUPTI: Final = "-DLIBKINETO_NOCUPTI"
"""In CXX_FLAGS of a build whose Kineto found no CUPTI (third_party/kineto's CMake, as
cmake/Dependencies.cmake calls it). Debian's libtorch-cuda-2.6 has it; the official CUDA wheels of
2.11, 2.14 and 2.15 do not (2026-11-21)."""
_HAS_CUPTI: Final = "-DHAS_CUPTI"
_SAYS_CUPTI: Final = Version("2.14")
"""From here on the official CUDA wheels have the flag above."""
_LONGEST: Final = 1 << 16
"""Bytes on either side of what is searched for in a library."""
_PIECE: Final = 1 << 24
_VERSION_FILE: Final = "version.py"


class BuildConfig(Struct, frozen=True, kw_only=True):
    """The configuration that a PyTorch was built with; None for what is unknown."""

    version: str | None = None
    cuda: str | None = None
    """Empty: built without CUDA."""
    cxx_flags: str | None = None


def look(run: PartRun) -> Findings:
    """Compare the configuration with the matrix. What is unknown leaves the part undecided."""
    run.progress("build configuration", 0, 0)
    if isinstance(run.target.package, CompanionPackage):
        yield from _version(run, run.target.package)
        return
    variant, reason = run.target.variant, _cannot_run(run.target)
    config = read_config(run.target)
    run.figures = {"from": _ORIGIN, "not_asked": reason, **structs.asdict(config)}
    if run.target.artefact and not reason:
        run.subjects.append("torch")
        yield from _wrong_import(run.target.artefact, variant)
    run.subjects.append(_ORIGIN)
    names = {"version": "the version", "cuda": "the CUDA version", "cxx_flags": "CXX_FLAGS"}
    if unknown := [name for key, name in names.items() if run.figures[key] is None]:
        run.undecided = f"{_ORIGIN}: {', '.join(unknown)} not found"
    yield from _problems(variant, config)


def _version(run: PartRun, package: CompanionPackage) -> Findings:
    """Compare the version of a companion, which is all that its files state."""
    found = _stated(run.target).get("__version__")
    run.subjects.append(_VERSION_FILE)
    run.figures = {"from": _VERSION_FILE, "version": found}
    if found is None:
        run.undecided = f"{_VERSION_FILE}: the version not found"
    elif script.release_of(found) != package.version:
        yield error(_VERSION_FILE, f"{run.target.product.title} {found}", package.version)


def _cannot_run(target: Target) -> str:
    """Return why the variant's Python does not run here though nothing is wrong with it."""
    if target.artefact is None:
        return "a folder has no Python of its own"
    return cpu_mismatch(target.variant, platform.machine(), script.cpu_facts()["flags"])


def _wrong_import(built: Artefact, variant: Variant) -> Findings:
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
        yield error("torch", found, "a torch that can be imported")
    elif not built.holds(file):
        found = f"its Python imports another torch: {file or 'none'}"
        yield error("torch", found, f"one in {built.output}")


def _problems(variant: Variant, config: BuildConfig) -> Findings:
    release, own = variant.release, " ".join(variant.cpu.flags)
    if config.version is not None and config.version.partition("+")[0] != release.torch.version:
        yield error(_ORIGIN, f"PyTorch {config.version}", release.torch.version)
    cuda = release.cuda.version if variant.gpu and release.cuda else ""
    if config.cuda is not None and minor_version(config.cuda) != minor_version(cuda):
        yield error(_ORIGIN, f"CUDA {config.cuda or 'none'}", f"CUDA {cuda or 'none'}")
    if config.cxx_flags is not None:
        flags = config.cxx_flags.split()
        if missing := [flag for flag in variant.cpu.flags if flag not in flags]:
            yield error(_ORIGIN, f"CXX_FLAGS without {' '.join(missing)}", f"all of {own}")
        if surplus := [flag for flag in flags if enables_more(flag, variant.cpu)]:
            yield error(_ORIGIN, f"CXX_FLAGS with {' '.join(surplus)}", f"only {own}")
        if variant.gpu:
            yield from _without_cupti(flags, Version(release.torch.version))


def _without_cupti(flags: list[str], torch: Version) -> Findings:
    expected = "a Kineto with CUPTI: without it torch.profiler records no CUDA activity"
    fix = "give CMake the paths of CUPTI, as nixpkgs' pytorch-pr-108847.patch does"
    if off := [flag for flag in flags if flag.startswith(_NO_CUPTI)]:
        yield error(_ORIGIN, f"CXX_FLAGS with {off[0]}", expected, fix)
    elif torch >= _SAYS_CUPTI and _HAS_CUPTI not in flags:
        yield warning(_ORIGIN, f"CXX_FLAGS without {_HAS_CUPTI}", expected, fix)


def read_config(target: Target) -> BuildConfig:
    """Read the configuration from the libraries and from version.py."""
    stated = _stated(target)
    return BuildConfig(
        version=stated.get("__version__"),
        cuda=stated.get("cuda"),
        cxx_flags=_string_with(target.folder / "libtorch_cpu.so", _CXX),
    )


def _stated(target: Target) -> dict[str, str]:
    """Return the texts that version.py defines, "" for None; {} if it cannot be read.

    The libraries of a result may be in another output than its Python files.
    """
    places = [target.folder, target.folder.parent]
    if target.artefact:
        package = target.product.place.partition("/")[0]
        places += target.artefact.output.glob(f"lib/python3*/site-packages/{package}")
    for place in places:
        try:
            text = read_named(place / _VERSION_FILE).decode(errors="replace")
        except OSError:
            continue
        lines = r"^(\w+)\b[^=\n]*= (?:None\b|['\"]([^'\"\n]+)['\"])"
        return dict(re.findall(lines, text, re.MULTILINE))
    return {}


def _string_with(library: Path, part: bytes) -> str | None:
    """Return the string of a library that contains some bytes, at most 64 KiB to either side."""
    try:
        file = open_regular(library)
    except (OSError, ToolError):
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
