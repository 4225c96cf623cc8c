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

_SECONDS: Final = 120
"""Time limit of all runs, which take a second. A single hook has 2 s of CPU time."""
_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private folder is made there
"""A file system in memory: on a disk, the hundred folders of the runs take half a second."""
_HARNESS: Final = Path(__file__).with_name("hook_harness.sh")

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
OPENSSL: Final = "torch/_inductor/codecache.py"

_CONDITION: Final = """\
if("${{_arch}}" STREQUAL "{code}a")
  if(_existing_arch_flags MATCHES ".*compute_{base}.*")
    list(APPEND _flags "-gencode;arch=compute_{code}a,code=sm_{code}a")
  endif()
endif()
"""
_CODES: Final = (("90", "90"), ("100", "100"), ("103", "100"), ("120", "120"), ("121", "120"))
SOURCE: Final = {
    OPENSSL: '"openssl"\n',
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

Facts = dict[str, str | bool]


class HookJob(NamedTuple):
    """A run to make: the hooks by name, the variables that they get, and the files of the source.

    Files that only hooks name are empty: a substitution in them succeeds.
    """

    texts: Mapping[str, str]
    environment: Mapping[str, str] = {}
    source: Mapping[str, str] = SOURCE

    @property
    def files(self) -> dict[str, str]:
        """The files of the source by path."""
        named = _FILE.findall("\n".join(self.texts.values()))
        return dict.fromkeys([*named, "setup.py", STUB], "") | dict(self.source)


class HookRun(NamedTuple):
    """What a run of the hooks left. Paths are as in a build in /build."""

    is_complete: bool
    exported: dict[str, str]
    """The exported variables at the end; empty if the hooks did not run to their end."""
    options: str
    """The options of the shell and its umask at the end."""
    jobs: dict[str, str]
    """MAX_JOBS and NIX_BUILD_CORES by machine, if the hooks run to their end on it."""
    files: dict[str, str]
    """New and changed files by path, with text or `-> TARGET`; removed ones are `(removed)`."""
    output: str


def run_all(jobs: Sequence[HookJob]) -> list[HookRun]:
    """Run hooks and return what became of each job, in their order.

    Raises ToolError if Bash cannot be run.
    """
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="build-pytorch-hooks-", dir=memory) as name:
        root = Path(name).resolve()
        folders = [root / str(number) for number in range(len(jobs))]
        for job, folder in zip(jobs, folders, strict=True):
            _prepare(job, folder)
        texts = "\n".join(text for job in jobs for text in job.texts.values())
        program = rf"{re.escape(str(store.folder()))}/[\w.+-]+/bin/[\w.+-]+"
        stand_ins = (f"{it}() {{ :; }}\n" for it in sorted(set(re.findall(program, texts))))
        (root / "programs").write_text("".join(stand_ins))
        clean: dict[str, str | None] = dict.fromkeys(os.environ)
        clean |= {"PATH": os.environ.get("PATH"), "HOME": str(root)}
        machines = [f"{cores} {processors}" for cores, processors in MACHINES]
        # timeout kills the whole process group, not only Bash.
        argv = ["timeout", "-s", "KILL", str(_SECONDS), "bash", "--noprofile", "--norc"]
        argv += [str(_HARNESS), str(root), str(len(jobs)), *machines]
        process.start(argv, env=clean).finish()
        return [_result(job, folder) for job, folder in zip(jobs, folders, strict=True)]


def _prepare(job: HookJob, folder: Path) -> None:
    """Write the files of a run."""
    (folder / "build").mkdir(parents=True)
    for name, text in job.files.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in NAMES:
        (folder / name).write_text(_BUILD.sub(f"{folder}/build", job.texts.get(name, "")))
    given = (
        dict.fromkeys(FLAGS, FLAG) | dict(job.environment) | {"NIX_BUILD_TOP": f"{folder}/build"}
    )
    exports = (f"export {name}={shlex.quote(value)}\n" for name, value in given.items())
    (folder / "environment").write_text("".join(exports))


