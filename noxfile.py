"""The menu of `nox`. `verify` needs no virtualenv, so it starts at once."""

from __future__ import annotations

import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "verify", "tests"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # so that `verify` finds the package of this checkout


def _install(session: nox.Session, group: str) -> None:
    groups = nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), group)
    session.install("-e", ".", *groups)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types: ruff and mypy, both strict."""
    _install(session, "lint")
    _install(session, "test")  # mypy reads the types of what tests import
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("mypy")


@nox.session(venv_backend="none")
def verify(session: nox.Session) -> None:
    """Run every check on recipes and docs; arguments after --, for instance -- --json."""
    from build_pytorch.base.errors import EXIT_FINDINGS
    from build_pytorch.cli.entry import guarded

    def run() -> int:
        from build_pytorch.cli import verify

        return verify.main(session.posargs)

    code = guarded(run)
    if code == EXIT_FINDINGS:
        session.error("verification found errors")
    if code:
        raise SystemExit(code)  # bad input is no finding: the exit code says so


@nox.session(venv_backend="none")
def prefetch(session: nox.Session) -> None:
    """Take the hashes of all sources, write matrix.toml and generate again."""
    from build_pytorch.cli.entry import guarded

    def run() -> int:
        from build_pytorch.cli import prefetch

        return prefetch.main(session.posargs)

    if code := guarded(run):
        raise SystemExit(code)


def _variants() -> list[nox.param]:
    """A parameter for each variant, with its id and tags. None where matrix.toml is wrong."""
    from build_pytorch.base.errors import BuildPytorchError

    try:
        from build_pytorch.matrix import matrix_reader
        from build_pytorch.matrix.selection import session_ids

        return [
            nox.param(v.package, id=id_, tags=tags)
            for v, id_, tags in session_ids(matrix_reader.load())
        ]
    except (BuildPytorchError, ModuleNotFoundError):
        return []  # the sessions that need the matrix say what is wrong with it


@nox.session(venv_backend="none")
@nox.parametrize("package", _variants())
def build(session: nox.Session, package: str) -> None:
    """Build one variant, or those of a tag (-t sm120); arguments after --, such as -- --force."""
    from build_pytorch.cli.build_session import VariantSkipped, ends_all, run
    from build_pytorch.cli.entry import guarded

    selected = _selected(session)
    try:
        code = guarded(lambda: run(package, session.posargs, selected))
    except VariantSkipped as reason:
        session.skip(str(reason))
    if code and ends_all(code, session.posargs, selected):
        raise SystemExit(code)
    if code:
        session.error(f"exit code {code}")  # the other variants go on


def _selected(session: nox.Session) -> int:
    """How many builds this run of nox was asked for; nox itself tells nobody."""
    manifest = session._runner.manifest  # noqa: SLF001 - there is no public way
    runners = [*manifest._queue, *manifest._consumed]  # noqa: SLF001 - the same
    return sum(runner.name == "build" for runner in runners)


@nox.session(venv_backend="none")
def smoke(session: nox.Session) -> None:
    """Prove built variants by real work; exit 1 when one fails, 3 when one is not proved."""
    from build_pytorch.cli.entry import guarded

    def run() -> int:
        from build_pytorch.cli import smoke

        return smoke.main(session.posargs)

    if code := guarded(run):
        raise SystemExit(code)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests on all CPUs; arguments after -- go to pytest (-n0: one after the other)."""
    _install(session, "test")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure our commands against bare baselines in the same run, as ratios."""
    _install(session, "test")
    session.run("python", "tests/bench/bench.py", *session.posargs)
