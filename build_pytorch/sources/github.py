"""GitHub: its tags, releases and commits, what is newer than the matrix, and its failures."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import requests
from msgspec import Struct, structs
from packaging.version import Version

from build_pytorch.base import foreign_json
from build_pytorch.base.errors import ToolError
from build_pytorch.base.versions import is_revision
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import version_for

API: Final = "https://api.github.com"
API_VARIABLE: Final = "BUILD_PYTORCH_GITHUB_API"
"""Environment variable with another base URL: GitHub Enterprise, or a server in a test."""

TOKEN_VARIABLES: Final = ("GITHUB_TOKEN", "GH_TOKEN")

NIXPKGS: Final = ("NixOS", "nixpkgs")
FLOX_NIXPKGS: Final = ("flox", "nixpkgs")
FLOX_BRANCHES: Final = ("unstable", "stable", "lts")
"""Branches of Flox's nixpkgs at whose revisions Flox builds packages with CUDA for its cache."""
PYTORCH: Final = ("pytorch", "pytorch")
BRANCH: Final = "nixos-unstable"
NIGHTLY_BRANCH: Final = "nightly"
"""PyTorch's branch with one commit for each day."""

_TRANSIENT: Final = (500, 502, 503, 504)
_PART_BYTES: Final = 64
"""Bytes of an answer between two looks at the clock: a read waits until they have arrived."""
_CONNECT_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 30


