"""Answers of prefetch programs, build logs and GitHub: each yields a result or one line of error."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socketserver
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.process import ProcessResult
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.hashed_sources import FAKE
from build_pytorch.nix.quoting import to_sri
from build_pytorch.sources import fetchers, github
from build_pytorch.sources.fetchers import sources

COUNT = 3000
"""Answers of one run, unless another number is given."""

MATRIX = Path(__file__).resolve().parents[2] / "matrix.toml"
HASH = "sha256-" + "B" * 42 + "A="
REV = "1123456789abcdef0123456789abcdef01234567"

PRINTED = [
    HASH,
    f"{HASH}\n",
    json.dumps(HASH),
    json.dumps({"owner": "pytorch", "hash": HASH}, indent=2),
    json.dumps({"url": "x", "rev": REV, "date": "2026-01-01", "hash": HASH, "sha256": "0" * 52}),
    "",
]
LOGS = [
    "error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':\n"
    f"         specified: {FAKE}\n            got:    {HASH}\n",
    "fixed-output derivation produced path '/nix/store/x' with sha256 hash '"
    + "0" * 52 + "' instead of the expected hash '" + "1" * 52 + "'\n",
    "error: unable to download 'https://github.com/x': HTTP error 404\n",
    "fatal: Remote branch v1 not found in upstream origin\nerror: program 'git' failed\n",
]  # fmt: skip
BODIES = {
    "has_tag": {"ref": "refs/tags/v2.11.0", "object": {"sha": REV, "type": "commit"}},
    "head": {"sha": REV, "commit": {"committer": {"date": "2026-11-01T00:00:00Z"}}},
    "releases": [{"tag_name": f"v2.{n}.0", "prerelease": n == 12, "body": "x"} for n in range(13)],
}
CALLS: dict[str, Callable[[github.GitHub], object]] = {
    "has_tag": lambda hub: hub.has_tag("pytorch", "pytorch", "v2.11.0"),
    "head": lambda hub: hub.head("NixOS", "nixpkgs", "nixos-unstable"),
    "releases": lambda hub: github.newest_version(hub.releases("pytorch", "pytorch")),
}
PIECES = [
    *'"[]{},:\\\n\r\t -019eE.', "\0", "\x1b[31m", "\x9b", "\u202e", "null", "true", "NaN", "1e999",
    "9" * 5000, "[" * 3000, '{"a":' * 3000, '"hash"', '"ref"', '"tag_name"', '"v٢.٣"', '"v' + "9" * 5000,
    "\\ud800", "x" * 5000, "sha256-", HASH, "0" * 52, "f" * 64, "\u00b2", "%s", "{0}", "\ufeff",
]  # fmt: skip
HEADERS = [
    "", "Content-Type: application/json", "Content-Encoding: gzip", "Content-Length: 99999",
    "Content-Length: x", "Content-Length: -1", "Transfer-Encoding: chunked", "Retry-After: 999999",
    "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: " + "9" * 5000, "X-RateLimit-Remaining: 0",
    "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: \u00b2\r\nX-RateLimit-Limit: \x1b[31m",
    "Location: http://[", "Location: file:///etc/passwd", "Location: /", "Location: \x9b",
    "Set-Cookie: a=\x1b", "no colon", ": x", "X: " + "y" * 70000,
]  # fmt: skip
STATUS = [
    *["HTTP/1.1 200 OK"] * 12, "HTTP/1.1 200 \x1b[31mred", "HTTP/1.1 204 x", "HTTP/1.1 301 Moved",
    "HTTP/1.1 403 x", "HTTP/1.1 404 x", "HTTP/1.1 429 x", "HTTP/1.1 500 \x9b", "HTTP/1.1 503 x",
    "HTTP/1.1 599 x", "HTTP/1.1 999 x", "HTTP/1.1 100 Continue", "HTTP/9 200", "", "HTTP/1.1 2x0 OK",
]  # fmt: skip


def run(seed: int, count: int) -> Counter[str]:
    """Try so many answers, a third of each kind. Raises what the readers must not raise."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    wanted = sources(matrix_reader.load(MATRIX.parent))
    with tempfile.TemporaryDirectory() as folder, served() as server:
        log = Path(folder) / "build.log"
        for _ in range(count // 3):
            source = draw.choice(wanted)
            out, err = broken(draw, draw.choice(PRINTED)), broken(draw, draw.choice(LOGS))
            result = ProcessResult(draw.choice((0, 0, 1)), out, err, expired=draw.random() < 0.05)
            hash_ = tried(lambda: fetchers._read_hash(source, result), counts, "programs")  # noqa: B023, SLF001
            assert hash_ is None or to_sri(str(hash_)) == hash_

            text = broken(draw, draw.choice(LOGS).replace(FAKE, draw.choice(wanted).specified))
            log.write_bytes(text.encode("utf-8", "surrogatepass"))
            for item in tried(lambda: fetchers.from_log(log, wanted), counts, "logs") or ():
                assert to_sri(item.hash) == item.hash

            name = draw.choice(list(CALLS))
            server.answer = response(draw, name)
            hub = github.GitHub(seconds=2, backoff=0)
            tried(lambda: CALLS[name](hub), counts, "GitHub")  # noqa: B023
            hub.session.close()
    return counts


def tried(call: Callable[[], Any], counts: Counter[str], kind: str) -> Any:
    """Return a result, or None after an error, which must be one line that can be printed."""
    found, message = None, ""
    try:
        found = call()
    except BuildPytorchError as error:
        message = str(error)
    counts[f"{kind}: {'errors' if message else 'results'}"] += 1
    assert visible(message).isprintable(), message  # a line break is not printable
    return found


def broken(draw: random.Random, text: str) -> str:
    """Return a text with pieces in it, parts of it gone or twice, or as it is."""
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        place, end = sorted((draw.randint(0, len(text)), draw.randint(0, len(text))))
        match draw.randrange(4):
            case 0:
                text = text[:place] + text[end:]
            case 1:
                text = text[:end] + text[place:]
            case _:
                text = text[:place] + draw.choice(PIECES) + text[place:]
    return text


def response(draw: random.Random, name: str) -> bytes:
    """Return an answer of a server, right or broken in any of its parts."""
    body = broken(draw, json.dumps(BODIES[name])).encode("utf-8", "surrogatepass")
    headers = [h for h in draw.choices(HEADERS, k=draw.choice((0, 0, 1, 2))) if h]
    if (
        not any(h.startswith(("Content-Length", "Transfer")) for h in headers)
        and draw.random() < 0.5
    ):
        headers.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([draw.choice(STATUS), *headers, "", ""])
    whole = head.encode("utf-8", "surrogatepass") + body
    if draw.random() < 0.1:
        whole = whole[: draw.randint(0, len(whole))]
    return whole


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    answer = b""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline() not in {b"\r\n", b"\n", b""}:
            pass
        with contextlib.suppress(OSError):
            self.wfile.write(self.server.answer)  # type: ignore[attr-defined]

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()


@contextlib.contextmanager
def served() -> Iterator[_Server]:
    """Serve the answer that is set, on this machine, and let it stand for GitHub."""
    old = os.environ.get(github.API_VARIABLE)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        os.environ[github.API_VARIABLE] = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield server
        finally:
            server.shutdown()
            if old is None:
                del os.environ[github.API_VARIABLE]
            else:
                os.environ[github.API_VARIABLE] = old
