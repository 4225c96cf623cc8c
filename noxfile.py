"""Sessions; `nox -l -t sm120` lists the builds with a tag."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
from pathlib import Path

import nox

logging.getLogger("nox").addFilter(lambda it: "uv binary" not in str(it.msg))  # nobody needs uv
if {"-l", "--list", "--list-sessions"} & set(sys.argv):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `nox -l | head`
nox.options.sessions = ["lint", "verify", "pages", "tests"]
nox.options.reuse_existing_virtualenvs = True
sys.path.insert(0, str(Path(__file__).parent))  # `variants` uses the package of this checkout


def variants() -> dict[str, list[str]]:
    """Return the tags of each variant by its id; none if matrix.toml is wrong."""
    from build_pytorch.base.errors import BuildPytorchError  # imports no dependency

    try:
        from build_pytorch.matrix.matrix_reader import load
        from build_pytorch.matrix.selection import session_ids

        return dict(session_ids(load()))
    except (BuildPytorchError, ModuleNotFoundError) as error:
        logging.getLogger("nox").warning("no builds: %r", error)
        return {}


VARIANTS = variants()


def install(session: nox.Session) -> None:
    """Install the locked versions of all that sessions need, then this checkout."""
    session.install("--require-hashes", "-r", "requirements.txt")
    session.install("--no-deps", "--no-build-isolation", "-e", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and workflows: ruff, mypy and zizmor, all strict."""
    install(session)
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("zizmor", "--offline", "--no-progress", "--persona=pedantic", "examples/github.yml")


@nox.session(venv_backend="none")
def verify(session: nox.Session) -> None:
    """Check recipes and docs; the options of `invoke verify` after --, such as -- --json."""
    session.run(sys.executable, "-m", "invoke", "verify", *session.posargs)


@nox.session(venv_backend="none", default=False)
@nox.parametrize("variant", [nox.param(name, id=name, tags=it) for name, it in VARIANTS.items()])
def build(session: nox.Session, variant: str) -> None:
    """Build one variant; options of `invoke build` after --."""
    if "buildable" not in VARIANTS[variant]:
        session.skip(f"`invoke show {variant}` says why it cannot be built")
    session.run(sys.executable, "-m", "invoke", "build", variant, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that protect a change, within minutes; arguments to pytest after --."""
    install(session)
    session.run("pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the other tests: sweeps of hostile inputs, kills, long examples, all release lines."""
    install(session)
    session.run("pytest", "-n", "auto", "-m", "slow", *session.posargs)


@nox.session(venv_backend="none")
def bare(session: nox.Session) -> None:
    """Run README's two commands with Git and Python alone, as an ordinary user."""
    session.run(sys.executable, "tests/bare.py")


@nox.session
def pages(session: nox.Session) -> None:
    """Test the HTML page in Chromium and with axe-core; skipped where one is missing."""
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    if not (browser := next(filter(None, found), None)) or not shutil.which("npm"):
        session.skip("no browser or no npm; on Debian `apt-get install chromium npm`")
    install(session)
    version = "4.14.1"
    axe = Path(f".nox/pages/axe-{version}/node_modules/axe-core/axe.min.js").absolute()
    if not axe.exists():
        npm = ["npm", "install", "--no-save", "--ignore-scripts", f"--prefix={axe.parents[2]}"]
        session.run(*npm, f"axe-core@{version}", external=True, success_codes=range(256))
    if not axe.exists():
        session.skip("npm cannot fetch axe-core")
    session.env.update(BROWSER=browser, AXE=str(axe))
    session.run("pytest", "-n", "2", "tests/pages", *session.posargs)


@nox.session
def whole(session: nox.Session) -> None:
    """Build a whole PyTorch and look at it, hours; after --: variants, then options of build."""
    install(session)
    words = session.posargs or ["openblas/cpu-avx2"]
    session.run("python", "tests/whole/whole.py", *words)
    session.run("python", "tests/whole/evaluate.py", *words[0].split(","), env={"PYTHONPATH": "."})
