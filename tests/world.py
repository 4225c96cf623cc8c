"""A world in which recipes are built for real, unchanged, in seconds and without a network.

Nix has a store of its own. What it downloads goes through a proxy on loopback that answers for
GitHub: the pinned nixpkgs is the project's model of it, with a builder that prints what a build of
PyTorch prints. Everything between the two is real: `nix-build`, its derivations, its logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Project, copied_project

from build_pytorch.build import run_loop, stand_in
from build_pytorch.matrix import matrix_reader

run_loop._RETRY_SECONDS = 0.05  # noqa: SLF001 - no test waits 30 seconds

programs = stand_in.missing_program


class Site(stand_in.Site):
    """The stand-in of the package, of which tests count and refuse requests. A World clears it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.others: dict[str, bytes] = {}
        """Further tarballs by the path of their address."""
        self.requests: list[str] = []
        self.refused = 0
        """So many connections are closed without an answer first."""

    def is_refused(self) -> bool:
        self.refused = max(self.refused, 0) - 1
        return self.refused >= 0

    def answer(self, path: str) -> bytes | None:
        self.requests.append(path)
        return super().answer(path) or self.others.get(path)

    def nix(
        self,
        *argv: str,
        check: bool = True,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Run one of Nix's programs on this store."""
        done = subprocess.run(
            argv,
            cwd=cwd,
            check=check,
            capture_output=True,
            text=True,
            env={**os.environ, **self.env, **(env or {})},
        )
        return done.stdout

    def clear(self) -> None:
        """Forget what was built of PyTorch, and the scenarios with their markers."""
        for script in self.scenarios.iterdir():
            script.unlink()
        delete = ("nix-store", "--delete", "--ignore-liveness")
        names = ("pytorch210", "seed", "torchvision", "torchaudio")
        built = [str(p) for n in names for p in self.store.glob(f"*-{n}-*")]
        built = [path for path in built if not path.endswith((".drv", ".lock"))]
        if built:
            self.nix(*delete, *built, check=False)
        for path in built:  # one that cannot be deleted keeps the others
            if Path(path).exists():
                self.nix(*delete, path, check=False)
        self.refused = 0
        self.requests.clear()


class World:
    """A copy of the project that builds on a site. It starts empty, unless `is_built` says so."""

    def __init__(
        self,
        project: Project,
        site: Site,
        folder: Path,
        *,
        is_built: bool = False,
        allows_this_cpu: bool = True,
    ) -> None:
        self.project = project
        self.root = project.root
        self.first_build: subprocess.CompletedProcess[str] | None = None
        self.site = site
        self.folder = folder
        if not is_built:
            # A machine that runs tests need not be able to build PyTorch.
            project.edit("matrix.toml", "disk = 60", "disk = 0.01")
            project.edit("matrix.toml", "job_memory = 5", "job_memory = 0.1")
            project.edit("matrix.toml", "reserved_memory = 2", "reserved_memory = 0.1")
            without_cuda = "job_memory = 2.2, disk = 10"
            if without_cuda in (project.root / "matrix.toml").read_text():
                project.edit("matrix.toml", without_cuda, "job_memory = 0.1, disk = 0.01")
            if allows_this_cpu:
                self._allow_this_cpu()
            site.clear()
        self.scenario("default", "good")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.env = {**site.env, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def _allow_this_cpu(self) -> None:
        """Take the flags that this machine lacks out of matrix.toml: nothing is compiled here."""
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        here = next(line for line in lines if line.startswith(("flags", "Features"))).split()[2:]
        path = self.root / "matrix.toml"
        for cpu in matrix_reader.load(self.root).cpus.values():
            missing = [flag for flag in cpu.cpuinfo if flag not in here]
            if missing and cpu.platform.startswith(platform.machine()):
                old, new = (json.dumps(list(flags)) for flags in (cpu.cpuinfo, here[:1]))
                path.write_text(path.read_text().replace(f"cpuinfo = {old}", f"cpuinfo = {new}"))

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
        """What the build of a variant does (or of all: `default`): calls of build/stand_in.sh."""
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


@contextlib.contextmanager
def served(site: Site) -> Iterator[Site]:
    """Answer for GitHub as long as the context lasts."""
    with stand_in.served(site):
        yield site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One store for all tests of this process; a new World clears it."""
    with served(Site(tmp_path_factory.mktemp("site"))) as it:
        yield it


@pytest.fixture
def world(project: Project, site: Site, tmp_path: Path) -> World:
    return World(project, site, tmp_path)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A committed and pushed checkout with two built variants, on a site of its own.

    Tests only read it. What they need to change is in `reader` and in `changed`.
    """
    folder = tmp_path_factory.mktemp("built")
    (folder / "site").mkdir()
    with served(Site(folder / "site")) as site:
        world = World(copied_project(folder / "project"), site, folder)
        world.push(folder / "remote.git")
        world.scenario("default", 'echo "NIX_BUILD_CORES=$NIX_BUILD_CORES"; good')
        argv = ("cpu-avx2", "cpu-avx512", "--backend", "nix", "--cores", "1")
        world.first_build = world.build(*argv)
        assert world.first_build.returncode == 0, world.first_build.stderr
        yield world


@pytest.fixture
def reader(built: World, tmp_path: Path) -> World:
    """The built checkout with an environment and a folder for programs that a test may change."""
    return World(built.project, built.site, tmp_path, is_built=True)


@pytest.fixture
def changed(built: World, tmp_path: Path) -> World:
    """A copy of the built checkout whose files a test may change; it builds nothing new."""
    subprocess.run(["cp", "-a", built.root, tmp_path / "project"], check=True)
    return World(Project(tmp_path / "project"), built.site, tmp_path, is_built=True)
