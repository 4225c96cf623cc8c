"""A few cases of each kind of hostile input; `nox -s fuzz` tries thousands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tomlkit
from conftest import PROJECT, needs_nix
from fuzz import __main__ as fuzz
from fuzz import answers, fields, interrupts, logs, reports, values, whole_matrix
from world import programs

from build_pytorch.matrix import matrix_reader

slow = pytest.mark.slow


def test_no_line_of_a_log_raises_hangs_or_reaches_the_terminal_as_it_is() -> None:
    counts = logs.run(seed=11, count=5_000)
    assert counts["lines"] >= 5_000
    assert counts["log stopped"]
    assert counts["log named"]


def test_no_report_machine_or_ledger_of_others_raises() -> None:
    counts = reports.run(seed=11, count=60)
    assert counts["reports read"]
    assert counts["machines read"]
    assert sum(counts.values()) == 180


@slow
def test_every_string_field_of_the_schema_is_tried() -> None:
    names = set(fields.schema_fields())
    assert {".release.*.group[].title", ".cpu.*.cpus[]", ".gpu.*.hosts.*[]", ".gpu.*key"} <= names
    assert len(names) > 50


@slow
@needs_nix
def test_hostile_values_of_the_matrix_are_refused_or_evaluate_to_themselves() -> None:
    counts = values.run(2, 60)
    assert counts["refused by its path"] > 10
    assert counts["recipes evaluated"] > 10


def test_the_matrix_of_the_fuzz_has_every_field_and_is_valid() -> None:
    document = whole_matrix.document()
    assert set(values.places_by_field(document)) == set(fields.schema_fields())
    assert matrix_reader.parse(tomlkit.dumps(document)).companions


@slow
@pytest.mark.skipif(programs() is not None, reason=programs() or "")
def test_signals_end_commands_with_a_line() -> None:
    counts = interrupts.run(3, 8)
    assert sum(counts.values()) == 8


@slow
def test_hostile_answers_are_results_or_one_line() -> None:
    counts = answers.run(2, 300)
    assert {key.partition(":")[0] for key in counts} == {"programs", "logs", "GitHub"}
    assert sum(counts.values()) == 300


@slow
def test_the_session_runs_every_module_that_has_run(tmp_path: Path) -> None:
    assert {"answers", "values"} <= set(fuzz.names())
    argv = [sys.executable, str(PROJECT / "tests/fuzz"), "answers", "--seed", "3", "--count", "30"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    header, total, *rows = done.stdout.splitlines()
    assert header.split() == ["what", "count", "tracebacks", "lost", "without", "a", "line"]
    assert total.startswith("answers (")
    assert total.split()[-3:] == ["0", "0", "0"]
    assert sum(int(row.split()[-1]) for row in rows) == 30


@slow
@pytest.mark.parametrize(
    ("error", "column"), [("AssertionError('torn file')", 1), ("TypeError('x')", 0)]
)
def test_a_fault_is_counted_and_ends_with_1(tmp_path: Path, error: str, column: int) -> None:
    folder = tmp_path / "tests/fuzz"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text((PROJECT / "tests/fuzz/__main__.py").read_text())
    (folder / "bad.py").write_text(f"def x(): ...\ndef run(seed, count):\n    raise {error}\n")
    done = subprocess.run([sys.executable, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    faults = done.stdout.splitlines()[1].split()[-3:]
    assert [int(number) for number in faults] == [int(place == column) for place in range(3)]
    assert error.partition("(")[0] in done.stderr
