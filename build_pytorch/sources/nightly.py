"""The commit of a nightly: what GitHub knows of the commit of a day, or of a revision."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from typing import Final

from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.versions import NEWEST, is_revision
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import only_release
from build_pytorch.matrix.source_tables import TorchSource
from build_pytorch.sources.github import NIGHTLY_BRANCH, GitHub

BRANCHES: Final = (NIGHTLY_BRANCH, "main")
"""Branches that are asked for a commit, in this order."""

_VERSION_FILE: Final = "version.txt"
_TRITON_FILE: Final = ".ci/docker/ci_commit_pins/triton.txt"


class NightlyCommit(Struct, frozen=True, kw_only=True):
    """A commit with what its source says of itself."""

    rev: str
    version: str  #: X.Y.0.devYYYYMMDD
    triton_rev: str


def chosen_release(matrix: Matrix, name: str) -> str:
    """Return the nightly with a name, or the only one. Raises BuildPytorchError."""
    nightlies = [key for key, it in matrix.releases.items() if it.torch.is_nightly]
    name = only_release(matrix, name, nightlies)
    if name not in nightlies:
        what = f"release {name} builds version {matrix.releases[name].torch.version}"
        raise BuildPytorchError(f"--nightly: {what}; nightlies: {', '.join(nightlies) or 'none'}")
    return name


def checked(word: str) -> str:
    """Return a day, a revision or NEWEST. Raises BuildPytorchError for anything else."""
    allowed = "a day such as 20251222, 40 hex digits of a commit, or nothing for the newest"
    if word == NEWEST or is_revision(word):
        return word
    with contextlib.suppress(ValueError):
        if re.fullmatch("20[0-9]{6}", word) and dt.date.fromisoformat(word):
            return word
    raise BuildPytorchError(f'--nightly: found "{word[:60]}"; allowed: {allowed}')


def known_commit(torch: TorchSource, word: str) -> NightlyCommit:
    """Return the commit of a day, of a revision or the newest one, as GitHub knows it.

    Raises ToolError if there is none, or if its source does not say its version or its Triton.
    """
    github, owner, repo = GitHub(), torch.owner, torch.repo
    found = None
    if len(word) == len("YYYYMMDD"):
        day = dt.date.fromisoformat(word)
        days = (github.last_commit(owner, repo, branch, day) for branch in BRANCHES)
        found = next((commit for commit in days if commit), None)
    else:
        names = BRANCHES if word == NEWEST else (word,)
        commits = (github.commit(owner, repo, name) for name in names)
        found = next((commit for commit in commits if commit), None)
    if found is None:
        what = "commit" if word == NEWEST else f"commit {word}"
        raise ToolError(f"{owner}/{repo} has no {what} in {' or '.join(BRANCHES)}")
    rev, date = found
    version = github.text(owner, repo, _VERSION_FILE, rev).strip()
    numbers = re.fullmatch(r"([0-9]{1,4}\.[0-9]{1,4})\.[0-9]{1,4}(a0)?", version)
    triton = github.text(owner, repo, _TRITON_FILE, rev).strip()
    for path, is_good in ((_VERSION_FILE, numbers), (_TRITON_FILE, is_revision(triton))):
        if not is_good:
            raise ToolError(f"{owner}/{repo} {rev}: {path} has another form than expected")
    base = numbers[1] if numbers else ""
    version = f"{base}.0.dev{date.replace('-', '')}"
    return NightlyCommit(rev=rev, version=version, triton_rev=triton)
