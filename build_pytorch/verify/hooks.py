"""Build hooks that run in Bash, in a throw-away folder with stand-ins for source and programs.

All runs have one time limit, and an environment with nothing of this process but PATH.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from build_pytorch.base import process
from build_pytorch.matrix.model import Package
from build_pytorch.nix import store

_SECONDS: Final = 120  #: limit of all runs, which take a second; one hook has 2 s of CPU time
_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private folder is made there
"""A file system in memory: on a disk, the hundred folders of the runs take half a second."""
_HARNESS: Final = Path(__file__).with_name("hook_harness.sh")

NAMES: Final = ("postPatch", "preConfigure", "preBuild")
"""The hooks in the order in which stdenv runs them, all in one shell."""
FLAG: Final = "-O1"  #: what the variables of FLAGS hold before the hooks run
FLAGS: Final = ("CXXFLAGS", "CFLAGS", "CUDAFLAGS")
_JOBS: Final = {"env.MAX_JOBS", "env.NIX_BUILD_CORES"}
MACHINES: Final = ((4, 48), (0, 6), (0, 48), (192, 256))
"""The cores that Nix gives a build (0: all), and those that the machine has."""

STUB: Final = "cmake/Modules/FindCUDAToolkit.cmake"
CODEGEN: Final = "cmake/Codegen.cmake"
DEPENDENCIES: Final = "cmake/Dependencies.cmake"
OPENSSL: Final = "torch/_inductor/codecache.py"
_FILES: Final = tomllib.loads(Path(__file__).with_name("hook_source.toml").read_text("utf-8"))
SOURCE: Final[dict[str, str]] = _FILES["source"]
FIXED: Final[dict[str, dict[str, str]]] = _FILES["fixed"]  #: what a fix changes, by name and path
_OTHER_TEXTS: Final[dict[str, str]] = _FILES["other"]
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


class HookRun(NamedTuple):
    """A run to make: hooks in the order of NAMES, and what PYTORCH_BUILD_VERSION is before them.

    `changed` are files of the source with other texts than in SOURCE.
    """

    hooks: tuple[str, ...]
    build_version: str = ""
    changed: tuple[tuple[str, str], ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """The files of the source by path. Those that only hooks name are empty."""
        named = _FILE.findall("\n".join(self.hooks))
        return dict.fromkeys([*named, "setup.py", STUB], "") | SOURCE | dict(self.changed)


def run_all(runs: Sequence[HookRun]) -> list[Facts]:
    """Run hooks and return the facts and `hook.output` of each run, in their order.

    Raises ToolError if Bash cannot be run.
    """
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="build-pytorch-hooks-", dir=memory) as name:
        root = Path(name).resolve()
        folders = [root / str(number) for number in range(len(runs))]
        for run, folder in zip(runs, folders, strict=True):
            _prepare(run, folder)
        texts = "\n".join(text for run in runs for text in run.hooks)
        program = rf"{re.escape(str(store.folder()))}/[\w.+-]+/bin/[\w.+-]+"
        stand_ins = (f"{it}() {{ :; }}\n" for it in sorted(set(re.findall(program, texts))))
        (root / "programs").write_text("".join(stand_ins))
        clean: dict[str, str | None] = dict.fromkeys(os.environ)
        clean |= {"PATH": os.environ.get("PATH"), "HOME": str(root)}
        machines = [f"{cores} {processors}" for cores, processors in MACHINES]
        # timeout kills the whole process group, not only Bash.
        argv = ["timeout", "-s", "KILL", str(_SECONDS), "bash", "--noprofile", "--norc"]
        argv += [str(_HARNESS), str(root), str(len(runs)), *machines]
        process.run(argv, env=clean)
        return [_result(run, folder) for run, folder in zip(runs, folders, strict=True)]


def _prepare(run: HookRun, folder: Path) -> None:
    """Write the files of a run."""
    (folder / "build").mkdir(parents=True)
    for name, text in run.files.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, text in zip(NAMES, run.hooks, strict=True):
        (folder / name).write_text(_BUILD.sub(f"{folder}/build", text))
    given = dict.fromkeys(FLAGS, FLAG) | {"PYTORCH_BUILD_VERSION": run.build_version}
    given |= {"NIX_BUILD_TOP": f"{folder}/build"}
    exports = (f"export {name}={shlex.quote(value)}\n" for name, value in given.items())
    (folder / "environment").write_text("".join(exports))


def _result(run: HookRun, folder: Path) -> Facts:
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
    facts = {name: exported[name] for name in exported.keys() - _JOBS}
    facts |= named("jobs.", "jobs", "\n") | {"hook.output": output, "hook.end": ""}
    facts["hook.options"] = text(folder / "options").strip()
    before = {f"file.{name}": content for name, content in run.files.items()}
    for base, prefix in ((folder / "source", "file."), (folder / "build", "file./build/")):
        for path in base.rglob("*"):
            fact = prefix + path.relative_to(base).as_posix()
            was = before.pop(fact, None)
            if path.is_symlink():
                facts[fact] = f"-> {path.readlink()}"
            elif path.is_file() and (now := text(path)) != was:
                facts[fact] = without_layout(now)
            elif not (path.is_file() or path.is_dir()):
                facts[fact] = "(not a file)"
    return facts | dict.fromkeys(before, "(removed)")


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


def facts_of(hooks: Sequence[tuple[HookRun, Package | None]]) -> list[Facts]:
    """Run the hooks of packages of the matrix, or of the pin (None), and return the facts of each.

    Hooks that differ only in values that name their variant, such as flags, share their runs.
    Raises ToolError if Bash cannot be run.
    """
    shared = [_shared(*each) for each in hooks]
    runs = list({run for of_package, _ in shared for run in of_package.values()})
    ran = dict(zip(runs, run_all(runs), strict=True))
    found = []
    for of_package, values in shared:
        facts = dict(ran[of_package[""]])
        place = _BUILD.search("\n".join(of_package[""].hooks))
        facts["hook.namesBuild"] = place[0] if place else ""
        for name, run in of_package.items():
            message = re.search(r"(?m)^build-pytorch: .*$", ran[run]["hook.output"])
            stops = f"stops: {message[0] if message else 'no message'}"
            if name:
                facts[f"hook.other {name}"] = stops if ran[run]["hook.end"] else "goes on"
        del facts["hook.output"]
        for word, value in values.items():
            facts = {name: fact.replace(word, value) for name, fact in facts.items()}
        found.append(facts)
    return found


def _shared(run: HookRun, package: Package | None) -> tuple[dict[str, HookRun], dict[str, str]]:
    """Return the runs of a package with words in the place of values, and the values by word.

    The runs are that on the source, by "", and those in which a file has another text.
    """
    if package is None:
        return {"": run}, {}
    variant = package.variant
    flags, printed = variant.cpu.flags, package.version if package.companion else ""
    texts = (printed, variant.package, variant.gpu_label, " ".join(flags), ",".join(flags))
    values = {f"ValueOfVariant{n}_": text for n, text in enumerate(texts) if text}
    for word, value in values.items():
        run = run._replace(hooks=tuple(hook.replace(value, word) for hook in run.hooks))
    if variant.gpu:
        values["ValueOfVariant_"] = variant.gpu.capability
        # A version contains others: 9.0 is not in 2.9.0.
        own = re.compile(rf"(?<![\w.]){re.escape(variant.gpu.capability)}(?![\w.])")
        run = run._replace(hooks=tuple(own.sub("ValueOfVariant_", hook) for hook in run.hooks))
    others = other_texts(package)
    changed = {name: run._replace(changed=((name, _OTHER_TEXTS[name]),)) for name in others}
    return {"": run} | changed, values


def without_layout(text: str) -> str:
    """Return a text without blank lines, indentation, and spaces before parentheses."""
    lines = (line.strip().replace(" (", "(") for line in text.splitlines())
    return "\n".join(line for line in lines if line)
