"""GitHub: what is newer than the matrix, and the commits of nightlies. Commits come by Git."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from packaging.version import Version

from build_pytorch.base import foreign_json, git
from build_pytorch.base.console import visible, waiting
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import GITHUB, TorchSource
from build_pytorch.sources.fetchers import mirrored

API: Final = "https://api.github.com"
API_VARIABLE: Final = "BUILD_PYTORCH_GITHUB_API"
"""Environment variable with another base URL: GitHub Enterprise, or a server in a test."""
FLOX_BRANCHES: Final = ("unstable", "stable", "lts")
"""Branches of Flox's nixpkgs at whose revisions Flox builds packages with CUDA for its cache."""
_NIGHTLY_BRANCH: Final = "refs/heads/nightly"
"""The branch of PyTorch with a commit for each day."""
_VERSION_FILE: Final = "version.txt"
_TRITON_FILE: Final = ".ci/docker/ci_commit_pins/triton.txt"
_SECONDS: Final = 300.0
"""Maximum for one answer."""
_WAIT: Final = 10.0
"""Maximum for a connection to the API, and for each wait for more of its answer."""
_FIX: Final = "; check the network, and that it exists"


class Commit(Struct, frozen=True):
    """A commit with the files that were asked for, as text by path."""

    rev: str
    date: str  #: the day (UTC) on which it was committed
    texts: dict[str, str]


def fetch_commit(
    repository: str,
    name: str,
    paths: Sequence[str] = (),
    day: dt.date | None = None,
    seconds: float = _SECONDS,
) -> Commit:
    """Fetch the last commit of a branch or a revision, perhaps of a day (UTC), without its files.

    Only those of `paths` are fetched. Raises ToolError, also if there is no such commit or file.
    """
    url = mirrored(f"{GITHUB}/{repository}")
    with tempfile.TemporaryDirectory() as folder, waiting(f"asking {url}"):

        def ask(*argv: str) -> str:
            return git.ask(url, *argv, folder=Path(folder), seconds=seconds, fix=_FIX)

        ask("init", "--quiet")
        ask("remote", "add", "origin", url)
        reach = [f"--shallow-since={day}T00:00:00Z"] if day else ["--depth=1"]
        ask("fetch", "--quiet", "--no-tags", "--filter=tree:0", *reach, "origin", name)
        until = [f"--until={day}T23:59:59Z"] if day else []
        form = ("--format=%H %cd", "--date=format-local:%Y-%m-%d")
        rev, _, date = ask("log", "-1", *form, *until, "FETCH_HEAD").strip().partition(" ")
        if not rev:
            raise ToolError(f"{url}: no commit of {day} in {name}")
        return Commit(rev, date, {path: ask("show", f"{rev}:{path}") for path in paths})


def head(repository: str, branch: str) -> Commit:
    """Return the last commit of a branch. Raises ToolError."""
    return fetch_commit(repository, f"refs/heads/{branch}")


def newest_version(repository: str) -> str:
    """Return the version of the latest final release. Raises ToolError.

    GitHub's API has it in one answer; Git lists every tag, of which PyTorch has many.
    """
    import requests

    url = f"{os.environ.get(API_VARIABLE, API)}/repos/{repository}/releases/latest"
    try:
        with requests.get(url, timeout=_WAIT, stream=True) as answer:
            answer.raise_for_status()
            document = foreign_json.decode(next(answer.iter_content(1 << 20), b""))
        return str(Version(document["tag_name"]))
    except (OSError, ValueError, LookupError, TypeError) as error:  # OSError: also of requests
        raise ToolError(f"{url}: {visible(str(error))[:200]}{_FIX}") from None


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
            nightly = fetch_commit(f"{torch.owner}/{torch.repo}", _NIGHTLY_BRANCH)
            yield UpstreamVersion(name, "nightly", torch.rev, nightly.rev, nightly.date)
        else:
            newest = max(torch.version, pytorch, key=Version)
            yield UpstreamVersion(name, "torch", torch.version, newest)
        yield UpstreamVersion(name, "nixpkgs", pin.rev, nixpkgs.rev, nixpkgs.date)


class NightlyCommit(Struct, frozen=True, kw_only=True):
    """A commit with what its source says of itself."""

    rev: str
    version: str  #: X.Y.0.devYYYYMMDD
    triton_rev: str


def nightly_commit(torch: TorchSource, word: str = "") -> NightlyCommit:
    """Return the commit of a day such as 20251222 or of a revision; without a word, the newest.

    Raises BuildPytorchError for another word, and ToolError if GitHub has no such commit or its
    source does not say its version or its Triton.
    """
    repository, files = f"{torch.owner}/{torch.repo}", (_VERSION_FILE, _TRITON_FILE)
    if re.fullmatch("[0-9a-f]{40}", word):
        commit = fetch_commit(repository, word, files)
    else:
        commit = fetch_commit(repository, _NIGHTLY_BRANCH, files, _day(word) if word else None)
    version = _found(commit, _VERSION_FILE, r"([0-9]{1,4}\.[0-9]{1,4})\..*")
    return NightlyCommit(
        rev=commit.rev,
        version=f"{version}.0.dev{commit.date.replace('-', '')}",
        triton_rev=_found(commit, _TRITON_FILE, "([0-9a-f]{40})"),
    )


def _day(word: str) -> dt.date:
    """Return a day such as 20251222. Raises BuildPytorchError for another word."""
    with contextlib.suppress(ValueError):
        if re.fullmatch("20[0-9]{6}", word):
            return dt.date.fromisoformat(word)
    allowed = "a day such as 20251222, 40 hex digits of a commit, or nothing for the newest"
    raise BuildPytorchError(f'--nightly: found "{word[:60]}"; allowed: {allowed}')


def _found(commit: Commit, path: str, pattern: str) -> str:
    """Return the first group of a pattern that a file of a commit fits. Raises ToolError."""
    if found := re.fullmatch(pattern, commit.texts[path].strip()):
        return found[1]
    raise ToolError(f"commit {commit.rev}: {path} has not the expected form")
