"""`invoke ledger merge`: events of other machines, such as artefacts of CI."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Project, copied_project, error_line
from sample_fleet import LAST, SampleFleet

from build_pytorch.matrix import matrix_reader
from build_pytorch.results.ledger import Ledger
from build_pytorch.results.package_state import all_events, package_states

LEDGER = ".build-pytorch/ledger.jsonl"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The ledger of another machine: a failed build of sm90-avx2, and a good one of cpu-avx2."""
    fleet = SampleFleet(copied_project(tmp_path / "other").root)
    variants = {v.id: v for v in matrix_reader.load(fleet.root).variants}
    fleet.failed(variants["sm90-avx2"], "error: no\n", message="no")
    fleet.ended(fleet.started(variants["cpu-avx2"], LAST), "built", 60.0, outputs=("/nix/store/a",))
    path = tmp_path / "ci.jsonl"
    text = (fleet.root / LEDGER).read_text()
    path.write_text(text.replace(f'"host":"{os.uname().nodename}"', '"host":"runner-7"'))
    return path


def changed(path: Path, number: int, **values: Any) -> None:
    """Give the event of a line of a ledger other values."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    path.write_text("".join(f"{line}\n" for line in lines))


def test_events_are_appended_once_with_the_machine_that_wrote_them(
    project: Project, other: Path
) -> None:
    done = project.invoke("ledger", "merge", str(other), str(other))
    assert done.stdout == f"{other}: 4 events, 4 new\n{other}: 4 events, 0 new\n"
    merged = (project.root / LEDGER).read_bytes()
    assert merged.count(b'"host":"runner-7"') == 4
    again = project.invoke("ledger", "merge", str(other), "--json")
    assert json.loads(again.stdout) == {"files": [{"file": str(other), "events": 4, "new": 0}]}
    assert (project.root / LEDGER).read_bytes() == merged
    assert "on runner-7: sm90-avx2" in project.invoke("status").stdout


@pytest.mark.parametrize("command", ["log", "diagnose", "shell --failed"])
def test_a_log_that_stayed_on_its_machine_is_said_and_read_once_it_is_copied(
    project: Project, other: Path, command: str
) -> None:
    project.invoke("ledger", "merge", str(other))
    said = error_line(project.invoke(*command.split(), "sm90-avx2"))
    assert said.endswith("not found; the log of sm90-avx2 is on runner-7; copy it here")
    path = said.removeprefix("error: ").partition(":")[0]
    (project.root / path).parent.mkdir(parents=True)
    shutil.copy(other.parent / "other" / path, project.root / path)
    assert "runner-7" not in project.invoke(*command.split(), "sm90-avx2").stderr


def test_a_merged_event_takes_its_place_in_time(project: Project, other: Path) -> None:
    """What happened here later stays the last word."""
    fleet = SampleFleet(project.root)
    variant = next(v for v in matrix_reader.load(project.root).variants if v.id == "sm90-avx2")
    later = fleet.started(variant, LAST + timedelta(days=1))
    fleet.ended(later, "interrupted", 1.0)
    assert project.invoke("ledger", "merge", str(other)).returncode == 0
    (state,) = package_states(project.root, [variant], events=all_events(project.root)).values()
    assert state.overall == "interrupted"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"event": "erased"}, 'event: found "erased"; allowed: started or ended or'),
        ({"seconds": "long"}, 'seconds: found "long"; allowed: number'),
        ({"seconds": -1}, "seconds: found -1"),
        ({"seconds": 1e300}, "seconds: found 1e+300"),
        ({"at": "yesterday"}, "at: found 'yesterday', which is no time"),
        ({"at": "2199-01-01T00:00:00+00:00"}, "in the future"),
        ({"at": "2026-11-20T00:00:00"}, "of no time zone"),
        ({"attempt": "../../x\x1b[31m"}, "attempt: found"),
        ({"outputs": ["relative"]}, "outputs: found 'relative'"),
        ({"variant": "a b"}, "variant: found 'a b'"),
        ({"colour": "red"}, 'unknown key "colour"'),
        ({"message": "x" * 70_000}, "larger than 64 KiB"),
    ],
)
def test_a_line_that_is_not_an_event_is_named_and_nothing_is_merged(
    project: Project, other: Path, values: dict[str, Any], says: str
) -> None:
    changed(other, 1, **values)
    done = project.invoke("ledger", "merge", str(other))
    assert done.returncode == 2
    line = error_line(done)
    assert f"{other}:2: not an event of a ledger: " in line
    assert says in line
    assert "\x1b" not in line
    assert not (project.root / LEDGER).exists()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[" * 60_000 + b"\n", ":1: not an event of a ledger: nested too deeply"),
        (b"\xff\xfe\n", ":1: not an event"),
        (b"GIF89a", ": not a ledger"),
        (b'{"event":"ended"', ": not a ledger"),  # torn
        (None, ": cannot be read: No such file"),
    ],
)
def test_a_file_of_another_kind_is_one_line(
    project: Project, tmp_path: Path, data: bytes | None, says: str
) -> None:
    path = tmp_path / "x.jsonl"
    if data is not None:
        path.write_bytes(data)
    done = project.invoke("ledger", "merge", str(path))
    assert done.returncode == 2
    assert f"{path}{says}" in error_line(done)


def test_a_file_beyond_the_limit_is_refused(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as file:
        file.truncate(65 << 20)
    assert "larger than" in error_line(project.invoke("ledger", "merge", str(path)))


def test_a_line_that_a_killed_process_left_is_skipped(project: Project, other: Path) -> None:
    with other.open("a") as file:
        file.write('{"event":"ended","at":"20')
    assert project.invoke("ledger", "merge", str(other)).stdout.endswith("4 events, 4 new\n")


def test_other_words_are_refused(project: Project) -> None:
    for words in ([], ["merge"], ["split", "x"]):
        assert "invoke ledger merge FILE..." in error_line(project.invoke("ledger", *words))


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_a_merge_that_was_cut_off_is_completed_by_the_same_command(
    project: Project, other: Path, part: float
) -> None:
    path = project.root / LEDGER
    mine = SampleFleet(project.root).started(matrix_reader.load(project.root).variants[0], LAST)
    before = path.read_bytes()
    assert project.invoke("ledger", "merge", str(other)).returncode == 0
    added = path.read_bytes().removeprefix(before)
    path.write_bytes(before + added[: int(len(added) * part)])
    assert project.invoke("ledger", "merge", str(other)).returncode == 0
    events = list(Ledger(project.root).events())
    assert (len(events), len(set(map(repr, events))), events[0].at) == (5, 5, mine.at)


@pytest.mark.slow
def test_nothing_is_lost_when_a_merge_is_killed_at_any_moment(
    project: Project, other: Path
) -> None:
    """Lines that were there stay; the same command adds what is missing, each event once."""
    lines = other.read_text().splitlines()
    big = [line.replace('"attempt":"', f'"attempt":"{n}-') for n in range(5_000) for line in lines]
    other.write_text("".join(f"{line}\n" for line in big))
    mine = SampleFleet(project.root).started(matrix_reader.load(project.root).variants[0], LAST)
    argv = [sys.executable, "-m", "invoke", "ledger", "merge", str(other)]
    project.own_program()
    for tenth in range(4, 20, 2):
        with subprocess.Popen(argv, cwd=project.root, stdout=subprocess.DEVNULL) as merge:
            time.sleep(tenth / 10)
            merge.send_signal(signal.SIGKILL)
        assert next(Ledger(project.root).events()).at == mine.at
    assert project.invoke("ledger", "merge", str(other)).returncode == 0
    events = list(map(repr, Ledger(project.root).events()))
    assert len(events) == len(set(events)) == 1 + len(big)
