"""Hashes and contents of pins, taken with real Nix; newer versions, of a folder like GitHub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import ONE, WHOLE, Project, error_line, needs_nix, unfolded
from msgspec import structs
from one_release import written_out

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, MatrixError, ToolError
from build_pytorch.base.process import ProcessResult
from build_pytorch.generate import recipes
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import FAKE, CudaSetFacts, PinFacts
from build_pytorch.nix import quoting
from build_pytorch.sources import github as asked
from build_pytorch.sources import pin_facts, release_move
from build_pytorch.sources.fetchers import (
    FetchedHash,
    fetch,
    fetch_all,
    from_log,
    read_hash,
    sources,
)
from build_pytorch.sources.release_move import Move
from build_pytorch.verify import verification
from build_pytorch.verify.recipe_facts import MODEL

TEXT = ONE
PIN = "6a030d535719c5190187c4cec156f335e95e3211"
TORCH = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xQ="
PATCH = "sha256-i9InbxD5HtfonB/GyF9nQhFmok3jZ73RxGcIciGBGvU="
URL = "https://github.com/icl-utk-edu/magma/commit/235aefb7b064954fce09d035c69907ba8a87cbcd.patch"
OTHER = "sha256-" + "B" * 42 + "A="
NEW_PIN = "1123456789abcdef0123456789abcdef01234567"

UNTAKEN = TEXT.replace(f'hash = "{TORCH}"', 'hash = ""').replace(
    'hash_of = "v2.10.0"', 'hash_of = ""', 1
)


def output(*argv: str, text: str = "") -> str:
    done = subprocess.run(argv, input=text, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def nix_hash_as(base: str, sri: str) -> str:
    return output("nix", "--extra-experimental-features", "nix-command", "hash", f"to-{base}", sri)


@needs_nix
def test_every_notation_of_a_hash_becomes_the_same_sri() -> None:
    for sri in (TORCH, PATCH, OTHER):
        words = [sri, nix_hash_as("base32", sri), nix_hash_as("base16", sri)]
        texts = [*words, *(f"sha256:{word}" for word in words[1:]), f'"{sri}"']
        assert {quoting.to_sri(text) for text in texts} == {sri}
    others = ("", "sha256-", "z" * 52, "0" * 51, TORCH[:-2], "sha512-" + "A" * 88)
    assert {quoting.to_sri(text) for text in others} == {None}


# --- build logs ---

MISMATCH = "error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':\n"
LOGS = {
    "Nix 2.3": "hash mismatch in x\n  wanted: sha256:{old32}\n  got:    sha256:{new32}\n",
    "Nix 2.8": f"{MISMATCH}         specified: {{old}}\n            got:    {{new}}\n",
    "Nix 2.18, coloured": """\
