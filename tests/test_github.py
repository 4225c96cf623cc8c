"""GitHub, asked over real HTTP: its answers, what is outdated, and the commits of nightlies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import PROJECT, WHOLE, Project
from github_api import (
    NEW_PIN,
    NIGHTLY,
    RELEASES,
    TRITON,
    VERSION,
    Answer,
    Api,
    commit,
    commits,
    content,
    ok,
)

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import matrix_reader
from build_pytorch.sources import github

PIN = "6a030d535719c5190187c4cec156f335e95e3211"
OTHER_REV = "4123456789abcdef0123456789abcdef01234567"
TORCH = matrix_reader.parse(WHOLE).releases["nightly"].torch
PYTORCH = "pytorch/pytorch"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    api = Api()
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB_API", api.base)
    for name in ("GITHUB_TOKEN", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield api
    api.server.shutdown()
    api.server.server_close()


def test_what_is_not_there_is_none(api: Api) -> None:
    assert github.newest_version("pytorch/none") == "0"
    api.answers[commits(PYTORCH, "main")] = (422, {}, b'{"message": "No commit found for SHA"}')
    assert github.last_commit(PYTORCH, "main") is None
    with pytest.raises(ToolError, match="pytorch/pytorch has no branch main"):
        github.head(PYTORCH, "main")


LIMIT = "403: .*; GitHub accepts 60 requests an hour, and 5000 with a token in GITHUB_TOKEN"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((0, {}, b""), "gave no whole answer; this command needs a network connection; check it"),
        ((503, {}, b""), "answered 503: /repos/pytorch/pytorch/rel"),
        ((403, {"X-RateLimit-Remaining": "0"}, b"{}"), LIMIT),
        ((429, {"Retry-After": "999999"}, b""), "answered 429: .*; GitHub accepts 60 requests"),
        ((200, {"Content-Length": "99"}, b"{}"), "gave no whole answer; this command needs a net"),
        *(
            ((200, {}, body), "gave an unexpected answer: /repos")
            for body in (b"<html>", b"[1]", b"{}", rb'[{"tag_name": "\ud800"}]', b" " * (17 << 20))
        ),
    ],
)
def test_an_answer_that_is_none_is_one_line(api: Api, answer: Answer, says: str) -> None:
    api.reason = "I'm \x1b]0;title\x07 \x9b31m"
    api.answers[RELEASES] = answer
    with pytest.raises(ToolError, match=says) as caught:
        github.newest_version(PYTORCH)
    assert str(caught.value).isprintable()
    assert "title" not in str(caught.value)


@pytest.mark.parametrize("kind", ["a hang", "small parts", "no server"])
def test_no_answer_ends_soon(api: Api, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    is_over = threading.Event()
    api.trickle = kind == "small parts"
    if kind == "a hang":
        api.answers[RELEASES] = lambda: (is_over.wait(600), ok([]))[1]
    if kind == "no server":
        monkeypatch.setenv("BUILD_PYTORCH_GITHUB_API", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(ToolError, match="gave no whole answer; this command needs a network"):
        github.ask(RELEASES, list[object], seconds=0.3)
    is_over.set()
    assert time.monotonic() - start < 30


def test_the_token_is_sent_and_never_shown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
    api.answers[RELEASES] = (403, {}, b"")
    with pytest.raises(ToolError, match="answered 403") as caught:
        github.newest_version(PYTORCH)
    assert api.requests[0][1]["Authorization"] == "Bearer secret-token"
    assert "secret-token" not in str(caught.value)


# --- nightlies ---


def test_the_newest_commit_a_revision_or_that_of_a_day_is_a_nightly(api: Api) -> None:
    wanted = github.NightlyCommit(rev=NIGHTLY, version="2.12.0.dev20260630", triton_rev=NEW_PIN)
    assert github.nightly_commit(TORCH, "") == wanted
    api.answers[commits(PYTORCH, NIGHTLY)] = commit(NIGHTLY, "2026-06-30")
    assert github.nightly_commit(TORCH, NIGHTLY) == wanted
    for branch in ("main", "nightly"):  # one after the other is asked
        api.answers[commits(PYTORCH, branch, "2025-12-22")] = commit(NIGHTLY, "2025-12-22")
        assert github.nightly_commit(TORCH, "20251222").version == "2.12.0.dev20251222"


@pytest.mark.parametrize(
    "word", ["main", "2025122", "20250229", OTHER_REV[:12], "v2.11.0", "2025-12-22"]
)
def test_any_other_word_names_no_nightly(word: str) -> None:
    with pytest.raises(BuildPytorchError, match="allowed: a day such as 20251222, 40 hex dig"):
        github.nightly_commit(TORCH, word)


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        (VERSION, (404, {}, b""), "no version.txt of the expected form"),
        (VERSION, content("x\x1b[2J"), "no version.txt of the expected form"),
        (TRITON, content("main"), "no .*triton.txt of the expected form"),
        (TRITON, ok({"content": "\xff"}), "no .*triton.txt of the expected form"),
        (TRITON, ok({"content": 3}), "gave an unexpected answer"),
        (commits(PYTORCH, "nightly"), ok([]), "has no commit at all in nightly or main"),
        (commits(PYTORCH, "nightly"), commit("main", "2026-06-30"), "gave an unexpected answer"),
        (commits(PYTORCH, "nightly"), commit(NIGHTLY, "yesterday"), "gave an unexpected answer"),
    ],
)
def test_a_commit_that_github_does_not_describe_is_one_line(
    api: Api, path: str, answer: Answer, says: str
) -> None:
    api.answers[path] = answer
    with pytest.raises(ToolError, match=says):
        github.nightly_commit(TORCH, "")


# --- outdated ---


def test_outdated_lists_what_is_newer(api: Api) -> None:
    project = Project(PROJECT)
    done = project.invoke("outdated", "--check")
    assert done.returncode == 1
    for line in (
        "cuda13_0  torch 2.10.0: 2.11.0 is newer",
        f"cuda13_0  nixpkgs {PIN}: {NEW_PIN} (2026-11-01) is newer",
        f"nightly  nightly {TORCH.rev}: {NIGHTLY} (2026-06-30) is newer",
    ):
        assert line in done.stdout.splitlines()
    done = project.invoke("outdated", "--json")
    assert done.returncode == 0
    newer = [
        row["name"]
        for row in json.loads(done.stdout)["versions"]
        if row["release"] == "cuda13_0" and row["newest"] != row["ours"]
    ]
    assert newer == ["torch", "nixpkgs"]
    assert api.requests


def test_outdated_lists_what_is_the_newest_and_rules_that_have_ended(
    api: Api, project: Project
) -> None:
    api.answers[RELEASES] = ok([{"tag_name": "v2.9.1", "prerelease": False}])
    api.answers[commits("NixOS/nixpkgs", "nixos-unstable")] = commit(PIN, "2026-11-01")
    done = project.invoke("outdated", "--check")
    assert done.returncode == 0
    assert "cuda13_0  torch 2.10.0: is the newest" in done.stdout
    assert f"cuda13_0  nixpkgs {PIN}: is the newest" in done.stdout
    rule = '[[rule]]\nid = "cccl-headers"\nuntil = { cuda = ">=13.0" }\n'
    matrix = project.root / "matrix.toml"
    matrix.write_text(f"{matrix.read_text()}\n{rule}")
    done = project.invoke("outdated", "--check")
    assert done.returncode == 1
    assert "rule cccl-headers: its `until` holds for all its variants; delete it" in done.stdout
