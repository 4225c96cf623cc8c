"""GitHub, for which a folder stands: what is outdated, and the commits of nightlies."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from conftest import ONE, WHOLE, Project
from one_release import written_out

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.sources import github as asked

NEW_PIN: Final = "1123456789abcdef0123456789abcdef01234567"
OTHER_REV: Final = "4123456789abcdef0123456789abcdef01234567"
PIN: Final = "6a030d535719c5190187c4cec156f335e95e3211"
TORCH: Final = matrix_reader.parse(WHOLE).releases["nightly"].torch
TRITON: Final = ".ci/docker/ci_commit_pins/triton.txt"
OF_NIGHTLY: Final = {"version.txt": "2.12.0a0\n", TRITON: f"{NEW_PIN}\n"}


def git(folder: Path, *argv: str, day: str = "2026-06-30") -> str:
    person = {"NAME": "t", "EMAIL": "t@example.org", "DATE": f"{day}T23:30:00-0100"}
    env = {f"GIT_{who}_{key}": it for who in ("AUTHOR", "COMMITTER") for key, it in person.items()}
    argv = ("git", "-C", str(folder), *argv)
    done = subprocess.run(argv, env={**os.environ, **env}, check=True, capture_output=True)
    return done.stdout.decode().strip()


def commit(folder: Path, branch: str, day: str, files: dict[str, str]) -> str:
    """Add a commit of a day to a branch of a repository. Returns its revision."""
    if not folder.exists():
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        for name in ("allowFilter", "allowAnySHA1InWant"):  # as GitHub
            git(folder, "config", f"uploadpack.{name}", "true")
    git(folder, "checkout", "-q", "-B", branch)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        git(folder, "add", name)
    git(folder, "commit", "-q", "--allow-empty", "-m", day, day=day)
    return git(folder, "rev-parse", "HEAD")


class Api(SimpleHTTPRequestHandler):
    """GitHub's API: answers are files."""

    def log_message(self, *_: object) -> None:
        pass


def stand_in(folder: Path) -> dict[str, str]:
    """Write the repositories that commands ask for; days are a day later in UTC.

    Returns the environment in which commands ask for them.
    """
    commit(folder / "NixOS/nixpkgs", "nixos-unstable", "2026-10-31", {})
    pytorch = folder / "pytorch/pytorch"
    commit(pytorch, "nightly", "2025-12-21", OF_NIGHTLY | {"version.txt": "2.11.0a0"})
    commit(pytorch, "nightly", "2026-06-29", OF_NIGHTLY)
    latest = folder / "repos/pytorch/pytorch/releases/latest"
    latest.parent.mkdir(parents=True)
    latest.write_text('{"tag_name": "v2.11.0"}')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Api, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api = f"http://127.0.0.1:{server.server_port}"
    return {"BUILD_PYTORCH_GITHUB": folder.as_uri(), "BUILD_PYTORCH_GITHUB_API": api}


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in stand_in(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.usefixtures("github")
def test_the_newest_commit_a_revision_or_that_of_a_day_is_a_nightly() -> None:
    newest, of_day = asked.nightly_commit(TORCH), asked.nightly_commit(TORCH, "20251222")
    assert (newest.version, newest.triton_rev) == ("2.12.0.dev20260630", NEW_PIN)
    assert of_day.version == "2.11.0.dev20251222"
    for found in (newest, of_day):
        assert asked.nightly_commit(TORCH, found.rev) == found


@pytest.mark.parametrize(
    "word", ["main", "2025122", "20250229", OTHER_REV[:12], "v2.11.0", "2025-12-22"]
)
def test_any_other_word_names_no_nightly(word: str) -> None:
    with pytest.raises(BuildPytorchError, match="allowed: a day such as 20251222, 40 hex dig"):
        asked.nightly_commit(TORCH, word)


@pytest.mark.parametrize(
    ("files", "word", "says"),
    [
        ({"version.txt": "x\x1b[2J"}, "", "version.txt has not the expected form"),
        ({TRITON: "main"}, "", "triton.txt has not the expected form"),
        ({}, "", "path 'version.txt' does not exist in '"),
        (OF_NIGHTLY, "20260629", "no commit of 2026-06-29 in refs/heads/nightly"),
        (OF_NIGHTLY, "20260701", "file:///.*/pytorch/pytorch: .*; check the network, and that it"),
        (OF_NIGHTLY, OTHER_REV, f"upload-pack: not our ref {OTHER_REV}; check the network"),
    ],
)
def test_a_commit_that_is_not_there_or_odd_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], word: str, says: str
) -> None:
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB", f"file://{tmp_path}")
    given = OF_NIGHTLY | files if files else {}
    commit(tmp_path / "pytorch/pytorch", "nightly", "2026-06-29", given)
    with pytest.raises(ToolError, match=says) as caught:
        asked.nightly_commit(TORCH, word)
    assert str(caught.value).isprintable()


