"""Runs of build hooks in Bash, in a throw-away folder with stand-ins for the source and programs.

A run has no network, a time limit, and an environment with nothing of this process but PATH.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from build_pytorch.base import process

_SECONDS: Final = 60
"""Time limit of a batch of runs, which takes 0.2 s. A single hook has 2 s of CPU time."""
_BATCH: Final = 32
"""Runs at the same time."""

_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private folder is made there
"""A file system in memory: on a disk, the hundred folders of the runs take half a second."""

NAMES: Final = ("postPatch", "preConfigure", "preBuild")
"""The hooks in the order in which stdenv runs them, all in one shell."""

FLAG: Final = "-O1"
"""What CXXFLAGS, CFLAGS and CUDAFLAGS hold before the hooks run."""

STUB: Final = "cmake/Modules/FindCUDAToolkit.cmake"
CODEGEN: Final = "cmake/Codegen.cmake"
DEPENDENCIES: Final = "cmake/Dependencies.cmake"
MKL: Final = "cmake/public/mkl.cmake"

_CONDITION: Final = """\
if("${{_arch}}" STREQUAL "{code}a")
  if(_existing_arch_flags MATCHES ".*compute_{base}.*")
    list(APPEND _flags "-gencode;arch=compute_{code}a,code=sm_{code}a")
  endif()
endif()
"""
_CODES: Final = (("90", "90"), ("100", "100"), ("103", "100"), ("120", "120"), ("121", "120"))
SOURCE: Final = {
    "torch/_inductor/codecache.py": '"openssl"\n',
    CODEGEN: "".join(_CONDITION.format(code=code, base=base) for code, base in _CODES),
    DEPENDENCIES: """\
find_library(CUPTI_LIBRARY_PATH ${CUPTI_LIB_NAME} PATHS
    ${CUDA_SOURCE_DIR}/extras/CUPTI/lib64
    NO_DEFAULT_PATH)
find_path(CUPTI_INCLUDE_DIR cupti.h PATHS
    ${CUDA_SOURCE_DIR}/extras/CUPTI/include
    NO_DEFAULT_PATH)
""",
    MKL: """target_link_libraries(caffe2::mkl INTERFACE ${MKL_LIBRARIES})
set_property(
  TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES
  ${MKL_ROOT}/lib ${MKL_ROOT}/lib/intel64 ${MKL_ROOT}/lib/intel64_win ${MKL_ROOT}/lib/win-x64)
""",
}
"""The parts of PyTorch's files that hooks look for. Other files of the source are empty."""

_FILE: Final = re.compile(
    r"(?<![\w./${}<>-])((?:[\w+-][\w.+-]*/)*[\w+-][\w.+-]*\.(?:cmake|txt|py|cpp|h|cu|toml|in))\b"
)
_PROGRAM: Final = re.compile(r"(?:/[\w.+-]+)+/[0-9a-z]{32}-[\w.+-]+/bin/[\w.+-]+")
"""A program in a store, wherever the store is."""
_BUILD: Final = re.compile(r"(?:(?<=-I)|(?<![\w.$}]))/build(?=/)")

_HARNESS: Final = Path(__file__).with_name("hook_harness.sh")


class BuilderCores(NamedTuple):
    """The cores that Nix gives a build (0: all), and those that the machine has."""

    cores: int
    processors: int


class HookJob(NamedTuple):
    """A run to make: the hooks by name, the variables that they get, and the machine."""

    texts: Mapping[str, str]
    environment: Mapping[str, str]
    machine: BuilderCores
    source: Mapping[str, str] = SOURCE
    """The files that the hooks find."""
    keeps_files: bool = True
    """If not, commands that change files do nothing: faster, where only variables matter."""


class HookRun(NamedTuple):
    """What a run of the hooks left. Paths are as in a build in /build."""

    is_complete: bool
    exported: dict[str, str]
    """The exported variables at the end; empty if the hooks did not run to their end."""
    files: dict[str, str]
    """New and changed files by path, with text or `-> TARGET`; removed ones are `(removed)`.

    Empty if the run did not keep files.
    """
    output: str
    names_build: bool = False
    """Whether a hook names /build, which only Nix's sandbox has, in place of $NIX_BUILD_TOP."""


def run_all(jobs: Sequence[HookJob]) -> list[HookRun]:
    """Run hooks at the same time and return what became of each job, in their order.

    Equal jobs share a run: releases of one pin have the same hooks of nixpkgs. Raises ToolError if
    Bash cannot be run.
    """
    distinct = {repr(job): job for job in jobs}
    runs = dict(zip(distinct, _run_distinct(list(distinct.values())), strict=True))
    return [runs[repr(job)] for job in jobs]


