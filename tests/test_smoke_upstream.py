"""PyTorch's own tests: what is a failure, and what pytest reports of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from built_files import small_project
from conftest import error_line, needs_nix, unfolded
from smoke_reports import variant
from test_smoke_command import own_store

from build_pytorch.matrix.model import Matrix
from build_pytorch.results.evidence import recipe_digest
from build_pytorch.results.ledger import Event, append, now
from build_pytorch.smoke import upstream
from build_pytorch.smoke.upstream import UpstreamFile, UpstreamSkip, UpstreamTest, judge_files

SKIP = UpstreamSkip(
    torch=">=2.6,<2.7",
    test="test_nn.py::*::test_known",
    reason="a tolerance of x86",
    source="pytorch/pytorch issue 1",
    checked="2026-11-26",
)


def results(*tests: str, problem: str = "") -> list[UpstreamFile]:
    """A file with tests such as `test_known failed`."""
    found = []
    for test in tests:
        name, outcome = test.split()
        found.append(UpstreamTest(test=f"test_nn.py::Test::{name}", outcome=outcome, why="so"))  # type: ignore[arg-type] # of the table
    return [UpstreamFile(file="test_nn", tests=tuple(found), problem=problem)]


@pytest.mark.parametrize(
    ("torch", "files", "outcome", "says"),
    [
        ("2.6.0", results("test_a passed"), "passed", ""),
        ("2.6.0", results("test_a passed", "test_b failed"), "failed", "Test::test_b: so"),
        ("2.6.0", results("test_a passed", "test_known failed"), "passed", ""),
        ("2.7.0", results("test_a passed", "test_known failed"), "failed", "Test::test_known: so"),
        ("2.6.0", results("test_known passed"), "passed", "test_known passes: remove it"),
        ("2.6.0", results("test_a skipped"), "skipped", "test_nn: no test passed"),
        ("2.6.0", results("test_a passed", problem="stopped at the limit"), "skipped", "stopped"),
        ("2.6.0", results("test_a passed", problem="crashed in x"), "failed", "test_nn: crashed"),
    ],
)
def test_a_failure_that_is_not_known_fails_the_run(
    torch: str, files: list[UpstreamFile], outcome: str, says: str
) -> None:
    found = judge_files(torch, files, [SKIP])
    assert found.outcome == outcome
    assert says in "".join([*found.reasons, *found.notes])
    assert bool(found.reasons) is (outcome != "passed")


FILE = """
import pytest

def test_passes(): pass

def test_fails(): assert 1 == 2, "wrong"

@pytest.mark.skip("no GPU")
def test_skips(): pass

def test_last(): open("in the working folder", "w")
"""
PLUGIN = {"PYTHONPATH": str(Path(upstream.__file__).parent)}


@pytest.mark.parametrize(("share", "counts"), [(1, (2, 1, 1)), (2, (1, 0, 1))])
def test_every_nth_test_of_a_read_only_file_runs(
    tmp_path: Path, share: int, counts: tuple[int, ...]
) -> None:
    file = tmp_path / "source/test_x.py"
    file.parent.mkdir()
    file.write_text(FILE)
    found = upstream.run_file(Path(sys.executable), PLUGIN, file, share, 300)
    assert (tuple(found.counts.values()), found.problem) == (counts, "")
    failed = [test.why for test in found.tests if test.outcome == "failed"]
    assert failed == ["AssertionError: wrong"] * counts[1]
    assert list(file.parent.iterdir()) == [file]


BEGAN = """#!/bin/sh
echo '{"test": "test_x.py::test_a"}' >> $UPSTREAM_RESULTS
echo '{"test": "test_x.py::test_a", "outcome": "passed"}' >> $UPSTREAM_RESULTS
echo '{"test": "test_x.py::test_b"}' >> $UPSTREAM_RESULTS
"""


@pytest.mark.parametrize(
    ("end", "seconds", "problem"),
    [
        ("exit 0", 300, ""),
        ("exit 1", 300, ""),  # a test failed
        ("kill -SEGV $$", 300, "crashed in test_x.py::test_b: ended by SIGSEGV"),
        ("exec sleep 99", 2, "stopped at the limit of 2 s in test_x.py::test_b"),
        ("echo ImportError: no x; exit 2", 300, "pytest ended with exit code 2: ImportError: no x"),
        ("echo -n '{\"test' >> $UPSTREAM_RESULTS", 300, ""),  # it was killed while it wrote
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
    assert [(test.test, test.outcome) for test in found.tests] == [("test_x.py::test_a", "passed")]


def test_the_known_failures_are_valid() -> None:
    assert isinstance(upstream.known_failures(), tuple)


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
    assert "test_x: 1 passed, 1 failed, 0 skipped" in done.stderr
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
