"""A world in which recipes are built for real, unchanged, in seconds and without a network.

Nix has a store of its own. What it downloads goes through a proxy on loopback that answers for
GitHub: the pinned nixpkgs is the project's model of it, with a builder that prints what a build of
PyTorch prints. Everything between the two is real: `nix-build`, its derivations, its logs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, Project, copied_project

from build_pytorch.build import run_loop
from build_pytorch.matrix import matrix_reader

run_loop._RETRY_SECONDS = 0.05  # noqa: SLF001 - no test waits 30 seconds

MODEL = PROJECT / "build_pytorch/verify/nixpkgs_model"
STAND_IN = PROJECT / "tests/stand_in/build.sh"


class Site:
    """A Nix store and the site it downloads from. Tests may share one: a World clears it."""

    def __init__(
        self,
        folder: Path,
        *,
        checks_hashes: bool = False,
        script: Path = STAND_IN,
        arguments: Sequence[Path] = (),
        config: str = "sandbox = false",
    ) -> None:
        self.folder = folder
        self.scenarios = folder / "scenarios"
        self.scenarios.mkdir()
        self.store = folder / "nix/store"
        given = arguments or (self.scenarios,)
        self.archive = _nixpkgs(script, given, checks_hashes=checks_hashes)
        self.others: dict[str, bytes] = {}
        """Further tarballs by the path of their address."""
        self.requests: list[str] = []
        self.refused = 0
        """So many connections are closed without an answer first."""
        (folder / "home").mkdir()
        self.env: dict[str, str] = {
            "NIX_REMOTE": "local",
            "NIX_STORE_DIR": str(self.store),
            "NIX_STATE_DIR": f"{folder}/nix/state",
            "NIX_LOG_DIR": f"{folder}/nix/log",
            "NIX_CONF_DIR": f"{folder}/nix/conf",
            "NIX_CONFIG": (
                f"substituters =\nbuild-users-group =\n{config}\ncompress-build-log = false"
            ),
            "XDG_CACHE_HOME": f"{folder}/cache",
            "HOME": f"{folder}/home",
        }

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
        """What the build of a variant does (or of all: `default`): calls of stand_in/build.sh."""
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


def _nixpkgs(script: Path, arguments: Sequence[Path], *, checks_hashes: bool) -> bytes:
    """The model of nixpkgs as GitHub's archive of the pin, with our builder in it."""
    # The two sources that matrix.toml has hashes of; those of the model's own are made up.
    checks = '(args.rev or "") == "v2.10.0" || (args.name or "") == "cuda-13.0-clockrate-fix.patch"'
    shell = script.read_text().partition("\n")[0].removeprefix("#!")
    words = " ".join(f'"{argument}"' for argument in arguments)
    builder = (
        f'{{ builder = "{shell}"; args = [ ./build.sh {words} ]; '
        f"checksHashes = args: {checks if checks_hashes else 'false'}; }}\n"
    )
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path in sorted(MODEL.glob("*.nix")):
            text = builder if path.name == "builder.nix" else path.read_text()
            _add(archive, path.name, text)
        _add(archive, "build.sh", script.read_text())
    return data.getvalue()


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(f"nixpkgs-pin/{name}")
    entry.size = len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))


@contextlib.contextmanager
def served(site: Site) -> Iterator[Site]:
    """Answer for GitHub as long as the context lasts: a proxy that speaks TLS in its name."""
    key, certificate = site.folder / "key.pem", site.folder / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate), "-subj", "/CN=github.com"),
            *("-addext", "subjectAltName=DNS:github.com"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = socket.create_server(("127.0.0.1", 0))
    proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
    site.env |= {
        "https_proxy": proxy,
        "HTTPS_PROXY": proxy,
        "no_proxy": "",
        "NO_PROXY": "",
        "NIX_SSL_CERT_FILE": str(certificate),
    }
    thread = threading.Thread(target=_serve, args=(site, server, context), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.close()


def _serve(site: Site, server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(site, connection, context), daemon=True).start()


def _answer(site: Site, connection: socket.socket, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError), connection:
        connection.settimeout(20)
        request = connection.recv(65536)  # CONNECT github.com:443
        if site.refused:
            site.refused -= 1
            return
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secure:
            request = secure.recv(65536)
            path = request.split(b" ")[1].decode()
            site.requests.append(path)
            body = site.archive if "/NixOS/nixpkgs/archive/" in path else site.others.get(path)
            status = b"404 Not Found" if body is None else b"200 OK"
            body = b"not here" if body is None else body
            head = b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n" % len(body)
            secure.sendall(head + b"Connection: close\r\n\r\n" + body)


def programs() -> str | None:
    """What this machine lacks to have such a site, or None."""
    for name in ("nix-build", "openssl"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    return None


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
