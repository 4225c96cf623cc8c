"""GitHub: what is newer than the matrix, and the commits of nightlies."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import os
import re
import time
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
import requests
import urllib3
from msgspec import Struct
from packaging.version import Version

from build_pytorch.base import foreign_json
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import TorchSource
from build_pytorch.matrix.versions import is_revision

API: Final = "https://api.github.com"
API_VARIABLE: Final = "BUILD_PYTORCH_GITHUB_API"
"""Environment variable with another base URL: GitHub Enterprise, or a server in a test."""

FLOX_BRANCHES: Final = ("unstable", "stable", "lts")
"""Branches of Flox's nixpkgs at whose revisions Flox builds packages with CUDA for its cache."""
_NIGHTLY_BRANCHES: Final = ("nightly", "main")
"""Branches that are asked for the commit of a day: the first one has a commit for each day."""
_TRITON_FILE: Final = ".ci/docker/ci_commit_pins/triton.txt"

_SECONDS: Final = 10.0
"""Maximum for a connection, for each wait for an answer, and for a whole answer."""
_LIMIT: Final = "GitHub accepts 60 requests an hour, and 5000 with a token in GITHUB_TOKEN"

_Answer = TypeVar("_Answer")


def ask(path: str, kind: type[_Answer], seconds: float = _SECONDS) -> _Answer | None:
    """Return what GitHub's REST API (2022-11-28) answers to a path; None if there is no such thing.

    Raises ToolError for any other answer, and for none in this time.
    """
    base = os.environ.get(API_VARIABLE, API).rstrip("/")
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if token := os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    data, end = b"", time.monotonic() + seconds
    try:
        with requests.get(base + path, headers=headers, timeout=seconds, stream=True) as answer:
            while len(data) <= foreign_json.MAX_BYTES:
                if time.monotonic() > end:
                    raise TimeoutError
                if not (part := answer.raw.read1(1 << 20, decode_content=True)):
                    break
                data += part
    except (OSError, ValueError, urllib3.exceptions.HTTPError):  # OSError: also those of requests
        what = "gave no whole answer; this command needs a network connection"
        raise ToolError(f"{base} {what}; check it and try again") from None
    if answer.status_code in {404, 422}:
        return None
    if not answer.ok:
        hint = f"; {_LIMIT}" if answer.status_code in {403, 429} else ""
        raise ToolError(f"{base} answered {answer.status_code}: {path}{hint}")
    try:
        return msgspec.convert(foreign_json.decode(data), kind)
    except ValueError:
        raise ToolError(f"{base} gave an unexpected answer: {path}") from None


class _Committer(Struct):
    date: dt.datetime


class _Details(Struct):
    committer: _Committer


class Commit(Struct):
    """A commit, as GitHub describes it."""

    sha: ft.Rev40
    commit: _Details

    @property
    def date(self) -> dt.date:
        """The day (UTC) on which it was committed."""
        return self.commit.committer.date.astimezone(dt.UTC).date()


class _Release(Struct):
    tag_name: str
    prerelease: bool


class _File(Struct):
    content: str


def last_commit(repository: str, name: str, day: dt.date | None = None) -> Commit | None:
    """Return the last commit of a branch or revision, perhaps of a day (UTC). Raises ToolError."""
    times = f"&since={day}T00:00:00Z&until={day}T23:59:59Z" if day else ""
    commits = ask(f"/repos/{repository}/commits?sha={name}&per_page=1{times}", list[Commit])
    return commits[0] if commits else None


def head(repository: str, branch: str) -> Commit:
    """Return the last commit of a branch. Raises ToolError, also without one."""
    if commit := last_commit(repository, branch):
        return commit
    raise ToolError(f"{repository} has no branch {branch}")


def newest_version(repository: str) -> str:
    """Return the newest final version of the latest releases; "0" without one. Raises ToolError."""
    releases = ask(f"/repos/{repository}/releases?per_page=50", list[_Release]) or []
    tags = [release.tag_name for release in releases if not release.prerelease]
    versions = [tag[1:] for tag in tags if re.fullmatch(r"v[0-9]{1,4}(\.[0-9]{1,4}){1,2}", tag)]
    return max(versions, key=Version, default="0")


class UpstreamVersion(Struct, frozen=True):
    """The newest version or revision of a source of a release, beside ours."""

    release: str
    name: str
    ours: str
    newest: str
    date: str = ""  #: day of the newest revision


def upstream_versions(matrix: Matrix) -> Iterator[UpstreamVersion]:
    """Compare the PyTorch and the nixpkgs of each release with GitHub. Raises ToolError."""
    nixpkgs = head("NixOS/nixpkgs", "nixos-unstable")
    pytorch = newest_version("pytorch/pytorch")
    for name, release in matrix.releases.items():
        torch, pin = release.torch, matrix.pins[release.nixpkgs.pin]
        if torch.is_nightly:
            nightly = head(f"{torch.owner}/{torch.repo}", _NIGHTLY_BRANCHES[0])
            yield UpstreamVersion(name, "nightly", torch.rev, nightly.sha, str(nightly.date))
        else:
            newest = max(torch.version, pytorch, key=Version)
            yield UpstreamVersion(name, "torch", torch.version, newest)
        yield UpstreamVersion(name, "nixpkgs", pin.rev, nixpkgs.sha, str(nixpkgs.date))


class NightlyCommit(Struct, frozen=True, kw_only=True):
    """A commit with what its source says of itself."""

    rev: str
    version: str  #: X.Y.0.devYYYYMMDD
    triton_rev: str


def nightly_commit(torch: TorchSource, word: str) -> NightlyCommit:
    """Return the commit of a day such as 20251222, of a revision, or for "" the newest one.

    Raises BuildPytorchError for another word, and ToolError if GitHub has no such commit or its
    source does not say its version or its Triton.
    """
    repository = f"{torch.owner}/{torch.repo}"
    names = (word,) if is_revision(word) else _NIGHTLY_BRANCHES
    day = None if not word or is_revision(word) else _day(word)
    commits = (last_commit(repository, name, day) for name in names)
    commit = next(filter(None, commits), None)
    if commit is None:
        branches = " or ".join(_NIGHTLY_BRANCHES)
        raise ToolError(f"{repository} has no commit {word or 'at all'} in {branches}")
    version = _text(repository, "version.txt", commit.sha, r"([0-9]{1,4}\.[0-9]{1,4})\..*")
    triton_rev = _text(repository, _TRITON_FILE, commit.sha, "([0-9a-f]{40})")
    version = f"{version}.0.dev{commit.date:%Y%m%d}"
    return NightlyCommit(rev=commit.sha, version=version, triton_rev=triton_rev)


def _day(word: str) -> dt.date:
    """Return a day such as 20251222. Raises BuildPytorchError for another word."""
    with contextlib.suppress(ValueError):
        if re.fullmatch("20[0-9]{6}", word):
            return dt.date.fromisoformat(word)
    allowed = "a day such as 20251222, 40 hex digits of a commit, or nothing for the newest"
    raise BuildPytorchError(f'--nightly: found "{word[:60]}"; allowed: {allowed}')


def _text(repository: str, path: str, rev: str, pattern: str) -> str:
    """Return the first group of a pattern that a file at a revision fits. Raises ToolError."""
    file = ask(f"/repos/{repository}/contents/{path}?ref={rev}", _File)
    with contextlib.suppress(ValueError):
        text = base64.b64decode(file.content).decode().strip() if file else ""
        if found := re.fullmatch(pattern, text):
            return found[1]
    raise ToolError(f"{repository} {rev}: no {path} of the expected form")