def _result(job: HookJob, folder: Path) -> HookRun:
    def text(path: Path) -> str:
        with contextlib.suppress(OSError):
            found = path.read_text(errors="replace").replace(f"{folder}/build", "/build")
            return found.replace(str(folder), "").replace(str(folder.parent), "/home")
        return ""

    def named(name: str, separator: str) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in text(folder / name).split(separator) if pair)
        return {name: value for name, _, value in pairs}

    source = job.files
    gone = (name for name in source if not os.path.lexists(folder / "source" / name))
    changed = dict.fromkeys(gone, "(removed)")
    for base, prefix in ((folder / "source", ""), (folder / "build", "/build/")):
        for path in base.rglob("*"):
            key = prefix + path.relative_to(base).as_posix()
            if path.is_symlink():
                changed[key] = f"-> {path.readlink()}"
            elif path.is_file() and (now := text(path)) != source.get(key):
                changed[key] = now
            elif not (path.is_file() or path.is_dir()):
                changed[key] = "(not a file)"
    exported = named("exported", "\0")
    options, output = text(folder / "options").strip(), text(folder / "output")
    return HookRun(bool(exported), exported, options, named("jobs", "\n"), changed, output)


# --- facts ---


class Hooks(NamedTuple):
    """Hooks in the order of NAMES, and what runs of them depend on.

    `build_version` is the variable of nixpkgs. `values` are texts that name the variant, such as
    its flags: hooks that differ in them alone share their run. `others` are files of which a source
    of another version has another text: the hooks run on it as well.
    """

    texts: tuple[str, ...]
    build_version: str
    values: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def shared(self) -> Hooks:
        """Return the hooks with a word in the place of each value of the variant."""
        texts = list(self.texts)
        for word, value in self._words():
            # A version contains others: 9.0 is not in 2.9.0.
            pattern = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
            texts = [pattern.sub(word, text) for text in texts]
        return self._replace(texts=tuple(texts), values=())

    def _words(self) -> list[tuple[str, str]]:
        return [(f"ValueOfVariant{n}_", value) for n, value in enumerate(self.values) if value]

    def with_values(self, facts: Facts) -> Facts:
        """Return facts with the values of the variant in the place of words."""
        found = dict(facts)
        for word, value in self._words():
            for name, fact in found.items():
                if isinstance(fact, str):
                    found[name] = fact.replace(word, value)
        return found

    def jobs(self) -> list[HookJob]:
        """Return the runs to make: on the source, and on others."""
        given = {"PYTORCH_BUILD_VERSION": self.build_version}
        sources = (SOURCE, *(SOURCE | {name: _OTHER_TEXTS[name]} for name in self.others))
        return [HookJob(dict(zip(NAMES, self.texts, strict=True)), given, it) for it in sources]


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
    shared = [hooks.shared() for hooks in all_hooks]
    jobs = {hooks: hooks.jobs() for hooks in shared}
    runs = iter(run_all([job for own in jobs.values() for job in own]))
    facts = {hooks: _facts(hooks, [next(runs) for _ in own]) for hooks, own in jobs.items()}
    return [own.with_values(facts[hooks]) for own, hooks in zip(all_hooks, shared, strict=True)]


def _facts(hooks: Hooks, runs: Sequence[HookRun]) -> Facts:
    first, *others = runs
    facts: Facts = {"hook.end": "", "hook.namesBuild": any(map(_BUILD.search, hooks.texts))}
    for name, other in zip(hooks.others, others, strict=True):
        message = re.search(r"(?m)^build-pytorch: .*$", other.output)
        stops = f"stops: {message[0] if message else 'no message'}"
        facts[f"hook.other {name}"] = "goes on" if other.is_complete else stops
    if not first.is_complete:
        last = " / ".join(first.output.split("\n")[-3:]).strip(" /") or "no output"
        return facts | {"hook.end": f"before the end: {last}"}
    facts["hook.options"] = first.options
    facts |= {f"jobs.{machine}": jobs for machine, jobs in first.jobs.items()}
    facts |= {f"env.{name}": v for name, v in first.exported.items() if name not in _JOBS}
    return facts | {f"file.{name}": without_layout(text) for name, text in first.files.items()}


def without_layout(text: str) -> str:
    """Return a text without blank lines, indentation, and spaces before parentheses."""
    lines = (line.strip().replace(" (", "(") for line in text.splitlines())
    return "\n".join(line for line in lines if line)
