"""PyTorch's own tests: what is a failure, and what pytest reports of a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
    found, reasons, notes = judge_files(torch, files, [SKIP])
    assert found == outcome
    assert says in "".join([*reasons, *notes])
    assert bool(reasons) is (outcome != "passed")


FILE = """
import os, pytest

def test_passes(): pass

def test_fails(): assert 1 == 2, "wrong"

@pytest.mark.skip("no GPU")
def test_skips(): pass

def test_last(): {last}
"""


@pytest.mark.parametrize(
    ("last", "share", "counts", "problem"),
    [
        ("pass", "1", (2, 1, 1), ""),
        ("pass", "2", (1, 0, 1), ""),
        ("os.kill(os.getpid(), 11)", "1", (1, 1, 1), "crashed in test_x.py::test_last"),
        (
            "import time; time.sleep(99)",
            "1",
            (1, 1, 1),
            "stopped at the limit of 20 s in test_x.py",
        ),
    ],
)
def test_what_ran_before_the_end_of_a_file_counts(
    tmp_path: Path, last: str, share: str, counts: tuple[int, ...], problem: str
) -> None:
    folder = tmp_path / "test"
    folder.mkdir()
    (folder / "test_x.py").write_text(FILE.format(last=last))
    env = {"UPSTREAM_SHARE": share, "PYTHONPATH": str(Path(upstream.__file__).parent)}
    found = upstream.run_file(
        Path(sys.executable), env, folder, "test_x", 20 if "sleep" in last else 300
    )
    assert tuple(found.counts.values()) == counts
    assert found.problem.startswith(problem)
    assert bool(found.problem) is bool(problem)
    failed = [test.why for test in found.tests if test.outcome == "failed"]
    assert failed == ["AssertionError: wrong"] * counts[1]


def test_the_known_failures_are_valid() -> None:
    assert isinstance(upstream.known_failures(), tuple)
