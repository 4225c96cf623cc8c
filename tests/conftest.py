"""What every test may use: a copy of the project, and commands run as people run them."""

from __future__ import annotations

import atexit
import compileall
import contextlib
import functools
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest
from invoke.program import Program
from one_release import one_release, with_releases

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.tasks import menu

# A shell ignores Ctrl-C for what it runs in the background, nohup the end of the terminal, and so
# would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

if not os.access(Path("~").expanduser(), os.W_OK):  # Nix and Git need a home
    os.environ["HOME"] = tempfile.mkdtemp(prefix="build-pytorch-home-")
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)

# No test reaches an index of packages; a test with wheels names their folder.
os.environ |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}


def _remove_store(folder: str) -> None:
    """Remove a store of Nix, whose folders nobody may write to."""
    subprocess.run(["chmod", "-R", "u+w", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


NIX = shutil.which("nix-instantiate")
if NIX and subprocess.run([NIX, "--eval", "-E", "1"], capture_output=True, check=False).returncode:
    # This user may not use the machine's store: no daemon, or no right to call it.
    _store = tempfile.mkdtemp(prefix="build-pytorch-store-")
    atexit.register(_remove_store, _store)
    os.environ["NIX_REMOTE"] = f"local?root={_store}"

if re.search(r"[^\w./+-]", tempfile.gettempdir()):  # no Nix store has a space in its path
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/var/tmp")  # noqa: S108 - pytest makes a private folder

collect_ignore = [] if "BROWSER" in os.environ else ["pages"]  # `nox -s pages` runs them

pytest_plugins = ["world", "sample_fleet"]  # the fixtures of real builds and of a ledger
if "BROWSER" in os.environ:
    pytest_plugins.append("page_browser")

PROJECT = Path(__file__).resolve().parents[1]
LEGACY = PROJECT / "tests" / "legacy"
WHOLE = (PROJECT / "matrix.toml").read_text()


OF_ANOTHER_USER = {
    "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""Variables with which Git takes every checkout for that of another user."""

needs_nix = pytest.mark.skipif(NIX is None, reason="Nix is not installed")


try:
    ONE = one_release(WHOLE)
    OLDER = with_releases(WHOLE, "cuda13_0", "cuda12_8", "nightly")
except (BuildPytorchError, KeyError):  # the tests that read it say what is wrong with it
    ONE = OLDER = WHOLE
"""matrix.toml with its release of PyTorch 2.10 only, which most tests are about; and without the
releases that have most of their values from another one."""


class Project:
    """A copy of this project below a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def pkgs(self) -> Path:
        return self.root / ".flox/pkgs"

    def recipe(self, name: str) -> Path:
        return self.pkgs / f"pytorch-python313-{name}.nix"

    def own_program(self) -> Path:
        """Give the copy a package of its own, to be edited or run. Returns its folder."""
        package = self.root / "build_pytorch"
        if package.is_symlink():
            program = package.resolve()
            package.unlink()
            shutil.copytree(program, package)
        return package

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text that must be there, once."""
        if path.startswith("build_pytorch/"):
            self.own_program()
        file = self.root / path
        text = file.read_text()
        assert text.count(old) >= 1, f"{old!r} is not in {path}"
        file.write_text(text.replace(old, new, 1))

    @contextlib.contextmanager
    def edited(self, path: str, old: str, new: str) -> Iterator[None]:
        """Replace text for a while: for tests that share a project."""
        before = (self.root / path).read_bytes()
        self.edit(path, old, new)
        try:
            yield
        finally:
            (self.root / path).write_bytes(before)

    def run(
        self, *argv: str, env: Mapping[str, str] | None = None, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run invoke in this process, nox in a process of its own."""
        if argv[0] == "invoke" and argv[1:] and not argv[1].startswith("-"):
            return run_in_process(self.root, argv[1:], env or {})
        return self.run_process(*argv, env=env, seconds=seconds)

    def run_process(
        self, *argv: str, env: Mapping[str, str] | None = None, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run invoke or nox of this copy in a process of its own."""
        self.own_program()  # Nix may not read files of the program through a link
        return subprocess.run(
            [sys.executable, "-m", *argv],
            cwd=self.root,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def invoke(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.run("invoke", *argv)

    def succeeds(self, *argv: str) -> str:
        """Run invoke, which must succeed, and return what it printed."""
        done = self.invoke(*argv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def nox(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.run("nox", *argv)

    def git(self, *argv: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(
            ["git", *identity, *argv], cwd=self.root, check=True, capture_output=True, text=True
        )

    def commit(self) -> None:
        """Commit everything, the package as the folder that a process of this copy needs."""
        self.own_program()
        if not (self.root / ".git").exists():
            self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "state")

    def snapshot(self) -> dict[str, bytes]:
        """Every file that a command could spoil, by its path."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
            and not {".git", ".build-pytorch", "build_pytorch", "__pycache__", ".nox"}
            & set(path.relative_to(self.root).parts)
        }


def run_in_process(
    root: Path, words: Sequence[str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the commands that words name on a checkout, with the package of these tests."""
    _forget_what_a_process_remembers()
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(root),
        mock.patch.dict(os.environ, env),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        mock.patch.object(sys, "argv", ["invoke", *words]),
    ):
        code = _code_of(words)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `build` ignores it until its process ends
    return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())


@functools.cache
def _program() -> Program:
    return menu.program()


def _code_of(words: Sequence[str]) -> int:
    try:
        _program().run(["invoke", *words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _forget_what_a_process_remembers() -> None:
    """Clear the caches of what files and the environment say, which a new process reads again."""
    for name, module in list(sys.modules.items()):
        if name.startswith("build_pytorch.") and name.split(".")[1] not in {"matrix", "inspect"}:
            for value in vars(module).values():
                if getattr(value, "__module__", "") == name and hasattr(value, "cache_clear"):
                    value.cache_clear()


@functools.cache
def _compiled_program() -> Path:
    """A copy of the package with compiled modules."""
    folder = Path(tempfile.mkdtemp(prefix="build-pytorch-program-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    program = Path(shutil.copytree(PROJECT / "build_pytorch", folder / "p", ignore=ignored))
    compileall.compile_dir(program, quiet=1, stripdir=program.parent)
    return program


@functools.cache
def _pristine(*, is_whole: bool = False) -> Path:
    """A copy of the project without what Git ignores; package and tests are links.

    Unless it is whole, it has that release only.
    """
    folder = Path(tempfile.mkdtemp(prefix="build-pytorch-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    root = folder / "project"
    skipped = (".git", ".venv", ".nox", ".build-pytorch", ".*_cache", ".hypothesis")
    linked = ("build_pytorch", "tests", "__pycache__")
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns(*skipped, *linked))
    (root / "build_pytorch").symlink_to(_compiled_program())
    (root / "tests").symlink_to(PROJECT / "tests")
    if not is_whole:
        (root / "matrix.toml").write_text(ONE)
        shutil.rmtree(root / "releases")
        for phase in ("phase1", "phase5"):
            Project(root).succeeds(phase)
        shutil.rmtree(root / ".build-pytorch", ignore_errors=True)
    return root


def copied_project(root: Path, *, is_whole: bool = False) -> Project:
    """Copy the project to a new folder, without what Git ignores."""
    subprocess.run(["cp", "-a", _pristine(is_whole=is_whole), root], check=True)
    return Project(root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy of the project with its release of PyTorch 2.10 only."""
    return copied_project(tmp_path / "project")


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with its release of PyTorch 2.10 only, which tests only read."""
    return copied_project(tmp_path_factory.mktemp("still") / "project")


@pytest.fixture
def whole(tmp_path: Path) -> Project:
    """A fresh copy of the project with all releases."""
    return copied_project(tmp_path / "project", is_whole=True)


def write_recipes(root: Path, matrix: Matrix, change: Callable[[str], str] = str) -> dict[str, str]:
    """Write the recipes of a matrix and the files that they import; return the rendered texts."""
    texts = recipes.render(matrix)
    function = (PROJECT / paths.COMPANION_FUNCTION).read_text()
    for path, text in {**texts, paths.COMPANION_FUNCTION: function}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(change(text))
    return texts


@pytest.fixture
def legacy(tmp_path: Path) -> Path:
    """A checkout with six hand-written recipes, one of them correct."""
    root = tmp_path / "legacy"
    pkgs = root / ".flox/pkgs"
    pkgs.mkdir(parents=True)
    for recipe in LEGACY.glob("*.nix"):
        shutil.copy(recipe, pkgs)
    return root


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    """The project's own matrix with its release of PyTorch 2.10 only."""
    return matrix_reader.parse(ONE)


def unfolded(text: str) -> str:
    """Output without the line breaks that keep it within 80 columns."""
    return " ".join(text.split())


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a failed command said: exactly one line of error, and no traceback."""
    assert "Traceback" not in done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("error: ")