def _run_distinct(jobs: Sequence[HookJob]) -> list[HookRun]:
    if not jobs:
        return []
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="build-pytorch-hooks-", dir=memory) as name:
        root = Path(name).resolve()
        folders = [root / str(number) for number in range(len(jobs))]
        calls = [_prepared(job, folder) for job, folder in zip(jobs, folders, strict=True)]
        for number in range(_BATCH, len(calls), _BATCH):
            calls[number] = f"wait\n{calls[number]}"
        script = f". {shlex.quote(str(_HARNESS))}\n{''.join(calls)}wait\n"
        (root / "script").write_bytes(os.fsencode(script))  # a path need not be UTF-8
        clean: dict[str, str | None] = dict.fromkeys(os.environ)
        clean |= {"PATH": os.environ.get("PATH"), "HOME": str(root)}
        # timeout kills the whole process group, not only Bash.
        bash = ["timeout", "-s", "KILL", str(_SECONDS * -(-len(calls) // _BATCH))]
        bash += ["bash", "--noprofile", "--norc", str(root / "script")]
        without_network = ["unshare", "--map-root-user", "--net"]
        for isolation in (without_network, []) if process.which("unshare") else ([],):
            process.start([*isolation, *bash], env=clean).finish()
            if any((folder / "output").exists() for folder in folders):
                break  # otherwise the kernel allows no namespaces
        return [_result(job, folder) for job, folder in zip(jobs, folders, strict=True)]


def _prepared(job: HookJob, folder: Path) -> str:
    """Write the files of a run; return the command that starts it."""
    for name in ("source", "build", "sandbox"):
        (folder / name).mkdir(parents=True)
    for name, text in _source(job).items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if job.keeps_files:
            path.write_text(text)
    for name in NAMES:
        (folder / name).write_text(_BUILD.sub(f"{folder}/sandbox", job.texts.get(name, "")))
    variables = dict.fromkeys(("CXXFLAGS", "CFLAGS", "CUDAFLAGS"), FLAG) | dict(job.environment)
    variables["NIX_BUILD_TOP"] = f"{folder}/build"
    exports = (f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    (folder / "environment").write_text("".join(exports))
    programs = sorted(set(_PROGRAM.findall("\n".join(job.texts.values()))))
    stand_ins = "".join(f"{program}() {{ :; }}; " for program in programs)
    quick = "" if job.keeps_files else "without_files; "
    run = f"run {shlex.quote(str(folder))} {job.machine.cores} {job.machine.processors}"
    return f"({stand_ins}{quick}{run}) &\n"


def _source(job: HookJob) -> dict[str, str]:
    """Return the files of the source by path; those that only the hooks of nixpkgs name are empty.

    A substitution in an empty file succeeds.
    """
    named = _FILE.findall("\n".join(job.texts.values()))
    return dict.fromkeys([*named, "setup.py", STUB], "") | dict(job.source)


def _result(job: HookJob, folder: Path) -> HookRun:
    def text(path: Path) -> str:
        with contextlib.suppress(OSError):
            found = path.read_text(errors="replace")
            for name in ("build", "sandbox"):
                found = found.replace(f"{folder}/{name}", "/build")
            return found.replace(str(folder), "").replace(str(folder.parent), "/home")
        return ""

    exported_file = folder / "exported"
    pairs = [pair.partition("=") for pair in text(exported_file).split("\0") if pair]
    exported = {name: value for name, _, value in pairs}
    output = text(folder / "output")
    if not job.keeps_files:
        return HookRun(bool(pairs), exported, {}, output)
    source = _source(job)
    gone = (name for name in source if not os.path.lexists(folder / "source" / name))
    files = dict.fromkeys(gone, "(removed)")
    names_build = any((folder / "sandbox").iterdir())
    names_build |= pairs != [] and os.fsencode(f"{folder}/sandbox") in exported_file.read_bytes()
    places = (("source", ""), ("build", "/build/"), ("sandbox", "/build/"))
    for base, prefix in ((folder / name, prefix) for name, prefix in places):
        for path in base.rglob("*"):
            key = prefix + path.relative_to(base).as_posix()
            if path.is_symlink():
                files[key] = f"-> {path.readlink()}"
            elif path.is_file() and (now := text(path)) != source.get(key):
                files[key] = now
            elif not (path.is_file() or path.is_dir()):
                files[key] = "(not a file)"
    return HookRun(bool(pairs), exported, files, output, names_build)
