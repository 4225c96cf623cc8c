"""A world in which recipes are built for real, in seconds and without a network.

Nix has a store of its own, in which the pinned nixpkgs is the project's model of it, with a builder
that prints what a build of PyTorch prints; matrix.toml has its hash. All else is real:
`nix-build`, its derivations, its logs.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, WHOLE, Project, copied_project

from build_pytorch.matrix import matrix_reader
from build_pytorch.nix.quoting import to_sri
from build_pytorch.verify.recipe_facts import MODEL


@functools.cache
def model(checks: str = "false", pin: int = 0) -> tuple[Path, str]:
    """The model of nixpkgs with our builder, in a folder named as fetchTarball does, and its hash.

    `checks` is a condition of Nix: whether a source with such `args` must have its hash. Each pin
    of matrix.toml, which `pin` counts, has a source and thus a hash of its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="build-pytorch-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(shutil.copytree(MODEL, folder / "source"))
    shutil.copy(PROJECT / "tests/builder.sh", source)
    scenarios = '"${dirOf (dirOf builtins.storeDir)}/scenarios"'
    (source / "builder.nix").write_text(
        f'{{ builder = "/bin/sh"; args = [ ./builder.sh {scenarios} ]; '
        f"checksHashes = args: {checks}; }}\n"
    )
    if pin:
        (source / "pin").write_text(f"{pin}\n")
    argv = ("nix-hash", "--type", "sha256", "--base32", str(source))
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return source, str(to_sri(done.stdout.strip()))


