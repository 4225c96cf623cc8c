"""Moving a nightly: a day or a revision, everything or nothing; and how old it is."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from conftest import PROJECT, WHOLE, Project, needs_nix
from invoke.collection import Collection
from invoke.parser import Parser
from test_bump import (
    NEW_PIN,
    NIGHTLY,
    TRITON,
    Answer,
    Api,
    api,
    bump,
    changed_lines,
    commit,
    content,
    ok,
)
from test_prefetch import OTHER

from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.base.versions import NEWEST
from build_pytorch.matrix import matrix_reader
from build_pytorch.sources import nightly
from build_pytorch.sources.release_move import NewVersions, ReleaseMove
from build_pytorch.tasks import outdated
from build_pytorch.tasks.bump import bump as task

__all__ = ["api"]  # a fixture

DAY = (
    "/repos/pytorch/pytorch/commits?sha={branch}"
    "&since={day}T00:00:00Z&until={day}T23:59:59Z&per_page=1"
)
TORCH = matrix_reader.parse(WHOLE).releases["nightly"].torch
OTHER_REV = "4123456789abcdef0123456789abcdef01234567"


def on_day(branch: str, day: str) -> str:
    return DAY.format(branch=branch, day=day)


def listed(answer: Answer) -> Answer:
    return ok([json.loads(answer[2])])


def test_the_value_of_the_option_may_be_left_out() -> None:
    for words, value in (
        (["--nightly"], True),
        (["--nightly", "--dry-run"], True),
        ([f"--nightly={OTHER_REV}"], OTHER_REV),
    ):
        context = Parser(contexts=Collection(task).to_contexts()).parse_argv(["bump", *words])
        assert context[0].args["nightly"].value == value


def test_a_day_a_revision_or_nothing_names_a_nightly() -> None:
    for word in ("20251222", OTHER_REV, NEWEST):
        assert nightly.checked(word) == word
    for word in ("main", "2025122", "20250229", OTHER_REV[:12], "v2.11.0", "2025-12-22"):
        with pytest.raises(BuildPytorchError, match="allowed: a day such as 20251222, 40 hex dig"):
            nightly.checked(word)


def test_the_newest_commit_changes_every_place_that_follows(api: Api) -> None:
    assert api.base
    commit_ = nightly.known_commit(TORCH, NEWEST)
    move = ReleaseMove(matrix_reader.parse(WHOLE), "nightly", NewVersions(commit=commit_))
    assert changed_lines(WHOLE, move) == [
        'version = "2.12.0.dev20260630"',
        f'rev = "{NIGHTLY}"',
        f'triton_rev = "{NEW_PIN}"',
    ]  # there was no hash
    assert f"compare the Triton of the pin with {NEW_PIN}, for torch.compile" in move.todo


@pytest.mark.slow
@needs_nix
def test_a_nightly_moves_and_has_nothing_to_do_then(api: Api, whole: Project) -> None:
    done = bump(whole, "--nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    recipe = next((whole.root / "releases/nightly/.flox/pkgs").glob("*-nightly.nix")).read_text()
    for part in (f'rev = "{NIGHTLY}"', "PYTORCH_BUILD_VERSION=2.12.0.dev20260630", OTHER):
        assert part in recipe
    api.answers[f"/repos/pytorch/pytorch/commits/{NIGHTLY}"] = commit(NIGHTLY, "2026-06-30")
    assert "nothing to do: release.nightly has" in bump(whole, "--nightly", NIGHTLY).stdout


@pytest.mark.parametrize("branch", ["nightly", "main"])
def test_the_commit_of_a_day_is_asked_of_one_branch_after_the_other(api: Api, branch: str) -> None:
    api.answers[on_day("nightly", "2025-12-22")] = ok([])
    api.answers[on_day(branch, "2025-12-22")] = listed(commit(NIGHTLY, "2025-12-22"))
    found = nightly.known_commit(TORCH, "20251222")
    assert (found.rev, found.version) == (NIGHTLY, "2.12.0.dev20251222")
    assert found.triton_rev == NEW_PIN


@pytest.mark.parametrize(
    ("day", "torch", "is_refused"),
    [
        ("2026-07-20", "2.9.1", False),
        ("2026-07-21", "2.9.1", True),
        ("2026-11-01", "2.13.0", True),
        ("2026-11-01", "2.14.0", False),
    ],
)
def test_a_day_without_a_setup_py_is_refused_where_the_pin_runs_it(
    api: Api, day: str, torch: str, is_refused: bool
) -> None:
    api.answers["/repos/pytorch/pytorch/commits/nightly"] = commit(NIGHTLY, day)
    pin = "[pin.february_2026]"
    text = WHOLE.replace(pin, f'{pin}\ntorch = "{torch}"')
    wanted = NewVersions(commit=nightly.known_commit(TORCH, NEWEST))
    move = ReleaseMove(matrix_reader.parse(text), "nightly", wanted)
    if not is_refused:
        matrix_reader.parse(move.text())
        return
    with pytest.raises(MatrixError, match=r"torch\.version: found .*, which has no setup\.py") as e:
        move.text()
    assert "allowed: a day up to 20260720, or a pin with torch 2.14 or newer" in str(e.value)


VERSION_OF = f"/repos/pytorch/pytorch/contents/version.txt?ref={NIGHTLY}"
TRITON_OF = f"/repos/pytorch/pytorch/contents/{TRITON}?ref={NIGHTLY}"


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        (VERSION_OF, None, "has no file version.txt"),
        (
            VERSION_OF,
            content("x\x1b[2J"),
            "version.txt has another form",
        ),
        (TRITON_OF, content("main"), "triton.txt has another form"),
        (TRITON_OF, ok({"content": 3}), "gave an unexpected answer"),
        (
            "/repos/pytorch/pytorch/commits/nightly",
            None,
            "has no commit in nightly or main",
        ),
    ],
)
def test_a_commit_that_github_does_not_describe_is_one_line(
    api: Api, path: str, answer: Answer | None, says: str
) -> None:
    api.answers.pop(path)
    if answer:
        api.answers[path] = answer
    with pytest.raises(ToolError, match=says):
        nightly.known_commit(TORCH, NEWEST)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ["--nightly", "--torch", "2.11.0"],
            "--nightly: moves the source alone; leave --torch out",
        ),
        (["--nightly", "--as", "x"], "--nightly: moves the source alone; leave --as out"),
        (["--nightly", "--release", "cuda13_0"], "release cuda13_0 builds version 2.10.0"),
        (["--nightly", "--release", "other"], '--release "other": no such release'),
        (["--nightly", "main"], 'found "main"; allowed: a day'),
        (
            ["--torch", "2.11.0", "--release", "nightly"],
            "--torch: release nightly builds a commit of a moving branch; --nightly moves it",
        ),
    ],
)
@pytest.mark.usefixtures("api")
def test_a_wrong_target_is_one_line(argv: list[str], says: str) -> None:
    done = Project(PROJECT).invoke("bump", *argv, "--dry-run")
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "matrix.toml:" not in done.stderr  # no line of a text that nobody sees


def test_outdated_says_how_old_a_nightly_is_on_a_given_day(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.base
    monkeypatch.setattr(outdated, "today", lambda: dt.date(2025, 11, 14))
    said = Project(PROJECT).invoke("outdated").stdout
    (line,) = [it for it in said.splitlines() if "days old" in it]
    assert line.startswith("nightly  nightly ")
    assert line.endswith(f", 30 days old: {NIGHTLY} is newer (nightly of 2026-06-30)")
    monkeypatch.setattr(outdated, "today", lambda: dt.date(2025, 10, 16))
    said = Project(PROJECT).invoke("outdated", "--json").stdout
    (row,) = [it for it in json.loads(said) if "days" in it]
    assert row["days"] == 1
