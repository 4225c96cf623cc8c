"""Build hooks that run in Bash, in a throw-away folder with stand-ins for source and programs.

A run has a time limit, and an environment with nothing of this process but PATH.
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
from build_pytorch.matrix.model import Package
from build_pytorch.nix import store

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
FLAGS: Final = ("CXXFLAGS", "CFLAGS", "CUDAFLAGS")
_JOBS: Final = ("MAX_JOBS", "NIX_BUILD_CORES")
MACHINES: Final = ((4, 48), (0, 6), (0, 48), (192, 256))
"""The cores that Nix gives a build (0: all), and those that the machine has."""

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
_GUARD: Final = 'AND NOT _existing_arch_flags MATCHES ".*compute_103.*")'
"""What pull request 187006 of PyTorch adds to a condition, which no build for 10.3 alone meets."""
OPENSSL: Final = "torch/_inductor/codecache.py"
_OTHER_TEXTS: Final = {
    CODEGEN: SOURCE[CODEGEN].replace('.*")', f'.*" {_GUARD}'),
    OPENSSL: "# of another version\n",
}
"""Files of sources of other versions: with a text that a recipe changes, or that nixpkgs does."""

_FILE: Final = re.compile(
    r"(?<![\w./${}<>-])((?:[\w+-][\w.+-]*/)*[\w+-][\w.+-]*\.(?:cmake|txt|py|cpp|h|cu|toml|in))\b"
)
_BUILD: Final = re.compile(r"(?:(?<=-I)|(?<![\w.$}]))/build(?=/)")
"""The folder of builds, which only Nix's sandbox has; a hook gets $NIX_BUILD_TOP."""
_HARNESS: Final = Path(__file__).with_name("hook_harness.sh")


class HookJob(NamedTuple):
    """A run to make: the hooks by name, the variables that they get, and the machine."""

    texts: Mapping[str, str]
    environment: Mapping[str, str] = {}
    cores: int = 4  #: that Nix gives the build; 0: all
    processors: int = 48  #: that the machine has
    source: Mapping[str, str] = SOURCE
    keeps_files: bool = True
    """If not, commands that change files do nothing: faster, where only variables matter."""

    @property
    def files(self) -> dict[str, str]:
        """The files of the source by path; those that only the hooks of nixpkgs name are empty.

        A substitution in an empty file succeeds.
        """
        named = _FILE.findall("\n".join(self.texts.values()))
        return dict.fromkeys([*named, "setup.py", STUB], "") | dict(self.source)


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