\x1b[31;1merror:\x1b[0m hash mismatch in fixed-output derivation '\x1b[35;1m/nix/x.drv\x1b[0m':
\x1b[1m         specified: \x1b[0m\x1b[32m{old}\x1b[0m\r
            got:    \x1b[31m{new}\x1b[0m\r
""",
    "Nix 2.24, through a build log": f"""\
pytorch> {MISMATCH}pytorch>          specified: {{old}}
pytorch>             got:    {{new}}
""",
    "a tarball": "         specified: sha256:{old32}\n         got:       sha256:{new32}\n",
}


def log_of(kind: str, old: str, new: str) -> str:
    old32, new32 = (nix_hash_as("base32", hash_) for hash_ in (old, new))
    return LOGS[kind].format(old=old, new=new, old32=old32, new32=new32)


@needs_nix
def test_a_log_is_applied_to_the_source_it_belongs_to(project: Project) -> None:
    log = log_of("Nix 2.18, coloured", PATCH, OTHER)
    (project.root / "build.log").write_text(log)
    refused = project.invoke("prefetch", "--from-log", "build.log")
    assert refused.returncode == 1
    assert f'+hash = "{OTHER}"' in refused.stdout
    assert "--accept takes the new hash" in " ".join(refused.stdout.split())
    assert (project.root / "matrix.toml").read_text() == TEXT
    project.succeeds("prefetch", "--from-log", "build.log", "--accept")
    own = TEXT.rstrip() + f'\n\n[patch.magma_clock_rate]\nhash = "{OTHER}"\nhash_of = "{URL}"\n'
    assert (project.root / "matrix.toml").read_text() == own
    assert OTHER in project.recipe("cuda13_0-sm90-avx2").read_text()


@needs_nix
def test_a_log_names_the_source_whose_hash_is_wrong(tmp_path: Path) -> None:
    def hashes_of(text: str, log: str, *only: str) -> list[tuple[str, str]]:
        (tmp_path / "build.log").write_text(log)
        fetched = from_log(tmp_path / "build.log", sources(matrix_reader.parse(text), only))
        return [(item.source.name, item.hash) for item in fetched]

    # Nix assumes a hash of zeros for an empty one, and reports that.
    first = log_of("Nix 2.8", FAKE, OTHER)
    two = UNTAKEN + '\n[patch.magma_clock_rate]\nhash = ""\n'
    for kind in LOGS:
        log = "unpacking\n" * 100 + log_of(kind, PATCH, OTHER) + "more\n" * 100
        assert hashes_of(TEXT, log) == [("patch", OTHER)], kind
    assert hashes_of(UNTAKEN, first) == [("torch", OTHER)]
    assert hashes_of(two, first, "patch") == [("patch", OTHER)]
    for text, log, says in (
        (TEXT, log_of("Nix 2.8", OTHER, TORCH), r"is not a hash in matrix\.toml; nothing was ch"),
        (TEXT, "error: builder failed\n", "no hash mismatch in it; is it the whole log"),
        (two, first, "have the same old hash; name one with --only"),
    ):
        with pytest.raises(BuildPytorchError, match=says):
            hashes_of(text, log)


# --- downloads ---

FETCHERS = """
{ ... }: let fetch = text: { hash, ... }: derivation {
    name = "source";
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-c" "echo ${text} > $out" ];
    outputHash = hash;
    outputHashAlgo = "sha256";
    outputHashMode = "flat";
  }; in { fetchFromGitHub = fetch "tree"; fetchpatch = fetch "normalised"; }
"""
"""What fetchers of nixpkgs are to us: fixed-output derivations."""


@pytest.fixture
def nixpkgs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of tarballs that stands for GitHub, and an empty store."""
    store = tmp_path / "nix"
    for name in ("store", "state", "log"):
        monkeypatch.setenv(f"NIX_{name.upper()}_DIR", f"{store}/{name}")
    config = "substituters =\nbuild-users-group =\nsandbox = false\ndownload-attempts = 1"
    env = {"NIX_REMOTE": "local", "NIX_CONFIG": config, "XDG_CACHE_HOME": f"{store}/cache"}
    for name, value in {**env, "BUILD_PYTORCH_GITHUB": f"file://{tmp_path}"}.items():
        monkeypatch.setenv(name, value)
    yield tmp_path
    subprocess.run(["chmod", "-R", "u+w", store], check=False)


def archive(folder: Path, rev: str, tree: Path) -> None:
    """Offer a tree as the tarball of a revision of nixpkgs."""
    path = folder / f"NixOS/nixpkgs/archive/{rev}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tree, arcname=f"nixpkgs-{rev}")


@pytest.fixture
def world(nixpkgs: Path) -> Path:
    """That folder, with a pin that has fetchers."""
    (nixpkgs / "nixpkgs").mkdir()
    (nixpkgs / "nixpkgs/default.nix").write_text(FETCHERS)
    archive(nixpkgs, PIN, nixpkgs / "nixpkgs")
    return nixpkgs


def taken(text: str, *only: str) -> dict[str, FetchedHash]:
    """The hashes of the sources of a matrix, by name."""
    fetched = fetch_all(sources(matrix_reader.parse(text), only))
    return {item.source.name: item for item in fetched}


@needs_nix
def test_hashes_are_those_that_nix_requires(world: Path) -> None:
    """Those of what fetchers of nixpkgs make, and of an unpacked tarball."""
    found = taken(TEXT, "torch", "nixpkgs", "patch")
    argv = ("nix-hash", "--type", "sha256", "--base32")
    wanted = {
        "torch": output(*argv, "--flat", "/dev/stdin", text="tree\n"),
        "nixpkgs": output(*argv, str(world / "nixpkgs")),
        "patch": output(*argv, "--flat", "/dev/stdin", text="normalised\n"),
    }
    assert {name: item.hash for name, item in found.items()} == {
        name: quoting.to_sri(text) for name, text in wanted.items()
    }
    states = {name: item.state for name, item in found.items()}
    assert states == {"torch": "moved", "nixpkgs": "new", "patch": "moved"}


@needs_nix
@pytest.mark.usefixtures("world")
def test_a_moved_tag_is_a_warning_and_needs_accept(project: Project) -> None:
    done = project.invoke("prefetch", "--only", "torch,nixpkgs", "--check")
    assert done.returncode == 1
    assert "warning: torch (v2.10.0) changed: the hash of v2.10.0 was" in done.stdout
    assert "--accept takes the new hash" in " ".join(done.stdout.split())
    assert '+sha256 = "sha256-' in done.stdout
    assert project.invoke("prefetch", "--only", "nixpkgs", "--check").returncode == 1
    assert (project.root / "matrix.toml").read_text() == TEXT
    said = project.succeeds("prefetch", "--only", "torch", "--accept")
    new = matrix_reader.load(project.root).releases["cuda13_0"].torch.hash
    assert (project.root / "matrix.toml").read_text() == TEXT.replace(TORCH, new)
    assert f"torch (v2.10.0): moved, {new}" in unfolded(said)
    assert new in project.recipe("cpu-avx2").read_text()


@needs_nix
@pytest.mark.parametrize(
    ("base", "only", "says"),
    [
        ("", "nixpkgs", f"and that file://.*/{PIN}.tar.gz exi"),
        ("http://127.0.0.1:9", "torch", "onnect to server.*; check the network, and that http"),
    ],
)
def test_a_source_that_cannot_be_fetched_is_one_line(
    nixpkgs: Path, monkeypatch: pytest.MonkeyPatch, base: str, only: str, says: str
) -> None:
    assert not (nixpkgs / "NixOS").exists()
    if base:
        monkeypatch.setenv("BUILD_PYTORCH_GITHUB", base)
    with pytest.raises(ToolError, match=says) as caught:
        taken(TEXT, only)
    assert "\n" not in str(caught.value)


# --- answers of programs ---

NOTHING = "its output has not one hash"
TWICE = json.dumps({"hash": OTHER, "sha256": TORCH})


@pytest.mark.parametrize(
    ("stdout", "stderr", "says"),
    [
        ("", "error: cannot download it\n  0     0\rcurl: (22) 403", "curl: (22) 403"),
        ("", "error:\n       … while calling x\n\n       error: it is broken", "it is broken"),
        ("", "error: it is broken\n       error:\n\n", "it is broken"),
        ("", "warning: slow\nerror:\n", NOTHING),
        (FAKE, "", NOTHING),
        (TWICE, "", NOTHING),
        ("9" * 10_000, "", NOTHING),
    ],
)
def test_an_answer_without_one_hash_is_its_last_error_and_what_to_do(
    matrix: Matrix, stdout: str, stderr: str, says: str
) -> None:
    source = next(it for it in sources(matrix) if it.origin.function == "fetchpatch")
    with pytest.raises(ToolError) as caught:
        read_hash(source, ProcessResult(0, stdout, stderr))
    wanted = f"{source.label}: {says}; check the network, and that {URL} exists"
    assert str(caught.value) == wanted


def test_without_the_daemon_of_nix_the_network_is_not_blamed(matrix: Matrix) -> None:
    (nixpkgs,) = sources(matrix, ("nixpkgs",))
    socket = "error: cannot connect to socket at '/nix/var/nix/daemon-socket/socket': "
    with pytest.raises(ToolError) as caught:
        read_hash(nixpkgs, ProcessResult(1, "", f"{socket}Permission denied"))
    says = "Nix's daemon cannot be reached (Permission denied); start it, or let root add you to"
    assert str(caught.value) == (
        f"nixpkgs ({PIN}): {says} the group of its users (Debian: nix-users)"
    )


def test_an_unknown_source_is_bad_input() -> None:
    like = 'like = "cuda13_0"\ncatalog = "copy"\nfolder = "copy/.flox/pkgs"\n'
    matrix = matrix_reader.parse(f"{TEXT}\n[release.copy]\n{like}")
    for only, release, says in (
        (("troch",), "", 'no source "troch"; did you mean "torch"'),
        ((), "cuda13", 'no such release; did you mean "cuda13_0"'),
        ((), "copy", "copy has no source of its own; it has those of release cuda13_0"),
    ):
        with pytest.raises(BuildPytorchError, match=says):
            sources(matrix, only, release)


# --- nix-prefetch ---


def tool(project: Project, name: str, script: str) -> dict[str, str]:
    folder = project.root.parent / "tools"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f'#!/bin/sh\necho "$0" "$@" >> {folder}/argv\n{script}\n')
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture
def nix_prefetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that installs a stand-in for nix-prefetch; it returns its log."""

    def install(script: str) -> Path:
        env = tool(Project(tmp_path / "project"), "nix-prefetch", script)
        monkeypatch.setenv("PATH", env["PATH"])
        return tmp_path / "tools/argv"

    return install


def test_nix_prefetch_is_used_where_it_is_installed(nix_prefetch: Callable[[str], Path]) -> None:
    log = nix_prefetch(f"echo {OTHER}")
    copy = '\n[release.copy]\nlike = "cuda13_0"\ncatalog = "copy"\nfolder = "copy/.flox/pkgs"\n'
    text = f'{TEXT}{copy}torch = {{ owner = "other" }}\n'
    wanted = sources(matrix_reader.parse(text), ("torch", "patch"))
    fetched = fetch_all([*wanted, *wanted])  # equal ones are fetched once
    assert [(item.fetcher, item.hash) for item in fetched] == [("nix-prefetch", OTHER)] * 6
    calls = [line.partition(" --quiet ")[2] for line in log.read_text().splitlines()]
    torch = "fetchFromGitHub --owner {} --repo pytorch --rev v2.10.0 --fetchSubmodules"
    patch = f"fetchpatch --name cuda-13.0-clockrate-fix.patch --url {URL}"
    assert sorted(calls) == sorted([torch.format("pytorch"), torch.format("other"), patch])


@needs_nix
@pytest.mark.usefixtures("world")
def test_where_nix_prefetch_fails_nix_is_used(nix_prefetch: Callable[[str], Path]) -> None:
    nix_prefetch("echo error: something odd >&2; exit 1")
    assert taken(TEXT, "torch")["torch"].fetcher == "nix-build"


def test_a_download_that_hangs_is_killed(
    nix_prefetch: Callable[[str], Path], matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(nix_prefetch("exec /bin/sleep 600").parent))
    (torch,) = sources(matrix, ("torch",))
    with pytest.raises(ToolError, match=r"not finished in 60 minutes; check the network"):
        fetch(torch, seconds=0.5)


# --- a hash that is not taken yet, or that did not follow ---


@needs_nix
def test_a_release_begins_without_hashes_and_is_not_built_before_it_has_them(
    project: Project,
) -> None:
    assert UNTAKEN != TEXT
    (project.root / "matrix.toml").write_text(UNTAKEN)
    project.succeeds("phase4")
    said = project.succeeds("verify", "--packages", "cpu-*", "--only", "eval-source")
    assert "empty hash" not in said  # of Nix, for each recipe
    said = unfolded(project.succeeds("verify", "--only", "stale-hash"))
    found = "release.cuda13_0.torch: no hash yet; recipes evaluate, and cannot be built"
    assert said.count(found) == 1
    strict = project.invoke("verify", "--only", "stale-hash", "--strict")
    assert strict.returncode == 1
    assert "1 warning; --strict fails on warnings" in unfolded(strict.stdout)
    build = project.invoke("build", "cpu-avx2", "--backend", "nix")
    assert build.returncode == 2
    assert "release.cuda13_0.torch has no hash yet" in unfolded(build.stdout)
    assert "`invoke prefetch --only torch` takes it" in unfolded(build.stdout)
    # The first hash needs no --accept.
    env = tool(project, "nix-prefetch", f"echo {TORCH}")
    done = project.run("invoke", "prefetch", "--only", "torch", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.root / "matrix.toml").read_text() == TEXT


def test_a_hash_that_did_not_follow_its_rev_fails_verification(tmp_path: Path) -> None:
    text = TEXT.replace('version = "2.10.0"', 'version = "2.10.1"', 1)
    matrix = matrix_reader.parse(text.replace('rev = "v2.10.0"', 'rev = "v2.10.1"', 1))
    (stale,) = verification.verify(matrix, tmp_path, only=["stale-hash"]).findings
    assert stale.found == "release.cuda13_0.torch: the hash of v2.10.0"
    assert stale.expected == "the hash of v2.10.1"
    assert text.splitlines()[(stale.line or 0) - 1] == "[release.cuda13_0.torch]"


# --- what a pin contains ---


SETS = {"cudaPackages_12_9": "12.9", "cudaPackages_13": "13.0", "cudaPackages_13_0": "13.0"}
CUDA = " ".join(f'{name} = "{version}";' for name, version in SETS.items())
OLDER = f"""{{ torch = "2.9.1"; python = "3.13"; cuda = {{ {CUDA} }};
  has = [ "magma-clock-rate" ]; companions.triton = "3.5.1"; }}"""


def offer(folder: Path, rev: str, contents: str) -> None:
    """Offer the model of nixpkgs, with these contents, as the tarball of a revision."""
    tree = folder / "tree"
    shutil.copytree(MODEL, tree / "model", dirs_exist_ok=True)
    model = f'{{ modelSource = {{ url = "/archive/{rev}.tar.gz"; sha256 = null; }};'
    model += f' modelRevisions."{rev}" = {contents}; }}'
    (tree / "default.nix").write_text(f"args: import ./model ({model} // args)")
    archive(folder, rev, tree)


NEWER = """{ torch = "2.13.0"; python = "3.14"; cuda.cudaPackages_13_2 = "13.2"; cccl = "cccl";
  has = [ "magma-clock-rate" "cccl-headers" ]; companions.triton = "3.7.0"; }"""
OF_ALL: Final = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")
ON_12 = CudaSetFacts(cccl="cuda_cccl", capabilities=OF_ALL)
ON_13 = structs.replace(ON_12, broken=("Unsupported CUDA version",))


@needs_nix
@pytest.mark.parametrize(
    ("contents", "versions", "has", "sets"),
    [
        # A patch of MAGMA is known by its URL.
        (OLDER, ("2.9.1", "3.13", SETS), ("magma-clock-rate",), [ON_12, ON_13, ON_13]),
        (
            NEWER,
            ("2.13.0", "3.14", {"cudaPackages_13_2": "13.2"}),
            ("magma-clock-rate", "cccl-headers", "cmake-flags"),
            [structs.replace(ON_12, cccl="cccl")],
        ),
    ],
    ids=["2.9.1", "2.13.0"],
)
def test_one_evaluation_says_what_a_nixpkgs_contains(
    nixpkgs: Path,
    contents: str,
    versions: tuple[str, str, dict[str, str]],
    has: tuple[str, ...],
    sets: list[CudaSetFacts],
) -> None:
    """On the models of the expressions of torch 2.9.1 and 2.13.0."""
    matrix = matrix_reader.parse(TEXT)
    offer(nixpkgs, PIN, contents)
    pin = pin_facts.learned(matrix, matrix.pins["early_2026"])
    assert (pin.rev, pin.torch, pin.python, pin.cuda, pin.has) == (PIN, *versions, has)
    assert pin.facts == PinFacts(
        of=PIN,
        pythons=("3.11", "3.12", "3.13", "3.14"),
        magma_patches=("drop-cmp0037.patch", "fix-cuda13-compat.patch"),
        torch_patches=(f"patch-for-torch-{versions[0]}.patch", "fix-cmake-cuda-toolkit.patch"),
        cuda_sets=dict(zip(versions[2], sets, strict=True)),
    )


@needs_nix
def test_prefetch_writes_what_a_pin_contains(nixpkgs: Path, project: Project) -> None:
    """A rule ends with a pin that turns out to have its fix."""
    offer(nixpkgs, NEW_PIN, OLDER)
    matrix = project.root / paths.MATRIX
    matrix.write_text(TEXT.replace(f'rev = "{PIN}"', f'rev = "{NEW_PIN}"'))
    refused = project.invoke("status")
    assert refused.returncode == 2
    assert f'pin.early_2026.facts.of: found "{PIN}"; allowed: {NEW_PIN}' in refused.stderr
    assert "`invoke prefetch --only nixpkgs` evaluates it" in " ".join(refused.stderr.split())
    said = project.succeeds("prefetch", "--only", "nixpkgs")
    assert "pin.early_2026: PyTorch 2.9.1, Python 3.13, CUDA 12.9, 13.0" in said
    pin = matrix_reader.load(project.root).pins["early_2026"]
    assert pin.facts
    assert (pin.facts.of, pin.facts.unconfirmed, pin.cuda) == (NEW_PIN, None, SETS)
    assert pin.sha256_of == NEW_PIN
    assert "clockrate" not in project.recipe("cuda13_0-sm90-avx2").read_text()
    written = matrix.read_text()
    project.succeeds("prefetch", "--only", "nixpkgs")
    assert matrix.read_text() == written


def test_what_cannot_be_learned_changes_nothing(project: Project) -> None:
    """The hash comes from a stand-in for a download, and there is no Nix for the evaluation."""
    matrix = project.root / paths.MATRIX
    matrix.write_text(text := TEXT.replace(f'rev = "{PIN}"', f'rev = "{NEW_PIN}"'))
    tools = tool(project, "nix-prefetch-url", f"echo {OTHER}")["PATH"].partition(":")[0]
    refused = project.run("invoke", "prefetch", "--only", "nixpkgs", env={"PATH": tools})
    assert (refused.returncode, matrix.read_text()) == (2, text)
    assert "nix-instantiate: not found; install Nix" in error_line(refused)


def test_what_a_pin_contains_is_required() -> None:
    """Of a pin whose revision and name are not known."""
    text = written_out(TEXT).replace(PIN, NEW_PIN).replace("early_2026", "other")
    text = matrix_text.without_table(text, ("pin", "other", "facts"))
    with pytest.raises(MatrixError) as caught:
        matrix_reader.parse(text)
    assert "pin.other.facts: missing, so what it contains is not known" in str(caught.value)
    assert matrix_reader.parse(text, learning=True).pins["other"].facts is None


# --- a release of a pin that has its PyTorch ---


def moved(matrix: Matrix, **wanted: Any) -> Matrix:
    return release_move.moved(Move(matrix=matrix, name="cuda13_0", **wanted))[0]


@needs_nix
def test_the_own_torch_of_a_new_pin_is_taken(nixpkgs: Path) -> None:
    """Without an overlay, and without the rules for a source in place of it."""
    offer(nixpkgs, NEW_PIN, OLDER)
    matrix = matrix_reader.parse(TEXT)
    new = moved(matrix, torch="2.9.1", nixpkgs=NEW_PIN)
    release = new.releases["cuda13_0"]
    assert all(source.is_of_pin for source in release.sources.values())
    assert release.torch.version == "2.9.1"
    beside = moved(matrix, beside="other", torch="2.9.1", nixpkgs=NEW_PIN).releases["other"]
    assert beside.torch == release.torch
    assert beside.companion == release.companion
    variant = next(v for v in new.variants if v.short_id == "sm90-avx2")
    assert "cccl-headers" in {rule.id for rule in variant.effects.rules}
    assert "github" not in {rule.when.torch_source for rule in variant.effects.rules}
    text = recipes.render(new)[variant.path]
    assert "patches = []" not in text
    assert "fetchFromGitHub" not in text


def test_what_is_learned_of_a_pin_takes_the_place_of_what_was_known() -> None:
    """In dotted keys, as `invoke bump --as` writes them; a known fix that the pin lacks goes."""
    added = moved(matrix_reader.parse(TEXT), cuda="13.1").text
    rev = known_hardware.load().pin["february_2026"].rev
    known = TEXT.replace(PIN, rev).replace('"cudaPackages_13"', '"cudaPackages_13_0"')
    for key, text in (("cuda13_1", added), ("early_2026", known)):
        pin = matrix_reader.parse(text).pins[key]
        assert pin.facts
        assert pin.doubts
        facts = structs.replace(pin.facts, unconfirmed=None)
        cuda = {"cudaPackages_13_0": "13.0", "cudaPackages_13_1": "13.1"}
        learned = structs.replace(pin, cuda=cuda, has=(), facts=facts, unconfirmed=None)
        written = pin_facts.written(text, key, learned, pin)
        assert matrix_reader.parse(written).pins[key] == learned
        assert learned.doubts == ""


# --- GitHub, for which a folder stands ---

OTHER_REV: Final = "4123456789abcdef0123456789abcdef01234567"
NIGHTLY: Final = matrix_reader.parse(WHOLE).releases["nightly"].torch
TRITON: Final = ".ci/docker/ci_commit_pins/triton.txt"
FILES: Final = {"version.txt": "2.12.0a0\n", TRITON: f"{NEW_PIN}\n"}


def git(folder: Path, *argv: str, day: str = "2026-06-30") -> str:
    person = {"NAME": "t", "EMAIL": "t@example.org", "DATE": f"{day}T23:30:00-0100"}
    env = {f"GIT_{who}_{key}": it for who in ("AUTHOR", "COMMITTER") for key, it in person.items()}
    argv = ("git", "-C", str(folder), *argv)
    done = subprocess.run(argv, env={**os.environ, **env}, check=True, capture_output=True)
    return done.stdout.decode().strip()


def commit(folder: Path, branch: str, day: str, files: dict[str, str]) -> str:
    """Add a commit of a day to a branch of a repository. Returns its revision."""
    if not folder.exists():
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        for name in ("allowFilter", "allowAnySHA1InWant"):  # as GitHub
            git(folder, "config", f"uploadpack.{name}", "true")
    git(folder, "checkout", "-q", "-B", branch)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        git(folder, "add", name)
    git(folder, "commit", "-q", "--allow-empty", "-m", day, day=day)
    return git(folder, "rev-parse", "HEAD")


class Api(SimpleHTTPRequestHandler):
    """GitHub's API: answers are files."""

    def log_message(self, *_: object) -> None:
        pass


def serve_github(folder: Path) -> dict[str, str]:
    """Write the repositories that commands ask for; days are a day later in UTC.

    Returns the environment in which commands ask for them.
    """
    commit(folder / "NixOS/nixpkgs", "nixos-unstable", "2026-10-31", {})
    pytorch = folder / "pytorch/pytorch"
    commit(pytorch, "nightly", "2025-12-21", FILES | {"version.txt": "2.11.0a0"})
    commit(pytorch, "nightly", "2026-06-29", FILES)
    latest = folder / "repos/pytorch/pytorch/releases/latest"
    latest.parent.mkdir(parents=True)
    latest.write_text('{"tag_name": "v2.11.0"}')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Api, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api = f"http://127.0.0.1:{server.server_port}"
    return {"BUILD_PYTORCH_GITHUB": folder.as_uri(), "BUILD_PYTORCH_GITHUB_API": api}


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in serve_github(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.usefixtures("github")
def test_the_newest_commit_a_revision_or_that_of_a_day_is_a_nightly() -> None:
    newest, of_day = asked.nightly_commit(NIGHTLY), asked.nightly_commit(NIGHTLY, "20251222")
    assert (newest.version, newest.triton_rev) == ("2.12.0.dev20260630", NEW_PIN)
    assert of_day.version == "2.11.0.dev20251222"
    for found in (newest, of_day):
        assert asked.nightly_commit(NIGHTLY, found.rev) == found


@pytest.mark.parametrize(
    "word", ["main", "2025122", "20250229", OTHER_REV[:12], "v2.11.0", "2025-12-22"]
)
def test_any_other_word_names_no_nightly(word: str) -> None:
    with pytest.raises(BuildPytorchError, match="allowed: a day such as 20251222, 40 hex dig"):
        asked.nightly_commit(NIGHTLY, word)


@pytest.mark.parametrize(
    ("files", "word", "says"),
    [
        ({"version.txt": "x\x1b[2J"}, "", "version.txt has not the expected form"),
        ({TRITON: "main"}, "", "triton.txt has not the expected form"),
        ({}, "", "path 'version.txt' does not exist in '"),
        (FILES, "20260629", "no commit of 2026-06-29 in refs/heads/nightly"),
        (FILES, "20260701", "file:///.*/pytorch/pytorch: .*; check the network, and that it"),
        (FILES, OTHER_REV, f"upload-pack: not our ref {OTHER_REV}; check the network"),
    ],
)
def test_a_commit_that_is_not_there_or_odd_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], word: str, says: str
) -> None:
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB", f"file://{tmp_path}")
    given = FILES | files if files else {}
    commit(tmp_path / "pytorch/pytorch", "nightly", "2026-06-29", given)
    with pytest.raises(ToolError, match=says) as caught:
        asked.nightly_commit(NIGHTLY, word)
    assert str(caught.value).isprintable()


def test_without_an_answer_a_command_ends_soon_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BUILD_PYTORCH_GITHUB", "BUILD_PYTORCH_GITHUB_API"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for ask in (asked.newest_version, partial(asked.head, branch="main")):
        with pytest.raises(ToolError, match=r"^http://127.0.0.1:9/.*x/y.*: .*; check the network"):
            ask("x/y")
    (tmp_path / "git").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(ToolError, match=r"not finished in 0.3 s; check the network"):
        asked.fetch_commit("x/y", "main", seconds=0.3)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "answer", ["", "<html>", "[]", "{}", '{"tag_name": "v\\u001b"}', " " * 2**25]
)
def test_an_answer_that_names_no_version_is_one_line(github: Path, answer: str) -> None:
    (github / "repos/pytorch/pytorch/releases/latest").write_text(answer)
    with pytest.raises(ToolError, match="/repos/pytorch/pytorch/releases/latest: ") as caught:
        asked.newest_version("pytorch/pytorch")
    assert str(caught.value).isprintable()


# --- outdated ---


def test_outdated_lists_what_is_newer(github: Path, whole: Project) -> None:
    newest, nightly = (
        git(github / name, "rev-parse", "HEAD") for name in ("NixOS/nixpkgs", "pytorch/pytorch")
    )
    done = whole.invoke("outdated", "--check")
    assert done.returncode == 1
    for line in (
        "cuda13_0  torch 2.10.0: 2.11.0 is newer",
        f"cuda13_0  nixpkgs {PIN}: {newest} (2026-11-01) is newer",
        f"nightly  nightly {NIGHTLY.rev}: {nightly} (2026-06-30) is newer",
    ):
        assert line in done.stdout.splitlines()
    rows = json.loads(whole.succeeds("outdated", "--json"))["versions"]
    rows = [row for row in rows if row["release"] == "cuda13_0"]
    assert [row["name"] for row in rows if row["newest"] != row["ours"]] == ["torch", "nixpkgs"]


def test_outdated_lists_what_is_the_newest_and_rules_that_have_ended(
    github: Path, project: Project
) -> None:
    (github / "repos/pytorch/pytorch/releases/latest").write_text('{"tag_name": "v2.9.1"}')
    matrix = project.root / "matrix.toml"
    newest = git(github / "NixOS/nixpkgs", "rev-parse", "HEAD")
    matrix.write_text(written_out(ONE).replace(PIN, newest))
    said = project.succeeds("outdated", "--check")
    assert "cuda13_0  torch 2.10.0: is the newest" in said
    assert f"cuda13_0  nixpkgs {newest}: is the newest" in said
    project.edit("matrix.toml", 'pin_has = ["cccl-headers"]', 'cuda = ">=13.0"')
    done = project.invoke("outdated", "--check")
    assert done.returncode == 1
    assert "rule cccl-headers: its `until` holds for all its variants; delete it" in done.stdout
