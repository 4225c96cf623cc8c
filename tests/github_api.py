"""GitHub's API on this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

NEW_PIN: Final = "1123456789abcdef0123456789abcdef01234567"
NIGHTLY: Final = "3123456789abcdef0123456789abcdef01234567"
RELEASES: Final = "/repos/pytorch/pytorch/releases?per_page=50"
VERSION: Final = f"/repos/pytorch/pytorch/contents/version.txt?ref={NIGHTLY}"
TRITON: Final = (
    f"/repos/pytorch/pytorch/contents/.ci/docker/ci_commit_pins/triton.txt?ref={NIGHTLY}"
)

Answer = tuple[int, dict[str, str], bytes]


def ok(document: Any) -> Answer:
    return 200, {}, json.dumps(document).encode()


def commit(rev: str, day: str) -> Answer:
    return ok([{"sha": rev, "commit": {"committer": {"date": f"{day}T08:00:00Z"}}}])


def commits(repository: str, name: str, day: str = "") -> str:
    """The path that asks for the last commit of a branch or a revision, perhaps of a day."""
    times = f"&since={day}T00:00:00Z&until={day}T23:59:59Z" if day else ""
    return f"/repos/{repository}/commits?sha={name}&per_page=1{times}"


def content(text: str) -> Answer:
    return ok({"content": base64.encodebytes(text.encode()).decode()})


class Api:
    """GitHub's API.

    An answer of status 0 drops the connection; `trickle` sends each answer byte by byte.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.reason: str | None = None
        self.trickle = False
        self.answers: dict[str, Answer | Callable[[], Answer]] = {
            RELEASES: ok(
                [
                    {"tag_name": "v2.12.0rc1", "prerelease": True},
                    {"tag_name": "v2.11.0", "prerelease": False},
                    {"tag_name": "v2.9.1", "prerelease": False},
                    {"tag_name": "ciflow/odd", "prerelease": False},
                ]
            ),
            commits("NixOS/nixpkgs", "nixos-unstable"): commit(NEW_PIN, "2026-11-01"),
            commits("pytorch/pytorch", "nightly"): commit(NIGHTLY, "2026-06-30"),
            VERSION: content("2.12.0a0\n"),
            TRITON: content(f"{NEW_PIN}\n"),
        }
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):  # of a client that did not wait
                    self.answer()

            def answer(self) -> None:
                api.requests.append((self.path, dict(self.headers)))
                found = api.answers.get(self.path, (404, {}, b'{"message": "Not Found"}'))
                code, headers, body = found() if callable(found) else found
                if not code:
                    self.close_connection = True
                    return
                self.send_response(code, api.reason)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if api.trickle:
                    for byte in b" " * 1000:
                        time.sleep(0.05)
                        self.wfile.write(bytes([byte]))
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
