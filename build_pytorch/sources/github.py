"""What GitHub knows of tags, releases and commits, with its limits and failures explained."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from build_pytorch.base.errors import ToolError

API: Final = "https://api.github.com"
API_VARIABLE: Final = "BUILD_PYTORCH_GITHUB_API"
"""Environment variable with another base URL: a GitHub of one's own, or a server in a test."""

TOKEN_VARIABLES: Final = ("GITHUB_TOKEN", "GH_TOKEN")

_CONNECT_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 30
_RETRIES: Final = 3


class GitHub:
    """GitHub's REST API (version 2022-11-28), read only."""

    def __init__(self, *, seconds: float = _ANSWER_SECONDS, backoff: float = 0.5) -> None:
        self.base = os.environ.get(API_VARIABLE, API).rstrip("/")
        self.seconds = seconds
        self.session = requests.Session()
        retries = Retry(
            total=_RETRIES,
            backoff_factor=backoff,
            status_forcelist=(500, 502, 503, 504),
            read=0,  # one that hangs once hangs again, and somebody waits
            raise_on_status=False,
        )
        self.session.mount(self.base, HTTPAdapter(max_retries=retries))
        self.session.headers["Accept"] = "application/vnd.github+json"
        self.session.headers["X-GitHub-Api-Version"] = "2022-11-28"
        token = next((t for name in TOKEN_VARIABLES if (t := os.environ.get(name))), None)
        if token:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def has_tag(self, owner: str, repo: str, tag: str) -> bool:
        """Whether a repository has a tag. Raises ToolError where GitHub does not say."""
        answer = self._get(f"/repos/{owner}/{repo}/git/ref/tags/{tag}", lambda a: a["ref"])
        return bool(answer == f"refs/tags/{tag}")

    def has_commit(self, owner: str, repo: str, rev: str) -> bool:
        """Whether a repository has a commit. Raises ToolError where GitHub does not say."""
        answer = self._get(f"/repos/{owner}/{repo}/commits/{rev}", lambda a: a["sha"])
        return bool(answer == rev)

    def head(self, owner: str, repo: str, branch: str) -> tuple[str, str]:
        """The commit at the end of a branch and its date. Raises ToolError."""
        path = f"/repos/{owner}/{repo}/commits/{branch}"
        found = self._get(path, lambda a: (a["sha"], a["commit"]["committer"]["date"]))
        if found is None:
            raise ToolError(f"{owner}/{repo} has no branch {branch}")
        sha, date = found
        return str(sha), str(date)[:10]

    def releases(self, owner: str, repo: str) -> list[tuple[str, bool]]:
        """The tags of the latest releases, newest first as GitHub lists them, with `prerelease`."""
        path = f"/repos/{owner}/{repo}/releases?per_page=50"
        found = self._get(path, lambda a: [(r["tag_name"], r["prerelease"]) for r in a])
        if found is None:
            raise ToolError(f"GitHub has no repository {owner}/{repo}")
        return list(found)

    def _get(self, path: str, pick: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON
        """What `pick` takes out of the answer, or None where GitHub says 404."""
        url = self.base + path
        try:
            answer = self.session.get(url, timeout=(_CONNECT_SECONDS, self.seconds))
        except requests.Timeout:
            raise ToolError(f"{self.base} gave no answer in {self.seconds:.0f} s") from None
        except requests.RequestException as error:
            if isinstance(error, requests.ConnectionError) and "Read timed out" in str(error):
                raise ToolError(f"{self.base} gave no answer in {self.seconds:.0f} s") from None
            raise ToolError(f"{self.base} cannot be reached; is there a network?") from None
        if answer.status_code == requests.codes.not_found:
            return None
        if _is_limited(answer):
            raise ToolError(_limit(answer, has_token="Authorization" in self.session.headers))
        if not answer.ok:
            raise ToolError(f"{self.base} answered {answer.status_code} {answer.reason}: {path}")
        try:
            return pick(answer.json())
        except (ValueError, KeyError, TypeError):
            raise ToolError(
                f"{self.base} answered something else than GitHub does: {path}"
            ) from None


def _is_limited(answer: requests.Response) -> bool:
    limited = answer.status_code in {requests.codes.forbidden, requests.codes.too_many_requests}
    headers = answer.headers
    return limited and (headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in headers)


def _limit(answer: requests.Response, *, has_token: bool) -> str:
    """What GitHub's limit is and when it ends (GitHub Docs, "Rate limits for the REST API")."""
    limit = answer.headers.get("X-RateLimit-Limit", "its limit of")
    reset = answer.headers.get("X-RateLimit-Reset", "")
    until = ""
    if reset.isdigit():
        time = dt.datetime.fromtimestamp(int(reset), tz=dt.UTC)
        until = f" until {time:%H:%M} UTC"
    hint = "" if has_token else f"; with a token in {TOKEN_VARIABLES[0]} it takes 5000 an hour"
    return f"GitHub takes no more than {limit} requests an hour; that is used up{until}{hint}"