def run_all(jobs: Sequence[HookJob]) -> list[HookRun]:
    """Run hooks at the same time and return what became of each job, in their order.

    Raises ToolError if Bash cannot be run.
    """
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
        bash = ["timeout", "-s", "KILL", str(_SECONDS * (1 + len(calls) // _BATCH))]
        bash += ["bash", "--noprofile", "--norc", str(root / "script")]
        process.start(bash, env=clean).finish()
        return [_result(job, folder) for job, folder in zip(jobs, folders, strict=True)]


def _prepared(job: HookJob, folder: Path) -> str:
    """Write the files of a run; return the command that starts it."""
    (folder / "build").mkdir(parents=True)
    for name, text in job.files.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if job.keeps_files:
            path.write_text(text)
    for name in NAMES:
        (folder / name).write_text(_BUILD.sub(f"{folder}/build", job.texts.get(name, "")))
    variables = dict.fromkeys(FLAGS, FLAG) | dict(job.environment)
    variables["NIX_BUILD_TOP"] = f"{folder}/build"
    exports = (f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    (folder / "environment").write_text("".join(exports))
    program = rf"{re.escape(str(store.folder()))}/[\w.+-]+/bin/[\w.+-]+"
    programs = sorted(set(re.findall(program, "\n".join(job.texts.values()))))
    stand_ins = "".join(f"{program}() {{ :; }}; " for program in programs)
    quick = "" if job.keeps_files else "without_files; "
    return f"({stand_ins}{quick}run {shlex.quote(str(folder))} {job.cores} {job.processors}) &\n"


def _result(job: HookJob, folder: Path) -> HookRun:
    def text(path: Path) -> str:
        with contextlib.suppress(OSError):
            found = path.read_text(errors="replace").replace(f"{folder}/build", "/build")
            return found.replace(str(folder), "").replace(str(folder.parent), "/home")
        return ""

    pairs = [pair.partition("=") for pair in text(folder / "exported").split("\0") if pair]
    exported = {name: value for name, _, value in pairs}
    files: dict[str, str] = {}
    if job.keeps_files:
        source = job.files
        gone = (name for name in source if not os.path.lexists(folder / "source" / name))
        files = dict.fromkeys(gone, "(removed)")
        for base, prefix in ((folder / "source", ""), (folder / "build", "/build/")):
            for path in base.rglob("*"):
                key = prefix + path.relative_to(base).as_posix()
                if path.is_symlink():
                    files[key] = f"-> {path.readlink()}"
                elif path.is_file() and (now := text(path)) != source.get(key):
                    files[key] = now
                elif not (path.is_file() or path.is_dir()):
                    files[key] = "(not a file)"
    return HookRun(bool(pairs), exported, files, text(folder / "output"))


# --- facts ---


class Hooks(NamedTuple):
    """Hooks in the order of NAMES, and what runs of them depend on.

    `values` are texts that name the variant, such as its flags: hooks that differ in them alone
    share their runs. `build_version` is the variable of nixpkgs. `others` are files of which a
    source of another version has another text: the hooks run on it as well.
    """

    texts: tuple[str, ...]
    build_version: str
    values: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def with_places(self) -> Hooks:
        """Return the hooks with a place for each value of the variant."""
        return self._replace(texts=tuple(_placed(t, self.values) for t in self.texts), values=())

    def jobs(self) -> list[HookJob]:
        """Return the runs to make: on each machine, and on another source."""
        given = {"PYTORCH_BUILD_VERSION": self.build_version}
        job = HookJob(dict(zip(NAMES, self.texts, strict=True)), given)
        quick = [job._replace(cores=c, processors=p, keeps_files=False) for c, p in MACHINES[1:]]
        sources = (SOURCE | {name: _OTHER_TEXTS[name]} for name in self.others)
        return [job, *quick, *(job._replace(source=source) for source in sources)]


Facts = dict[str, str | bool]


def other_texts(package: Package) -> dict[str, str]:
    """Return what hooks do where a source has another text in a file: they stop, or go on."""
    if package.companion:
        return {}
    found = {}
    if package.gpu and "codegen-condition" in package.source_fixes:
        message = f"build-pytorch: {CODEGEN} has no condition for {package.gpu.code}a"
        found[CODEGEN] = f"stops: {message}"
    if not package.source.is_of_pin:
        found[OPENSSL] = "goes on"
    return found


def facts_of(all_hooks: Sequence[Hooks]) -> list[Facts]:
    """Run hooks and return the facts of each. Raises ToolError if Bash cannot be run."""
    keys = [(hooks.with_places(), hooks) for hooks in all_hooks]
    first = dict(reversed(keys))
    jobs = {key: hooks.jobs() for key, hooks in first.items()}
    runs = iter(run_all([job for own in jobs.values() for job in own]))
    facts = {key: _facts(key, own, [next(runs) for _ in own]) for key, own in jobs.items()}
    return [_of_member(facts[key], first[key].values, hooks.values) for key, hooks in keys]


def _of_member(facts: Facts, others: Sequence[str], values: Sequence[str]) -> Facts:
    """Return facts with the values of one variant in place of those of another."""
    found = dict(facts)
    for name, fact in facts.items():
        if isinstance(fact, str):
            text = _placed(fact, others)
            for number, value in enumerate(values):
                text = text.replace(f"\0{number}\0", value)
            found[name] = in_order(text) if name[4:] in FLAGS else text
    return found


def _placed(text: str, values: Sequence[str]) -> str:
    for number, value in enumerate(values):
        if value[:1].isdigit():  # 9.0 is not in 2.9.0
            text = re.sub(rf"(?<![\w.]){re.escape(value)}(?![\w.])", f"\0{number}\0", text)
        elif value:
            text = text.replace(value, f"\0{number}\0")
    return text


def _facts(hooks: Hooks, jobs: Sequence[HookJob], runs: Sequence[HookRun]) -> Facts:
    names_build = any(map(_BUILD.search, jobs[0].texts.values()))
    facts: Facts = {"hook.end": "", "hook.namesBuild": names_build}
    for name, other in zip(hooks.others, runs[len(MACHINES) :], strict=True):
        message = re.search(r"(?m)^build-pytorch: .*$", other.output)
        stops = f"stops: {message[0] if message else 'no message'}"
        facts[f"hook.other {name}"] = "goes on" if other.is_complete else stops
    for (cores, processors), run in zip(MACHINES, runs, strict=False):
        if not run.is_complete:
            last = " / ".join(run.output.split("\n")[-3:]).strip(" /") or "no output"
            return {**facts, "hook.end": f"with {cores} cores: {last}"}
        values = (f"{name}={run.exported.get(name, '(not set)')}" for name in _JOBS)
        facts[f"jobs.{cores} of {processors} cores"] = " ".join(values)
    facts |= {f"env.{name}": v for name, v in runs[0].exported.items() if name not in _JOBS}
    return facts | {f"file.{name}": without_layout(text) for name, text in runs[0].files.items()}


def in_order(flags: str) -> str:
    """Return flags in alphabetical order; the user's stay last, so that they win."""
    words = flags.split()
    return " ".join([*sorted(words[:-1]), *words[-1:]]) if words[-1:] == [FLAG] else flags


def without_layout(text: str) -> str:
    """Return a text without blank lines, indentation, and spaces before parentheses."""
    lines = (line.strip().replace(" (", "(") for line in text.splitlines())
    return "\n".join(line for line in lines if line)