class GitHub:
    """GitHub's REST API (version 2022-11-28), read only. All methods raise ToolError."""

    def __init__(self, *, seconds: float = _ANSWER_SECONDS, backoff: float = 0.5) -> None:
        self.base = os.environ.get(API_VARIABLE, API).rstrip("/")
        self.seconds = seconds
        self.backoff = backoff
        self.session = requests.Session()
        self.session.headers["Accept"] = "application/vnd.github+json"
        self.session.headers["X-GitHub-Api-Version"] = "2022-11-28"
        token = next((t for name in TOKEN_VARIABLES if (t := os.environ.get(name))), None)
        if token:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def has_tag(self, owner: str, repo: str, tag: str) -> bool:
        """Return whether a repository has a tag."""
        path = f"/repos/{owner}/{repo}/git/ref/tags/{tag}"
        return bool(self._get(path, lambda a: a["ref"]) == f"refs/tags/{tag}")

    def head(self, owner: str, repo: str, branch: str) -> tuple[str, str]:
        """Return the last commit of a branch and its date."""
        found = self.commit(owner, repo, branch)
        if found is None:
            raise ToolError(f"{owner}/{repo} has no branch {branch}")
        return found

    def commit(self, owner: str, repo: str, name: str) -> tuple[str, str] | None:
        """Return the commit of a branch or a revision and its date, or None without one."""
        return self._commit(f"/repos/{owner}/{repo}/commits/{name}", lambda answer: answer)

    def last_commit(
        self, owner: str, repo: str, branch: str, day: dt.date
    ) -> tuple[str, str] | None:
        """Return the last commit of a branch on a day (UTC) and its date, or None without one."""
        times = f"since={day}T00:00:00Z&until={day}T23:59:59Z"
        path = f"/repos/{owner}/{repo}/commits?sha={branch}&{times}&per_page=1"
        return self._commit(path, lambda answer: answer[0] if answer else None)

    def _commit(self, path: str, pick: Callable[[Any], Any]) -> tuple[str, str] | None:
        def fields(answer: Any) -> tuple[str, str] | None:  # noqa: ANN401 - JSON
            one = pick(answer)
            return one and (one["sha"], one["commit"]["committer"]["date"][:10])

        found = self._get(path, fields)
        if found is None:
            return None
        rev, date = found
        if not (is_revision(rev) and re.fullmatch(r"[0-9]{4}-[0-9-]{5}", date)):
            raise ToolError(f"{self.base} gave an unexpected answer: {path}")
        return rev, date

    def text(self, owner: str, repo: str, path: str, rev: str) -> str:
        """Return the text of a file at a revision."""
        address = f"/repos/{owner}/{repo}/contents/{path}?ref={rev}"
        found = self._get(address, lambda a: base64.b64decode(a["content"]).decode())
        if found is None:
            raise ToolError(f"{owner}/{repo} {rev} has no file {path}")
        return str(found)

    def releases(self, owner: str, repo: str) -> dict[str, bool]:
        """Return the tags of the latest releases, and whether GitHub marks each a pre-release."""
        path = f"/repos/{owner}/{repo}/releases?per_page=50"
        found = self._get(path, lambda a: {str(r["tag_name"]): bool(r["prerelease"]) for r in a})
        if found is None:
            raise ToolError(f"GitHub has no repository {owner}/{repo}")
        return dict(found)

    def _get(self, path: str, pick: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON
        """Return what `pick` takes out of the answer, or None if GitHub answers 404."""
        try:
            for pause in (self.backoff, 2 * self.backoff, 4 * self.backoff, 0):
                answer, data = self._asked(path)
                if answer.status_code not in _TRANSIENT:
                    break
                time.sleep(pause)
        except (OSError, ValueError) as error:  # OSError: also those of requests
            is_late = isinstance(error, (TimeoutError, requests.Timeout))
            if is_late or "Read timed out" in str(error):
                raise ToolError(f"{self.base} gave no answer in {self.seconds:.0f} s") from None
            why = "cannot be reached; this command needs a network connection"
            if "IncompleteRead" in str(error):
                why = "sent only a part of its answer; try again"
            raise ToolError(f"{self.base} {why}") from None
        if answer.status_code == requests.codes.not_found:
            return None
        headers = answer.headers
        if answer.status_code in {requests.codes.forbidden, requests.codes.too_many_requests} and (
            headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in headers
        ):
            raise ToolError(_limit(answer, has_token="Authorization" in self.session.headers))
        if not answer.ok:
            raise ToolError(f"{self.base} answered {_status(answer)}: {path}")
        try:
            return pick(foreign_json.decode(data))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ToolError(f"{self.base} gave an unexpected answer: {path}") from None

    def _asked(self, path: str) -> tuple[requests.Response, bytes]:
        """Return an answer and its body. The time limit is for all of it, not for each read."""
        end = time.monotonic() + self.seconds
        timeout = (_CONNECT_SECONDS, self.seconds)
        data = bytearray()
        with self.session.get(self.base + path, timeout=timeout, stream=True) as answer:
            for part in answer.iter_content(_PART_BYTES):
                data += part
                if time.monotonic() > end:
                    raise TimeoutError
                if len(data) > foreign_json.MAX_BYTES:
                    break
        return answer, bytes(data)


def _status(answer: requests.Response) -> str:
    """Return the status with the phrase of the standard; a server may send any other text."""
    phrases = {status.value: f" {status.phrase}" for status in HTTPStatus}
    return f"{answer.status_code}{phrases.get(answer.status_code, '')}"


def newest_version(releases: Mapping[str, bool]) -> str | None:
    """Return the newest final version with a tag such as v2.11.0 among `GitHub.releases`."""
    tags = [tag for tag, is_pre in releases.items() if not is_pre]
    versions = [tag[1:] for tag in tags if re.fullmatch(r"v[0-9]{1,4}(\.[0-9]{1,4}){1,2}", tag)]
    return max(versions, key=Version, default=None)


class UpstreamVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest version of a source of a release, beside ours; `date` is that of a commit."""

    release: str
    name: str
    ours: str
    newest: str
    newer: bool
    date: str = ""
    days: int | None = None  #: age of our nightly


def upstream_versions(
    matrix: Matrix, names: Iterable[str], today: dt.date
) -> Iterator[UpstreamVersion]:
    """Compare releases with GitHub; then the branches of Flox. Raises ToolError without an answer.

    `today` decides how old nightlies are. The newest version of a companion is the one that belongs
    to the newest PyTorch, if it is known.
    """
    github = GitHub()
    for name in names:
        release = matrix.releases[name]
        row, torch = functools.partial(UpstreamVersion, release=name), release.torch
        owner, repo = torch.owner or PYTORCH[0], torch.repo or PYTORCH[1]
        newest = newest_version(github.releases(owner, repo)) or "?"
        is_newer = newest != "?" and Version(newest) > Version(torch.version)
        yield row(name="torch", ours=torch.version, newest=newest, newer=is_newer)
        if torch.is_nightly:
            rev, date = github.head(owner, repo, NIGHTLY_BRANCH)
            days = (today - dt.date.fromisoformat(torch.nightly_day)).days
            is_newer = rev != torch.rev
            found = row(name=NIGHTLY_BRANCH, ours=torch.rev, newest=rev, newer=is_newer)
            yield structs.replace(found, date=date, days=days)
        for (*_, key), source in release.sources.items():
            if source is not torch and (wanted := version_for(newest, key)):
                is_newer = Version(wanted) > Version(source.version)
                yield row(name=key, ours=source.version, newest=wanted, newer=is_newer)
        ours = matrix.pins[release.nixpkgs.pin].rev
        rev, date = github.head(*NIXPKGS, BRANCH)
        yield row(name="nixpkgs", ours=ours, newest=rev, newer=rev != ours, date=date)
    for branch in FLOX_BRANCHES:
        if newest_commit := github.commit(*FLOX_NIXPKGS, branch):
            row = functools.partial(UpstreamVersion, release="/".join(FLOX_NIXPKGS), newer=False)
            rev, date = newest_commit
            yield row(name=branch, ours="", newest=rev, date=date)


def _limit(answer: requests.Response, *, has_token: bool) -> str:
    """Return the limit and when it ends (GitHub Docs, "Rate limits for the REST API")."""
    limit, reset = (answer.headers.get(f"X-RateLimit-{name}", "") for name in ("Limit", "Reset"))
    limit = limit if re.fullmatch("[0-9]{1,9}", limit) else "its limit of"
    until = ""
    if re.fullmatch("[0-9]{1,10}", reset):
        until = f" until {dt.datetime.fromtimestamp(int(reset), tz=dt.UTC):%H:%M} UTC"
    hint = "" if has_token else f"; with a token in {TOKEN_VARIABLES[0]} it accepts 5000 an hour"
    return f"GitHub accepts {limit} requests an hour; that is used up{until}{hint}"
