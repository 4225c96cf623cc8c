"""What binary caches have of a closure: a local cache that serves a part of it, over HTTP."""

from __future__ import annotations

import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.cli.build import _settings
from build_pytorch.cli.commands import BuildOptions
from build_pytorch.nix import binary_caches, store
from build_pytorch.nix.binary_caches import CacheReport
from build_pytorch.nix.store import NixSettings

EXPRESSION = """
let
  make = name: inputs: env: derivation ({
    inherit name inputs;
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-c" "echo $inputs > $out" ];
  } // env);
  fetched = name: url: make name [] {
    inherit url;
    args = [ "-c" "exit 1" ];
    outputHashAlgo = "sha256"; outputHashMode = "flat";
    outputHash = builtins.hashString "sha256" url;
  };
in rec {
  compiler = make "compiler" [] {};
  zlib = make "zlib" [ compiler ] {};
  toolkit-src = fetched "toolkit.tar" "https://developer.download.nvidia.com/toolkit.tar";
  toolkit = make "toolkit" [ compiler toolkit-src ] {};
  magma = make "magma" [ compiler ] { CMAKE = "-gencode=arch=compute_120,code=sm_120"; };
  linalg = make "linalg" [ magma zlib ] { requiredSystemFeatures = "big-parallel"; };
  patched = make "patched" [ zlib ] { patch = 1; };
  torch = make "torch" [ zlib toolkit linalg patched ] {};
}
"""


class Closure(NamedTuple):
    """Derivations of a store of its own, of which a server has two results."""

    drvs: dict[str, str]
    settings: NixSettings
    folder: Path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture(scope="module")
def closure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closure]:
    if not process.which(store.NIX_BUILD):
        pytest.skip("no Nix")
    folder = tmp_path_factory.mktemp("caches")
    (folder / "test.nix").write_text(EXPRESSION)
    env = {
        "NIX_REMOTE": "local",
        **{f"NIX_{n.upper()}_DIR": str(folder / n) for n in ("store", "state", "log", "conf")},
        "NIX_CONFIG": "sandbox = false\nbuild-users-group =\nsubstituters =\n",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        names = ("compiler", "zlib", "torch", "magma")
        argv = ["nix-instantiate", "test.nix", *(word for n in names for word in ("-A", n))]
        drvs = dict(zip(names, run(argv, folder), strict=True))
        built = run(["nix-store", "--realise", drvs["zlib"]], folder)
        nix = ["nix", "--extra-experimental-features", "nix-command"]
        run(["nix-store", "--generate-binary-cache-key", "test-1", "secret", "public"], folder)
        cache = f"file://{folder}/cache?secret-key={folder}/secret"
        compiler = run(["nix-store", "--query", "--outputs", drvs["compiler"]], folder)
        run([*nix, "copy", "--to", cache, *built, *compiler], folder)
        run(["nix-store", "--delete", "--ignore-liveness", *built, *compiler], folder)
        handler = functools.partial(Quiet, directory=str(folder / "cache"))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        key = (folder / "public").read_text().strip()
        settings = NixSettings((), (), substituters=(url,), public_keys=(key,))
        yield Closure(drvs, settings, folder)
        server.shutdown()
        server.server_close()


def run(argv: list[str], folder: Path) -> list[str]:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def reasons(found: CacheReport) -> dict[str, str]:
    return {each.name: each.reason for each in found.compiled}


def test_what_a_cache_has_is_downloaded_and_the_rest_has_a_reason(closure: Closure) -> None:
    found = binary_caches.report([closure.drvs["torch"]], closure.settings)
    assert sum(found.downloads.values()) == 2  # zlib, and the compiler for what is compiled
    assert list(found.downloads) == list(closure.settings.substituters)
    assert found.sources == 1
    assert reasons(found) == {
        "linalg": "needs magma, which is compiled",
        "magma": "for GPU architectures 120, another list than a cache's",
        "patched": "not built by the caches",
        "toolkit": "unfree: public caches do not hand it on",
    }
    assert found.compiled[0].name == "linalg"  # nixpkgs says that it takes long
    assert found.problems == {}


def test_a_key_that_is_not_trusted_is_named(closure: Closure) -> None:
    settings = replace(closure.settings, public_keys=("other:AAAA",))
    found = binary_caches.report([closure.drvs["torch"]], settings)
    assert found.downloads == {}
    what = "a cache has it, signed with test-1, which is no trusted-public-key here"
    assert reasons(found)["zlib"] == what
    anything = replace(settings, require_sigs=False)
    found = binary_caches.report([closure.drvs["torch"]], anything)
    assert sum(found.downloads.values()) == 2


def test_a_file_is_a_cache_as_well(closure: Closure) -> None:
    settings = replace(closure.settings, substituters=(f"file://{closure.folder}/cache",))
    found = binary_caches.report([closure.drvs["torch"]], settings)
    assert sum(found.downloads.values()) == 2


def test_without_any_cache_the_pin_is_not_built(closure: Closure) -> None:
    settings = replace(closure.settings, substituters=())
    found = binary_caches.report([closure.drvs["torch"]], settings)
    assert reasons(found)["compiler"] == "pin not built by the caches"
    assert len(found.compiled) == 6


@pytest.mark.parametrize("answer", [b"x" * 100_000, b"NarSize: many\n", b"\xff\xfe", b""])
def test_a_cache_that_answers_nonsense_is_named_and_not_believed(
    closure: Closure, tmp_path: Path, answer: bytes
) -> None:
    for path in (closure.folder / "cache").glob("*.narinfo"):
        (tmp_path / path.name).write_bytes(answer)
    url = f"file://{tmp_path}"
    settings = replace(closure.settings, substituters=(url, *closure.settings.substituters))
    found = binary_caches.report([closure.drvs["torch"]], settings)
    assert list(found.problems) == [url]
    assert sum(found.downloads.values()) == 2  # of the other one


def test_a_cache_that_cannot_be_reached_is_named(closure: Closure) -> None:
    settings = replace(closure.settings, substituters=("http://127.0.0.1:9",))
    found = binary_caches.report([closure.drvs["magma"]], settings)
    assert found.problems == {"http://127.0.0.1:9": "ConnectionError"}
    assert [each.name for each in found.compiled] == ["compiler"]


def test_caches_are_asked_only_in_a_dry_run(tmp_path: Path) -> None:
    with pytest.raises(BuildPytorchError, match="--caches: only with --dry-run"):
        _settings(BuildOptions(root=tmp_path, caches=True))
