"""A stand-in for nixpkgs: recipes are built for real, unchanged, in seconds, without a network.

Nix has a store of its own. What it downloads goes through a proxy on loopback that answers for
GitHub: the pinned nixpkgs is our model of it, with a builder that prints what a build of PyTorch
prints and compiles nothing. Everything between the two is real. `invoke demo` and tests use it.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import process
from build_pytorch.nix import store
from build_pytorch.verify.recipe_evaluation import MODEL

BUILDER: Final = Path(__file__).with_suffix(".sh")
"""Prints what a build of PyTorch prints, as a scenario of the variant says."""

_PROGRAMS: Final = (store.NIX_BUILD, "openssl")
_SECONDS: Final = 20  #: for a request, of this machine


class Site:
    """A Nix store in a folder, and the site that it downloads from.

    `scenarios` holds what each build does, in VARIANT.sh or default.sh. `env` is the environment of
    Nix; inside `served` it has the proxy, too.
    """

    def __init__(
        self,
        folder: Path,
        *,
        checks: str = "false",
        script: Path = BUILDER,
        arguments: Sequence[Path] = (),
        config: str = "sandbox = false",
    ) -> None:
        self.folder = folder
        self.scenarios = folder / "scenarios"
        self.scenarios.mkdir()
        self.store = folder / "nix/store"
        given = arguments or (self.scenarios,)
        self.archive = _nixpkgs(script, given, checks)
        (folder / "home").mkdir()
        settings = f"substituters =\nbuild-users-group =\n{config}\ncompress-build-log = false"
        self.env: dict[str, str] = {
            "NIX_REMOTE": "local",
            "NIX_STORE_DIR": str(self.store),
            "NIX_STATE_DIR": f"{folder}/nix/state",
            "NIX_LOG_DIR": f"{folder}/nix/log",
            "NIX_CONF_DIR": f"{folder}/nix/conf",
            "NIX_CONFIG": settings,
            "XDG_CACHE_HOME": f"{folder}/cache",
            "HOME": f"{folder}/home",
        }

    def is_refused(self) -> bool:
        """Return whether the next connection is closed without an answer."""
        return False

    def answer(self, path: str) -> bytes | None:
        """Return what GitHub has at the path of an address, or None."""
        return self.archive if "/NixOS/nixpkgs/archive/" in path else None


def missing_program() -> str | None:
    """Return what this machine lacks to have such a site, or None."""
    missing = (name for name in _PROGRAMS if process.which(name) is None)
    return next((f"{name} is not installed" for name in missing), None)


@contextlib.contextmanager
def served(site: Site) -> Iterator[None]:
    """Answer for GitHub as long as the context lasts: a proxy that speaks TLS in its name."""
    key, certificate = site.folder / "key.pem", site.folder / "cert.pem"
    process.capture(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate), "-subj", "/CN=github.com"),
            *("-addext", "subjectAltName=DNS:github.com"),
        ]
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = socket.create_server(("127.0.0.1", 0))
    proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
    site.env |= dict.fromkeys(("https_proxy", "HTTPS_PROXY"), proxy)
    site.env |= {"no_proxy": "", "NO_PROXY": "", "NIX_SSL_CERT_FILE": str(certificate)}
    thread = threading.Thread(target=_serve, args=(site, server, context), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.close()


def _serve(site: Site, server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(site, connection, context), daemon=True).start()


def _answer(site: Site, connection: socket.socket, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError), connection:
        connection.settimeout(_SECONDS)
        connection.recv(65536)  # CONNECT github.com:443
        if site.is_refused():
            return
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secure:
            body = site.answer(secure.recv(65536).split(b" ")[1].decode())
            status = b"404 Not Found" if body is None else b"200 OK"
            body = b"not here" if body is None else body
            head = b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n" % len(body)
            secure.sendall(head + b"Connection: close\r\n\r\n" + body)


def _nixpkgs(script: Path, arguments: Sequence[Path], checks: str) -> bytes:
    """Return the model of nixpkgs as GitHub's archive of the pin, with a builder of ours in it."""
    shell = script.read_text().partition("\n")[0].removeprefix("#!")
    words = " ".join(f'"{argument}"' for argument in arguments)
    builder = (
        f'{{ builder = "{shell}"; args = [ ./build.sh {words} ]; '
        f"checksHashes = args: {checks}; }}\n"
    )
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path in sorted(MODEL.glob("*.nix")):
            text = builder if path.name == "builder.nix" else path.read_text()
            _add(archive, path.name, text)
        _add(archive, "build.sh", script.read_text())
    return data.getvalue()


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(f"nixpkgs-pin/{name}")
    entry.size = len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))
