"""Sessions; `nox -l -t sm120` lists the builds with a tag."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import nox

# Nox looks for uv, which no session uses, and prints that it is missing.
logging.getLogger("nox").addFilter(lambda record: "uv binary" not in str(record.msg))
if {"-l", "--list", "--list-sessions"} & set(sys.argv):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `nox -l | head`
nox.options.sessions = ["lint", "verify", "pages", "tests"]
nox.options.reuse_existing_virtualenvs = True

AXE = "4.14.1"
"""Version of axe-core, which looks for what keeps people from using a page."""

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # the sessions without a virtualenv use the package of this checkout


def _install(session: nox.Session) -> None:
    """Install the locked versions of all that sessions need, then this checkout."""
    session.install("--require-hashes", "-r", str(ROOT / "requirements.txt"))
    session.install("--no-deps", "--no-build-isolation", "-e", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and workflows: ruff, mypy and zizmor, all strict."""
    _install(session)
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("mypy")
    workflows = [str(path) for path in sorted((ROOT / "examples").glob("*.yml"))]
    session.run("zizmor", "--offline", "--no-progress", "--persona", "pedantic", *workflows)


def _run(name: str, session: nox.Session) -> int:
    from build_pytorch.base.errors import reporting_missing_packages

    with reporting_missing_packages():
        from build_pytorch.cli.entry import run_words

    return run_words([name, *session.posargs], is_session=True)


@nox.session(venv_backend="none")
def verify(session: nox.Session) -> None:
    """Check recipes and docs; the options of `invoke verify` after --, such as -- --json."""
    code = _run("verify", session)
    if code == 1:
        session.error("verification found errors")
    if code:
        raise SystemExit(code)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that protect a change, within minutes; arguments to pytest after --."""
    _install(session)
    session.log("about 4 minutes on two idle cores; `nox -s slow` has the tests that take longer")
    session.run("pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the other tests: sweeps of hostile inputs, kills, long examples, all release lines."""
    _install(session)
    session.run("pytest", "-n", "auto", "-m", "slow", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run all tests and list the lines that none of them reaches."""
    _install(session)
    folder = ROOT / ".nox/coverage"  # commands that tests run in other folders write there, too
    folder.mkdir(exist_ok=True)
    data = {"COVERAGE_DATA": f"{folder}/data"}
    session.run("coverage", "erase", env=data)
    try:
        session.run("coverage", "run", "-m", "pytest", "-n", "auto", *session.posargs, env=data)
    finally:
        session.run("coverage", "combine", "--quiet", env=data, success_codes=[0, 1])
        session.run("coverage", "report", "--sort=cover", env=data, success_codes=[0, 1])


@nox.session(venv_backend="none")
def bare(session: nox.Session) -> None:
    """Run README's two commands with Git and Python alone, as an ordinary user."""
    session.run(sys.executable, "tests/bare.py")


@nox.session
def pages(session: nox.Session) -> None:
    """Test the HTML page in Chromium and with axe-core; skipped without a browser or npm."""
    browser = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
    if browser is None:
        session.skip("no browser; install Chromium, on Debian with `apt-get install chromium`")
    if shutil.which("npm") is None:
        session.skip("no npm, which fetches axe-core; on Debian `apt-get install npm`")
    _install(session)
    folder = ROOT / ".nox/pages/axe"
    axe = folder / f"node_modules/axe-core-{AXE}/axe.min.js"
    if not axe.exists():
        target = f"axe-core-{AXE}@npm:axe-core@{AXE}"
        npm = ["npm", "install", "--no-save", "--ignore-scripts", "--prefix", str(folder), target]
        session.run(*npm, external=True, success_codes=range(256))
    if not axe.exists():
        session.skip(f"npm cannot fetch axe-core {AXE}; its messages are above")
    env = {"BROWSER": shutil.which(browser) or "", "AXE": str(axe)}
    session.run("pytest", "-n", "2", "tests/pages", *session.posargs, env=env)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure our commands against bare baselines in the same run, as ratios."""
    _install(session)
    session.run("python", "tests/bench/bench.py", *session.posargs)


@nox.session
def whole(session: nox.Session) -> None:
    """Build a whole PyTorch, hours; after --: variants, then options of invoke build."""
    _install(session)
    names = ("BUILD_PYTORCH_DEBIAN", "BUILD_PYTORCH_WHOLE")
    env = {name: os.environ[name] for name in names if name in os.environ}
    named = list(itertools.takewhile(lambda word: not word.startswith("-"), session.posargs))
    options = session.posargs[len(named) :]
    named = named or ["openblas/cpu-avx2"]
    session.run("python", "tests/whole/whole.py", *named, *options, env=env)
    session.run("python", "tests/whole/evaluate.py", *named, env=env | {"PYTHONPATH": "."})


@nox.session(venv_backend="none")
def prefetch(session: nox.Session) -> None:
    """Take the hashes of all sources, write matrix.toml and generate again."""
    if code := _run("prefetch", session):
        raise SystemExit(code)


@nox.session(venv_backend="none")
def smoke(session: nox.Session) -> None:
    """Run built variants; exit 1 if one fails, 3 if one could not be tested."""
    if code := _run("smoke", session):
        raise SystemExit(code)


def _variants() -> list[Any]:
    """Return a parameter for each variant, with its tags; none if matrix.toml is wrong."""
    from build_pytorch.base.errors import BuildPytorchError

    try:
        from build_pytorch.matrix.matrix_reader import load
        from build_pytorch.matrix.selection import session_ids

        return [nox.param(name, id=name, tags=tags) for name, tags in session_ids(load())]
    except (BuildPytorchError, ModuleNotFoundError):
        return []  # the sessions that need the matrix report what is wrong


@nox.session(venv_backend="none", default=False)
@nox.parametrize("variant", _variants())
def build(session: nox.Session, variant: str) -> None:
    """Build one variant; options of `invoke build` after --."""
    from build_pytorch.cli.entry import ends_nox, run_session

    code, skipped = run_session(variant, session.posargs)
    if skipped:
        session.skip(skipped)
    if code and ends_nox(code):
        raise SystemExit(code)
    if code:
        session.error(f"exit code {code}")
