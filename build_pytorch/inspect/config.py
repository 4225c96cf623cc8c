"""Build configuration: torch.__config__ or, if it cannot run here, the same strings in the files.

The variant's Python prints its configuration. If the platform differs, the CPU lacks a flag, or
there is only a folder, compiler flags are read from the libraries and versions from version.py.
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
from build_pytorch.inspect.cpu_features import INSTRUCTION_SETS, allowed_features
from build_pytorch.inspect.elf_file import open_regular
from build_pytorch.inspect.part import Findings, PartFinding, PartRun, Target, error, warning
from build_pytorch.matrix.compatibility import built_codes
from build_pytorch.matrix.model import CompanionPackage, Variant
from build_pytorch.matrix.tables import CpuIsa
from build_pytorch.results.artefacts import interpreter
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import cpu_mismatch

_SECONDS: Final = 300.0
_SHOW: Final = (
    "import torch; print(torch.__file__); print(torch.__version__); print(torch.__config__.show())"
)
_ORIGIN: Final = "torch.__config__.show()"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_NVCC: Final = b"-gencode;arch="
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
_NOT_ISA: Final = re.compile(
    r"-m(?:no-.+|tune=.+|cmodel=.+|64|fpmath=.+|abi=.+|prefer-vector-width=.+|tls-dialect=.+"
    r"|branch-protection=.+|outline-atomics|omit-leaf-frame-pointer|stackrealign"
    r"|indirect-branch.*|function-return=.+|fentry|harden-sls=.+)"
)
"""Flags with -m that enable no instructions (GCC manual, x86 options and AArch64 options)."""


class BuildConfig(Struct, frozen=True, kw_only=True):
    """The configuration that a PyTorch was built with; None for what is unknown."""

    origin: str
    version: str | None = None
    cuda: str | None = None
    """Empty: built without CUDA."""
    cxx_flags: str | None = None
    nvcc_flags: str | None = None


def look(run: PartRun) -> Findings:
    """Compare the configuration with the matrix. What is unknown leaves the part undecided."""
    if isinstance(run.target.package, CompanionPackage):
        yield from _version(run, run.target.package)
        return
    run.progress("torch.__config__", 0, 0)
    variant, reason = run.target.variant, _cannot_run(run.target)
    config = from_files(run.target.folder) if reason else _printed(run.target)
    if isinstance(config, PartFinding):
        run.subjects.append(config.path)
        run.figures["from"] = _ORIGIN
        yield config
        return
    values = structs.asdict(config)
    run.subjects.append(config.origin)
    run.figures = {"from": values.pop("origin"), "not_asked": reason, **values}
    names = {"version": "the version", "cuda": "the CUDA version", "cxx_flags": "CXX_FLAGS"}
    names |= {"nvcc_flags": "nvcc's flags"} if variant.gpu else {}
    if unknown := [name for key, name in names.items() if values[key] is None]:
        run.undecided = f"{config.origin}: {', '.join(unknown)} not found"
    yield from _problems(variant, config)


def _version(run: PartRun, package: CompanionPackage) -> Findings:
    """Compare the version of a companion. It has no configuration that it could print."""
    places = (run.target.folder, run.target.folder.parent)
    found = next(filter(None, (_versions(each).get("__version__") for each in places)), None)
    run.subjects.append(_VERSION_FILE)
    run.figures = {"from": _VERSION_FILE, "version": found}
    if found is None:
        run.undecided = f"{_VERSION_FILE}: the version not found"
    elif script.release_of(found) != package.version:
        yield error(_VERSION_FILE, f"{run.target.product.title} {found}", package.version)


def _versions(folder: Path) -> dict[str, str]:
    """Return the texts that the version.py of a folder defines; {} if it cannot be read."""
    try:
        text = read_named(folder / _VERSION_FILE).decode(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"^(\w+)\b[^=\n]*= ['\"]([^'\"]+)['\"]", text, re.MULTILINE))


def _problems(variant: Variant, config: BuildConfig) -> Findings:
    release, own = variant.release, " ".join(variant.cpu.flags)
    if config.version is not None and config.version.partition("+")[0] != release.torch.version:
        yield error(config.origin, f"PyTorch {config.version}", release.torch.version)
    cuda = release.cuda.version if variant.gpu and release.cuda else ""
    if config.cuda is not None and minor_version(config.cuda) != minor_version(cuda):
        yield error(config.origin, f"CUDA {config.cuda or 'none'}", f"CUDA {cuda or 'none'}")
    if config.cxx_flags is not None:
        flags = config.cxx_flags.split()
        if missing := [flag for flag in variant.cpu.flags if flag not in flags]:
            yield error(config.origin, f"CXX_FLAGS without {' '.join(missing)}", f"all of {own}")
        if surplus := [flag for flag in flags if _is_surplus(flag, variant.cpu)]:
            yield error(config.origin, f"CXX_FLAGS with {' '.join(surplus)}", f"only {own}")
        if variant.gpu:
            yield from _without_cupti(config.origin, flags, Version(release.torch.version))
    if config.nvcc_flags is not None and variant.gpu:
        codes = sorted(set(re.findall(r"code=(\w+)", config.nvcc_flags)))
        wanted = built_codes(variant.gpu)
        if codes != sorted(wanted):
            found = f"nvcc compiled for {', '.join(codes) or 'nothing'}"
            yield error(config.origin, found, ", ".join(wanted))


def _without_cupti(origin: str, flags: list[str], torch: Version) -> Findings:
    expected = "a Kineto with CUPTI: without it torch.profiler records no CUDA activity"
    fix = "give CMake the paths of CUPTI, as nixpkgs' pytorch-pr-108847.patch does"
    if off := [flag for flag in flags if flag.startswith(_NO_CUPTI)]:
        yield error(origin, f"CXX_FLAGS with {off[0]}", expected, fix)
    elif torch >= _SAYS_CUPTI and _HAS_CUPTI not in flags:
        yield warning(origin, f"CXX_FLAGS without {_HAS_CUPTI}", expected, fix)


def _is_surplus(flag: str, cpu: CpuIsa) -> bool:
    """Whether a flag enables instructions above the ISA, or is unknown."""
    if not flag.startswith("-m") or flag in cpu.flags or _NOT_ISA.fullmatch(flag):
        return False
    names = INSTRUCTION_SETS[cpu.platform].named_by(flag)
    return names is None or flag.startswith("-march=") or not allowed_features(cpu) >= set(names)


def _cannot_run(target: Target) -> str:
    """Return why the variant's Python does not run here though nothing is wrong with it."""
    if target.artefact is None:
        return "a folder has no Python of its own"
    here = f"{platform.machine()}-{platform.system().lower()}"
    if target.variant.cpu.platform != here:
        return f"{target.variant.cpu.platform} does not run on {here}"
    return cpu_mismatch(target.variant, platform.machine(), script.cpu_facts()["flags"])