def test_without_an_answer_a_command_ends_soon_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BUILD_PYTORCH_GITHUB", "BUILD_PYTORCH_GITHUB_API"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for ask in (asked.newest_version, partial(asked.head, branch="main")):
        with pytest.raises(ToolError, match=r"^http://127.0.0.1:9/.*x/y.*: .*; check the network"):
            ask("x/y")
    (tmp_path / "git").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(ToolError, match=r"not finished in 0.3 s; check the network"):
        asked.fetch_commit("x/y", "main", seconds=0.3)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "answer", ["", "<html>", "[]", "{}", '{"tag_name": "v\\u001b"}', " " * 2**25]
)
def test_an_answer_that_names_no_version_is_one_line(github: Path, answer: str) -> None:
    (github / "repos/pytorch/pytorch/releases/latest").write_text(answer)
    with pytest.raises(ToolError, match="/repos/pytorch/pytorch/releases/latest: ") as caught:
        asked.newest_version("pytorch/pytorch")
    assert str(caught.value).isprintable()


# --- outdated ---


def test_outdated_lists_what_is_newer(github: Path, whole: Project) -> None:
    newest, nightly = (
        git(github / name, "rev-parse", "HEAD") for name in ("NixOS/nixpkgs", "pytorch/pytorch")
    )
    done = whole.invoke("outdated", "--check")
    assert done.returncode == 1
    for line in (
        "cuda13_0  torch 2.10.0: 2.11.0 is newer",
        f"cuda13_0  nixpkgs {PIN}: {newest} (2026-11-01) is newer",
        f"nightly  nightly {TORCH.rev}: {nightly} (2026-06-30) is newer",
    ):
        assert line in done.stdout.splitlines()
    rows = json.loads(whole.succeeds("outdated", "--json"))["versions"]
    rows = [row for row in rows if row["release"] == "cuda13_0"]
    assert [row["name"] for row in rows if row["newest"] != row["ours"]] == ["torch", "nixpkgs"]


def test_outdated_lists_what_is_the_newest_and_rules_that_have_ended(
    github: Path, project: Project
) -> None:
    (github / "repos/pytorch/pytorch/releases/latest").write_text('{"tag_name": "v2.9.1"}')
    matrix = project.root / "matrix.toml"
    newest = git(github / "NixOS/nixpkgs", "rev-parse", "HEAD")
    matrix.write_text(written_out(ONE).replace(PIN, newest))
    said = project.succeeds("outdated", "--check")
    assert "cuda13_0  torch 2.10.0: is the newest" in said
    assert f"cuda13_0  nixpkgs {newest}: is the newest" in said
    matrix.write_text(
        matrix.read_text().replace('until.pin_has = ["cccl-headers"]', 'until.cuda = ">=13.0"')
    )
    done = project.invoke("outdated", "--check")
    assert done.returncode == 1
    assert "rule cccl-headers: its `until` holds for all its variants; delete it" in done.stdout
