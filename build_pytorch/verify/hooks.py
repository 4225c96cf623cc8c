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

Facts = dict[str, str]
"""What runs of hooks leave: `env.NAME`, an exported variable; `file.PATH`, a new or changed file
with its text, `-> TARGET` or `(removed)`; `jobs.MACHINE`, the numbers of compile jobs; `hook.end`,
the last lines of a run that does not come to its end; `hook.options` of the shell, and its umask.
Paths are as in a build in /build."""


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


def run_all(jobs: Sequence[HookJob]) -> list[Facts]:
    """Run hooks and return the facts and `hook.output` of each job, in their order.

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
        process.run(argv, env=clean)
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


def _result(job: HookJob, folder: Path) -> Facts:
    def text(path: Path) -> str:
        with contextlib.suppress(OSError):
            found = path.read_text(errors="replace").replace(f"{folder}/build", "/build")
            return found.replace(str(folder), "").replace(str(folder.parent), "/home")
        return ""

    def named(prefix: str, name: str, separator: str) -> Facts:
        pairs = (pair.partition("=") for pair in text(folder / name).split(separator) if pair)
        return {prefix + name: value for name, _, value in pairs}

    output, exported = text(folder / "output"), named("env.", "exported", "\0")
    if not exported:
        last = " / ".join(output.split("\n")[-3:]).strip(" /") or "no output"
        return {"hook.output": output, "hook.end": f"before the end: {last}"}
    facts = named("jobs.", "jobs", "\n") | {n: exported[n] for n in exported if n[4:] not in _JOBS}
    facts |= {"hook.output": output, "hook.end": ""}
    facts["hook.options"] = text(folder / "options").strip()
    source = {f"file.{name}": content for name, content in job.files.items()}
    for base, prefix in ((folder / "source", "file."), (folder / "build", "file./build/")):
        for path in base.rglob("*"):
            fact = prefix + path.relative_to(base).as_posix()
            before = source.pop(fact, None)
            if path.is_symlink():
                facts[fact] = f"-> {path.readlink()}"
            elif path.is_file() and (now := text(path)) != before:
                facts[fact] = without_layout(now)
            elif not (path.is_file() or path.is_dir()):
                facts[fact] = "(not a file)"
    return facts | dict.fromkeys(source, "(removed)")


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
        found = facts
        for word, value in self._words():
            found = {name: fact.replace(word, value) for name, fact in found.items()}
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
    facts = {}
    for hooks, own in jobs.items():
        first, *others = (next(runs) for _ in own)
        place = _BUILD.search("\n".join(hooks.texts))
        facts[hooks] = first | {"hook.namesBuild": place[0] if place else ""}
        for name, other in zip(hooks.others, others, strict=True):
            message = re.search(r"(?m)^build-pytorch: .*$", other["hook.output"])
            stops = f"stops: {message[0] if message else 'no message'}"
            facts[hooks][f"hook.other {name}"] = stops if other["hook.end"] else "goes on"
        del facts[hooks]["hook.output"]
    return [own.with_values(facts[hooks]) for own, hooks in zip(all_hooks, shared, strict=True)]


def without_layout(text: str) -> str:
    """Return a text without blank lines, indentation, and spaces before parentheses."""
    lines = (line.strip().replace(" (", "(") for line in text.splitlines())
    return "\n".join(line for line in lines if line)