class Site:
    """A Nix store in a folder, with the model of nixpkgs.

    `scenarios` holds what each build does, in VARIANT.sh or default.sh. `env` is the environment of
    Nix.
    """

    def __init__(self, folder: Path, checks: str = "false") -> None:
        self.scenarios = folder / "scenarios"
        self.scenarios.mkdir()
        self.store = folder / "nix/store"
        (folder / "home").mkdir()
        settings = "substituters =\nbuild-users-group =\nsandbox = false"
        self.env = {
            "NIX_REMOTE": "local",
            "NIX_STORE_DIR": str(self.store),
            "NIX_STATE_DIR": f"{folder}/nix/state",
            "NIX_LOG_DIR": f"{folder}/nix/log",
            "NIX_CONF_DIR": f"{folder}/nix/conf",
            "NIX_CONFIG": f"{settings}\ncompress-build-log = false",
            "XDG_CACHE_HOME": f"{folder}/cache",
            "HOME": f"{folder}/home",
        }
        for pin in range(len(matrix_reader.parse(WHOLE).pins)):
            self.add(model(checks, pin)[0])

    def add(self, source: Path) -> None:
        """Add a folder named `source`: no fetchTarball with its hash asks the network."""
        self.nix("nix-store", "--add-fixed", "--recursive", "sha256", str(source))

    def nix(
        self,
        *argv: str,
        check: bool = True,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Run one of Nix's programs on this store, and return what it prints."""
        env = {**os.environ, **self.env, **(env or {})}
        return subprocess.run(
            argv, cwd=cwd, check=check, capture_output=True, text=True, env=env
        ).stdout

    def clear(self) -> None:
        """Forget what was built of PyTorch, and the scenarios with their markers."""
        for script in self.scenarios.iterdir():
            script.unlink()
        delete = ("nix-store", "--delete", "--ignore-liveness")
        names = ("pytorch210", "torchvision", "torchaudio")
        built = [str(p) for n in names for p in self.store.glob(f"*-{n}-*")]
        built = [path for path in built if not path.endswith((".drv", ".lock"))]
        if built:
            self.nix(*delete, *built, check=False)
        for path in built:  # one that cannot be deleted keeps the others
            if Path(path).exists():
                self.nix(*delete, path, check=False)


def prepare(project: Project, *, checks: str = "false", allows_this_cpu: bool = True) -> Project:
    """Pin the model, let any machine build, and generate all files."""
    path = project.root / "matrix.toml"
    pins = itertools.count()
    text = re.sub(
        r'(?m)^(\[pin\..*\]\nrev = "(.*)")(\nfetcher.*)?(\nsha256.*)*',
        lambda it: f'{it[1]}\nsha256 = "{model(checks, next(pins))[1]}"\nsha256_of = "{it[2]}"',
        path.read_text(),
    )
    text = re.sub(r"\b(disk|reserved_memory) = [\d.]+", r"\1 = 0.01", text)
    text = re.sub(r"\bjob_memory = [\d.]+", "job_memory = 1", text)
    path.write_text(_with_isas(text, allows_this_cpu=allows_this_cpu))
    for phase in ("phase2", "phase3", "phase4", "phase5"):
        project.succeeds(phase)
    return project


def _with_isas(text: str, *, allows_this_cpu: bool) -> str:
    """matrix.toml without aliases, and without the CPU flags that this machine lacks.

    Nothing is compiled here.
    """
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    here = next(line for line in lines if line.startswith(("flags", "Features"))).split()[2:]
    for key, cpu in matrix_reader.parse(text).cpus.items():
        is_lacking = cpu.platform.startswith(platform.machine()) and not set(cpu.cpuinfo) <= set(
            here
        )
        own = ['same_as = ""'] if cpu.same_as and allows_this_cpu else []
        if allows_this_cpu and is_lacking:
            own += [
                f"cpuinfo = {json.dumps(here[:1])}",
                'flags = ["-mtune=generic"]',
                "macros = []",
            ]
        text += "\n".join([f"\n[cpu.{key}]", *own, ""]) if own else ""
    return text


@functools.cache
def _prepared(is_whole: bool, allows_this_cpu: bool) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="build-pytorch-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    project = copied_project(folder / "project", is_whole=is_whole)
    return prepare(project, allows_this_cpu=allows_this_cpu).root


def prepared_project(
    root: Path, *, is_whole: bool = False, allows_this_cpu: bool = True
) -> Project:
    """A copy of the project as `prepare` leaves it."""
    subprocess.run(["cp", "-a", _prepared(is_whole, allows_this_cpu), root], check=True)
    return Project(root)


class World:
    """A prepared project that builds on a site, which is cleared unless something `is_built`."""

    def __init__(
        self, project: Project, site: Site, folder: Path, *, is_built: bool = False
    ) -> None:
        self.project = project
        self.root = project.root
        self.first_build: subprocess.CompletedProcess[str] | None = None
        self.site = site
        self.folder = folder
        if not is_built:
            site.clear()
        self.scenario("default", "good")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.env = {**site.env, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def push(self, remote: Path) -> None:
        """Commit everything and push it to a new repository."""
        git = self.project.git
        (self.root / ".flox/env/manifest.lock").write_text("{}\n")
        self.project.commit()
        git("init", "-q", "--bare", str(remote))
        git("remote", "add", "origin", str(remote))
        git("push", "-q", "-u", "origin", "HEAD")
        git("repack", "-adq")  # copies of it have fewer files

    def scenario(self, name: str, script: str) -> None:
        """What the build of a variant does (or of all: `default`): calls of builder.sh."""
        (self.site.scenarios / f"{name}.sh").write_text(script + "\n")

    def mark(self, name: str) -> None:
        """Set a marker that a scenario waits for with `await NAME`."""
        (self.site.scenarios / name).touch()

    def program(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def build(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.project.run("invoke", "build", *argv, env=self.env)

    def built(self, *argv: str) -> dict[str, Any]:
        """The JSON of `invoke build --json`, its variants by id."""
        done = self.build("--json", *argv)
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        document["returncode"] = done.returncode
        document["stderr"] = done.stderr
        document["by_id"] = {row["variant"]: row for row in document["variants"]}
        return document

    def start(self, *argv: str, command: str = "build") -> subprocess.Popen[str]:
        """`invoke build`, or the command in `argv`, in the background in a session of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "invoke", *filter(None, [command]), *argv],
            cwd=self.root,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def link(self, package: str) -> Path:
        return self.root / f"result-pytorch-python313-{package}"

    def ledger(self) -> list[dict[str, Any]]:
        path = self.root / ".build-pytorch/ledger.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def wait_for(self, event: str, count: int = 1) -> None:
        """Wait until the ledger has so many lines of a kind, and a builder runs after `started`."""
        path = self.root / ".build-pytorch/ledger.jsonl"

        def is_there() -> bool:
            enough = path.exists() and path.read_text().count(f'"event":"{event}"') >= count
            return enough and (event != "started" or bool(self.processes()))

        wait_until(is_there, f"{count} x {event}")

    def logs(self, package: str) -> list[str]:
        folder = self.root / ".build-pytorch/logs" / f"pytorch-python313-{package}"
        return [path.read_text() for path in sorted(folder.glob("*.log"))]

    def processes(self) -> list[str]:
        """Command lines of builders that run."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if str(self.site.scenarios) in line:
                    found.append(line)
        return found

    def wait_for_no_builders(self) -> None:
        """Wait until no builder runs any more."""
        wait_until(lambda: not self.processes(), "an end of all builders")


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait for a condition, and fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} after {seconds} s"
        time.sleep(0.02)


def kill_session(process: subprocess.Popen[str]) -> None:
    """kill -9 of all that the command started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One store for all tests of this process; a new World clears it."""
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture
def world(site: Site, tmp_path: Path) -> World:
    return World(prepared_project(tmp_path / "project"), site, tmp_path)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A committed and pushed checkout with two built variants, on a site of its own.

    Tests only read it. What they need to change is in `reader` and in `changed`.
    """
    folder = tmp_path_factory.mktemp("built")
    (folder / "site").mkdir()
    world = World(prepared_project(folder / "project"), Site(folder / "site"), folder)
    world.push(folder / "remote.git")
    world.scenario("default", 'echo "NIX_BUILD_CORES=$NIX_BUILD_CORES"; good')
    argv = ("cpu-avx2,cpu-avx512", "--backend", "nix", "--cores", "1")
    world.first_build = world.build(*argv)
    assert world.first_build.returncode == 0, world.first_build.stderr
    return world


@pytest.fixture
def reader(built: World, tmp_path: Path) -> World:
    """The built checkout with an environment and a folder for programs that a test may change."""
    return World(built.project, built.site, tmp_path, is_built=True)


@pytest.fixture
def changed(built: World, tmp_path: Path) -> World:
    """A copy of the built checkout whose files a test may change; it builds nothing new."""
    subprocess.run(["cp", "-a", built.root, tmp_path / "project"], check=True)
    return World(Project(tmp_path / "project"), built.site, tmp_path, is_built=True)
