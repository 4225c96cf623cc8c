"""PyTorch's own tests: what is a failure, and what pytest reports of a file."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from built_files import small_project
from conftest import error_line, needs_nix, unfolded
from smoke_reports import own_store, variant

from build_pytorch.matrix.model import Matrix
from build_pytorch.results.artefacts import recipe_digest
from build_pytorch.results.ledger import Event, append, now
from build_pytorch.smoke import upstream
from build_pytorch.smoke.upstream import UpstreamFile, judge_files


@pytest.mark.parametrize(
    ("tests", "problem", "outcome", "says"),
    [
        ("a PASSED", "", "passed", ""),
        ("a PASSED, b FAILED", "", "failed", "test_nn.py::Test::b: so"),
        ("a PASSED, b ERROR", "", "failed", "test_nn.py::Test::b: so"),
        ("a PASSED, known FAILED", "", "passed", ""),
        ("a PASSED, known PASSED", "", "passed",
         "test_nn.py::Test::known passes: remove it from upstream_skips.toml"),
        ("a SKIPPED", "", "skipped", "test_nn: no test passed"),
        ("a PASSED", "stopped at the limit", "skipped", "test_nn: stopped at the limit"),
        ("a PASSED", "crashed in x", "failed", "test_nn: crashed in x"),
    ],
)  # fmt: skip
def test_a_failure_that_is_not_known_fails_the_run(
    tests: str, problem: str, outcome: str, says: str
) -> None:
    pairs = dict(f"test_nn.py::Test::{test}".split() for test in tests.split(", "))
    reasons = dict.fromkeys(pairs, "so")
    file = UpstreamFile(file="test_nn", tests=pairs, reasons=reasons, problem=problem)
    found = judge_files([file], ["test_nn.py::*::known"])
    assert (found.outcome, found.reasons) == (outcome, (says,) if says else ())


FILE = """
import pytest

def test_passes(): pass

def test_fails(): assert 1 == 2, "wrong"

@pytest.mark.skip("no GPU")
def test_skips(): pass

def test_last(): open("in the working folder", "w")
"""


@pytest.mark.parametrize(
    ("share", "counts"),
    [(1, {"passed": 2, "failed": 1, "skipped": 1}), (2, {"passed": 1, "skipped": 1})],
)
def test_every_nth_test_of_a_read_only_file_runs(
    tmp_path: Path, share: int, counts: dict[str, int]
) -> None:
    file = tmp_path / "source/test_x.py"
    file.parent.mkdir()
    file.write_text(FILE)
    found = upstream.run_file(Path(sys.executable), {}, file, share, 300)
    assert (found.counts, found.problem) == (counts, "")
    why = {"test_x.py::test_fails": "AssertionError: wrong"}
    assert found.reasons == (why if share == 1 else {})
    assert list(file.parent.iterdir()) == [file]


BEGAN = """#!/bin/sh
echo '../source/test_x.py::test_a PASSED   [ 50%]'
echo -n '../source/test_x.py::test_b '
"""


@pytest.mark.parametrize(
    ("end", "seconds", "problem"),
    [
        ("exit 0", 300, ""),
        ("exit 1", 300, ""),  # a test failed
        ("kill -SEGV $$", 300, "crashed in test_x.py::test_b: ended by SIGSEGV"),
        ("exec sleep 99", 2, "stopped at the limit of 2 s in test_x.py::test_b"),
        ("echo; echo ImportError: x; exit 2", 300, "pytest ended with exit code 2: ImportError: x"),
    ],
)
def test_what_ran_before_the_end_of_a_file_counts(
    tmp_path: Path, end: str, seconds: float, problem: str
) -> None:
    python = tmp_path / "python"
    python.write_text(BEGAN + end)
    python.chmod(0o755)
    found = upstream.run_file(python, {}, tmp_path / "test_x.py", 1, seconds)
    assert found.problem == problem
    assert found.counts == {"passed": 1}


def test_the_known_failures_are_those_of_a_version() -> None:
    assert "test_jit.py::TestBackends*" in upstream.known_failures("2.6.0")
    assert "test_jit.py::TestBackends*" not in upstream.known_failures("2.7.0")
    for row in tomllib.loads(upstream.SKIPS.read_text())["skip"]:
        assert row.keys() == {"torch", "test", "reason", "source", "checked"}


SOURCE = """
{ }: {
  pytorch-python313-cpu-avx2.src = derivation {
    name = "source";
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-ec" "/bin/mkdir -p $out/test; echo '${file}' > $out/test/test_x.py" ];
  };
}
"""


@needs_nix
def test_the_tests_are_those_of_the_source_of_the_derivation(tmp_path: Path) -> None:
    project = small_project(tmp_path / "project")
    file = 'def test_a(): assert __file__.startswith("/")\ndef test_b(): assert 0'
    nix = SOURCE.replace("${file}", file.replace('"', r"\"").replace("\n", r"\n"))
    (project.root / "release.nix").write_text(nix)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"  # the tools are there
    (project.root / ".build-pytorch/upstream" / version / "pytest").mkdir(parents=True)
    env = own_store(tmp_path)
    argv = ["invoke", "smoke", "cpu-avx2", "--python", sys.executable]
    done = project.run(*argv, "--upstream=test_x", "--json", env=env)
    (found,) = json.loads(done.stdout)["variants"]
    assert done.returncode == 1
    assert found["counts"]["test_x"]["passed"] == 1
    assert (found["outcome"], found["recorded"]) == ("failed", False)
    assert found["reasons"] == ["test_x.py::test_b: assert 0"]
    assert "test_x: 1 passed, 1 failed, " in done.stderr
    done = project.run(*argv, "--upstream=test_y", env=env)
    assert done.returncode == 2
    assert "--upstream test_y: no such file in " in error_line(done)


def test_show_names_the_evidence(tmp_path: Path, matrix: Matrix) -> None:
    project = small_project(tmp_path / "project", "cpu-avx2")
    package = variant(matrix, "cpu-avx2")
    event = Event(
        event="tested", at=now(), release=package.release_name, variant=package.id, by="upstream",
        outcome="failed", digest=recipe_digest(project.root, package), report="the report",
        reason="test_x: crashed",
    )  # fmt: skip
    append(project.root, event)
    shown = project.run("invoke", "show", "cpu-avx2").stdout
    assert f"upstream failed at {event.at}: test_x: crashed; the report" in unfolded(shown)
