"""A checkout of somebody else: links, FIFOs, devices and Git settings that wait for us."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Project, error_line, unfolded

from build_pytorch.base import files, git
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.backends import BuildAction, BuildCommand, Step
from build_pytorch.build.build_attempt import BuildAttempt
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import evidence
from build_pytorch.results.ledger import Event
from build_pytorch.results.ledger import append as append_event
from build_pytorch.smoke.judge import Judgement
from build_pytorch.smoke.smoke_case import case_of

pytestmark = pytest.mark.slow

STATE = ".build-pytorch"
SECRET = "the secret of another folder"  # noqa: S105 - it is to be recognised in an output
EVENT = Event(event="started", at="t", release="r", variant="v", digest="d", attempt="a")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the checkout with a file that nothing may read or change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text(f"{SECRET}\n")
    return folder


def untouched(outside: Path) -> bool:
    return [path.name for path in outside.iterdir()] == ["file"] and (
        outside / "file"
    ).read_text() == f"{SECRET}\n"


def lock(root: Path, _: Matrix) -> None:
    files.exclusive_lock(root, "builds.lock", "builds").__enter__()


def append(root: Path, _: Matrix) -> None:
    append_event(root, EVENT)


def log(root: Path, matrix: Matrix) -> None:
    variant = matrix.variants[0]
    step = Step(package=variant, action=BuildAction.BUILD, reason="", digest="")
    attempt = BuildAttempt(root, step, BuildCommand([]), 1)
    attempt.close()


def report(root: Path, matrix: Matrix) -> None:
    evidence.record_evidence(
        root,
        matrix.variants[0],
        None,
        test="smoke",
        result=case_of(matrix.variants[0], Judgement(outcome="passed")),
    )


# --- links ---


@pytest.mark.parametrize("write", [lock, append, log, report])
@pytest.mark.parametrize("place", ["", "builds.lock", "ledger.jsonl", "logs", "reports"])
def test_nothing_is_written_through_a_link_in_the_state_folder(
    tmp_path: Path, outside: Path, matrix: Matrix, write: Callable[..., None], place: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    if place:
        (root / STATE).mkdir()
    target = outside / "file" if "." in place else outside
    (root / STATE / place if place else root / STATE).symlink_to(target)
    touches = {"builds.lock": lock, "ledger.jsonl": append, "logs": log, "reports": report}
    if touches.get(place, write) is write:
        with pytest.raises(BuildPytorchError, match="is a symbolic link"):
            write(root, matrix)
    else:
        write(root, matrix)
    assert untouched(outside)


@pytest.mark.parametrize("folder", [".flox/pkgs", "docs"])
@pytest.mark.parametrize("command", ["all", "phase4", "phase5", "verify"])
def test_a_linked_folder_is_refused_by_name(
    project: Project, outside: Path, folder: str, command: str
) -> None:
    (outside / ".x.build-pytorch-tmp").write_text("of somebody else")
    shutil.rmtree(project.root / folder)
    (project.root / folder).symlink_to(outside)
    needs = {"phase4": ".flox", "phase5": "docs"}.get(command, folder)
    done = project.invoke(command, *(["--verbose"] if command != "verify" else []))
    if folder.startswith(needs):
        assert done.returncode in {1, 2}
        said = unfolded(done.stdout + done.stderr)
        assert f"{folder} is a symbolic link and is not followed" in said
    assert SECRET not in done.stdout + done.stderr
    (outside / ".x.build-pytorch-tmp").unlink()
    assert untouched(outside)


@pytest.mark.parametrize(
    ("path", "command"),
    [
        (".flox/pkgs/pytorch-python313-cpu-avx2.nix", "phase4"),
        ("README.md", "phase5"),
        ("release.nix", "phase5"),
    ],
)
def test_the_target_of_a_link_is_neither_shown_nor_changed(
    project: Project, outside: Path, path: str, command: str
) -> None:
    (project.root / path).unlink()
    (project.root / path).symlink_to(outside / "file")
    commands = [[command, "--verbose"], ["verify"]]
    for argv in [*commands, ["phase4", "--force"]] if command == "phase4" else commands:
        done = project.invoke(*argv)
        assert SECRET not in done.stdout + done.stderr
        assert done.returncode == 1, argv
        assert "is a symbolic link" in unfolded(done.stdout)
    assert untouched(outside)
    assert (project.root / path).is_symlink()


@pytest.mark.parametrize("place", [".flox/pkgs/pytorch-python313-cpu-avx2.nix", "templates"])
def test_a_link_to_itself_is_a_finding(project: Project, place: str) -> None:
    path = project.root / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.name)
    done = project.invoke("verify", "--json")
    assert done.returncode == 1
    found = " ".join(finding["found"] for finding in json.loads(done.stdout)["findings"])
    assert "symbolic link" in found
    assert "missing; restore" not in found
    for argv in (["all"], ["status"], ["recommend"], ["build", "cpu-avx2", "--dry-run"]):
        assert "Traceback" not in project.invoke(*argv).stderr, argv


def test_a_matrix_that_is_a_link_is_refused(project: Project, outside: Path) -> None:
    (project.root / "matrix.toml").unlink()
    (project.root / "matrix.toml").symlink_to(outside / "file")
    done = project.invoke("all", "--check")
    assert "matrix.toml: cannot be read: matrix.toml is a symbolic link" in error_line(done)
    assert SECRET not in done.stderr


def test_a_name_that_leads_out_of_the_root_is_a_bug_and_not_a_file(tmp_path: Path) -> None:
    for name in ("../x", "a/../../x", "/etc/passwd", ""):
        with pytest.raises(ValueError, match="not the name of a file below a folder"):
            files.read_below(tmp_path, name)


# --- no FIFO, and no endless file ---


@pytest.mark.parametrize("words", [("recommend", "--machine"), ("prefetch", "--from-log")])
def test_a_file_that_a_user_names_is_read_up_to_a_limit(
    project: Project, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "named"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    done = project.invoke(*words, str(path))
    assert done.returncode == 2
    assert f"{path}: cannot be read: larger than" in error_line(done)


def test_a_recipe_that_is_no_regular_file_is_refused(project: Project) -> None:
    recipe = project.recipe("cpu-avx2")
    recipe.unlink()
    os.mkfifo(recipe)
    done = project.invoke("phase4")
    assert done.returncode == 1
    assert "cannot be read: not a regular file; remove it by hand" in unfolded(done.stdout)


def test_a_named_file_may_be_standard_input(project: Project) -> None:
    def given(text: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "invoke", *words]
        return subprocess.run(
            argv, cwd=project.root, input=text, capture_output=True, text=True, check=False
        )

    here = project.invoke("recommend", "--describe").stdout
    (project.root / "here.json").write_text(here)
    named = project.invoke("recommend", "--json", "--machine", "here.json").stdout
    for name in ("-", "/dev/stdin"):
        assert given(here, "recommend", "--json", "--machine", name).stdout == named
    done = given("[]\n", "prefetch", "--from-log", "-")
    assert "/dev/stdin: no hash mismatch in it" in unfolded(done.stdout + done.stderr)


# --- Git ---


def test_a_folder_that_only_looks_like_a_repository_is_none(legacy: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "."], cwd=legacy, check=True)
    assert git.top(legacy) is None
    assert not Tree(legacy).is_modified(".flox/pkgs/x.nix")


def test_reading_changes_nothing_in_the_git_folder(legacy: Path) -> None:
    Project(legacy).commit()
    for path in legacy.rglob("*.nix"):
        path.touch()  # Git would refresh its index
    index = (legacy / ".git/index").read_bytes()
    assert not Tree(legacy).is_modified(".flox/pkgs")
    assert (legacy / ".git/index").read_bytes() == index