def _printed(target: Target) -> BuildConfig | PartFinding:
    """Return the configuration that the variant's Python prints, or what is wrong with its torch.

    Raises ToolError if there is no Python, or if it does not start or end.
    """
    assert target.artefact  # noqa: S101 - see _cannot_run
    python, env = interpreter(target.artefact, target.variant.release.python.version)
    done = process.start([str(python), "-c", _SHOW], env=env).finish(_SECONDS)
    if done.expired:
        raise ToolError(f"its Python did not finish within {_SECONDS:g} s")
    if done.code:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.code}"])[-1]
        found = f"its Python cannot import torch: {last}"
        return error("torch", found, "a torch that can be imported")
    file, _, text = done.stdout.partition("\n")
    if not target.artefact.holds(file):
        found = f"its Python imports another torch: {file or 'none'}"
        return error("torch", found, f"one in {target.artefact.output}")
    return from_text(text)


def from_text(text: str) -> BuildConfig:
    """Parse the output of torch.__config__.show() after a line with the version."""
    return BuildConfig(
        origin=_ORIGIN,
        version=text.partition("\n")[0].strip() or None,
        cuda=_first(r"CUDA Runtime ([0-9.]+)", text) or "",
        cxx_flags=_first(r"Build settings: (?:.*, )?CXX_FLAGS=(.*?)(?:, [A-Z0-9_]+=|, *$)", text),
        nvcc_flags=_first(r"NVCC architecture flags: (\S+)", text),
    )


def from_files(folder: Path) -> BuildConfig:
    """Read the configuration from the libraries of a folder and from version.py beside it."""
    try:
        text = read_named(folder.parent / _VERSION_FILE).decode(errors="replace")
    except OSError:
        text = ""
    cuda = _first(r"^cuda\b[^=\n]*= (None|'[^'\n]*'|\"[^\"\n]*\")", text)
    return BuildConfig(
        origin="the files",
        version=_first(r"^__version__ = ['\"]([^'\"]+)['\"]", text),
        cuda=cuda and cuda.replace("None", "").strip("'\""),
        cxx_flags=_string_with(folder / "libtorch_cpu.so", _CXX),
        nvcc_flags=_string_with(folder / "libtorch_cuda.so", _NVCC),
    )


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None


def _string_with(library: Path, part: bytes) -> str | None:
    """Return the string of a library that contains some bytes, at most 64 KiB to either side."""
    try:
        file = open_regular(library)
    except ToolError:
        return None
    with file:
        begin, data = 0, file.read(_PIECE)
        while (at := data.find(part)) < 0:
            if not (more := file.read(_PIECE)):
                return None
            begin += len(data)
            data, begin = data[-len(part) :] + more, begin - len(data[-len(part) :])
        first = max(0, begin + at - _LONGEST)
        text = os.pread(file.fileno(), 2 * _LONGEST, first)
    at += begin - first
    end = text.find(b"\0", at)
    return text[text.rfind(b"\0", 0, at) + 1 : end if end >= 0 else None].decode(errors="replace")
