"""The commands in ```sh blocks of the hand-written pages: each runs, or NOT_RUN says why not.

A page's diffs are applied and its commands are run from top to bottom in a checkout of its own.
Builds, GitHub, downloads and Flox are the stand-ins of `test_doc_examples`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, needs_nix
from github_api import NEW_PIN, Api, commit, commits
from test_doc_examples import Reader, api
from test_pin_facts import offer
from test_prefetch import OTHER, TORCH, tool
from test_publish import FLOX
from world import Site, World, prepared_project

from build_pytorch.matrix import matrix_reader

__all__ = ["api"]  # a fixture

PAGES: Final = [
    path.relative_to(PROJECT).as_posix()
    for path in (*PROJECT.glob("*.md"), *sorted(PROJECT.glob("docs/**/*.md")))
    if "```sh\n" in path.read_text() and path.name != "your-own-fleet.md"  # see test_own_fleet
]
BLOCK: Final = re.compile(r"(?ms)^```(diff|sh)\n(.*?)^```$")

_PIP = "pip asks the network, and all sessions take minutes; `nox -s bare` runs README's lines"
_ROOT = "changes the machine, as root"
_WHOLE = "compiles for hours, in the root folder of a Debian that the reader makes"
_PINNED = "downloads nixpkgs; test_release_nix evaluates the flake with the model of it"
NOT_RUN: Final = {
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/invoke all": _PIP,
    ".venv/bin/nox": _PIP,
    "install -d -m 2770 -g nixbld /var/cache/build-pytorch": _ROOT,
    "echo 'max_size = 20G' >/var/cache/build-pytorch/ccache.conf": _ROOT,
    "echo 'extra-sandbox-paths = /var/cache/build-pytorch?' >>/etc/nix/nix.conf": _ROOT,
    "cp ../build-cudatoolkit/.flox/pkgs/{cudatoolkit,cudnn,nccl,libcusparse_lt}-13_0.nix "
    "releases/nightly/cuda-packages/": "test_cuda_packages.py runs it beside such a checkout",
    'git add -f .gitattributes ledger.jsonl && git commit -S -m "Tests on an H200"': (
        "needs a key that signs"
    ),
    "sudo tests/whole/cuda.sh /srv/trixie": "fetches 2 GB, as root",
    "BUILD_PYTORCH_DEBIAN=/srv/trixie nox -s whole -- cuda13_0/sm90-avx2": _WHOLE,
    "BUILD_PYTORCH_DEBIAN=/srv/trixie nox -s whole -- openblas/cpu-avx2": _WHOLE,
}
"""Commands that no test runs, without their comments, with the reason."""

_NO_PYTHON = (3, "its closure has no Python 3.13")  # the stand-in for a build makes no files
ENDS: Final[dict[str, tuple[int, str]]] = {
    'invoke build cuda13_0/sm121-armv9 --builders "@$PWD/machines"': (1, "builder-unreachable"),
    "flox build PACKAGE 2>&1 | invoke prefetch --from-log -": (1, "--accept takes the new hash"),
    "invoke smoke cuda13_0/sm120-avx512": _NO_PYTHON,
    "invoke inspect cuda13_0/sm120-avx512": (1, "libtorch_cpu.so: not in"),
}
"""Commands that cannot succeed here: their exit code, and a text that says why."""


def commands(body: str) -> list[str]:
    """The commands of a block, without their comments."""
    return [re.sub(r"\s+# .*", "", line) for line in body.splitlines()]


class Shell(Reader):
    """Types commands in a checkout in which the CPU of this machine may build every ISA."""

    def __init__(self, world: World, api: Api) -> None:
        super().__init__(world, api)
        self.world = world
        self.api = api
        self._fetch_as_recorded()

    def _fetch_as_recorded(self) -> None:
        """Let fetchers find the hashes of matrix.toml, and OTHER for what has none."""
        cases = ""
        for source in matrix_reader.load(self.root).sources():
            given = source.table.arguments
            pattern = f"'{given.get('url')} '"
            if "rev" in given:
                pattern = f"'--repo {given['repo']} '*'--rev {given['rev']} '"
            cases += f"*{pattern}*) echo {source.hash} ;;\n" if source.hash else ""
        for name in ("nix-prefetch", "nix-prefetch-url"):
            letters = f"*vision*) echo {OTHER.replace('BB', 'CC')} ;;\n"
            letters += f"*audio*) echo {OTHER.replace('BB', 'DD')} ;;\n"
            tool(
                self.world.project, name, f'case "$* " in\n{cases}{letters}*) echo {OTHER} ;;\nesac'
            )

    def run(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        strict = "set -o pipefail\n" if "invoke" in command else ""  # grep may find nothing
        output = self.types(f'{strict}{command}\necho "exit code $?"')
        printed, _, code = output.rpartition("exit code ")
        return int(code), printed

    def build(self, *ids: str) -> None:
        code, printed = self.run(f"invoke build --backend nix {','.join(ids)}")
        assert code == 0, printed

    def append(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as stream:
            stream.write(text)


# --- what a page expects to be there ---


def with_builders(shell: Shell) -> None:
    """The machines of the page, which nobody can reach.

    The machine of a test need not have the disk and the memory of a real build.
    """
    page = (PROJECT / "docs/how-to/build-many-variants.md").read_text()
    shell.append("machines", "\n".join(re.findall(r"(?m)^ssh-ng://.*$", page)))
    matrix = shell.root / "matrix.toml"
    text = re.sub(r"\b(disk|reserved_memory) = [\d.]+", r"\1 = 0.1", matrix.read_text())
    matrix.write_text(re.sub(r"\bjob_memory = [\d.]+", "job_memory = 1", text))
    tool(shell.world.project, "invoke", f"exec '{sys.executable}' -m invoke \"$@\"")


def with_a_commit_of_the_day(shell: Shell) -> None:
    rev = matrix_reader.load(shell.root).releases["nightly"].torch.rev
    for path, answer in list(shell.api.answers.items()):
        shell.api.answers[re.sub(r"ref=\w+$", f"ref={rev}", path)] = answer
    shell.api.answers[commits("pytorch/pytorch", rev)] = commit(rev, "2025-10-15")
    of_day = commits("pytorch/pytorch", "nightly", "2025-12-22")
    shell.api.answers[of_day] = commit(rev, "2025-12-22")


def offered(shell: Shell, contents: str) -> None:
    """Let the model, with these contents, be the tarball of NEW_PIN."""
    offer(shell.world.folder, NEW_PIN, contents)
    shell.env["BUILD_PYTORCH_GITHUB"] = f"file://{shell.world.folder}"


def with_a_failed_flox(shell: Shell) -> None:
    """A build with Flox that found another hash; tarballs have their true hashes.

    Another nixpkgs has what the model has, and CUDA 13.1. A commit has its day.
    """
    with_a_commit_of_the_day(shell)
    known = matrix_reader.load(shell.root).pins["early_2026"]
    cuda = " ".join(f'{s} = "{v}";' for s, v in {**known.cuda, "cudaPackages_13_1": "13.1"}.items())
    offered(shell, f'{{ torch = "2.9.1"; python = "3.13"; cuda = {{ {cuda} }}; has = [ ]; }}')
    (shell.root.parent / "tools/nix-prefetch-url").unlink()
    mismatch = "error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':"
    lines = f"{mismatch}\n  specified: {TORCH}\n     got:    {OTHER}\n"
    shell.world.program("flox", f'#!/bin/sh\ncat >&2 <<"END"\n{lines}END\nexit 1\n')


def with_flox(shell: Shell) -> None:
    """A Flox that builds and publishes, logged in."""
    (shell.world.folder / "logged_in").touch()
    flox = FLOX
    for name in ("calls", "logged_in", "broken"):
        flox = flox.replace("{" + name + "}", str(shell.world.folder / name))
    shell.world.program("flox", flox)


def with_logs(shell: Shell) -> None:
    """A finished build, and its log where the page says."""
    shell.build("cuda13_0/sm90-avx512")
    (log,) = shell.root.glob(".build-pytorch/logs/*/*.log")
    name = "pytorch-python313-cpu-avx2/20261121T101500.123-4711-1.log"
    shell.append(f".build-pytorch/logs/{name}", log.read_text())


def with_a_build(shell: Shell) -> None:
    """A build without a Python: the stand-in makes none."""
    shell.build("cuda13_0/sm120-avx512")


PREPARED: Final[dict[str, Callable[[Shell], None]]] = {
    "docs/how-to/build-many-variants.md": with_builders,
    "docs/how-to/flox.md": with_flox,
    "docs/how-to/move-to-a-new-pytorch.md": with_a_failed_flox,
    "docs/how-to/read-a-log.md": with_logs,
    "docs/how-to/test-on-hardware.md": with_a_build,
}


@needs_nix
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, site: Site, tmp_path: Path, api: Api) -> None:
    project = prepared_project(tmp_path / "project", is_whole=True)
    shell = Shell(World(project, site, tmp_path), api)
    if page in PREPARED:
        PREPARED[page](shell)
    wrong = []
    for kind, body in BLOCK.findall((PROJECT / page).read_text()):
        if kind == "diff":
            shell.applies(body)
            continue
        for command in commands(body):
            if command in NOT_RUN:
                continue
            wanted, says = ENDS.get(command, (0, ""))
            code, printed = shell.run(command)
            if code != wanted or says not in " ".join(printed.split()) or "Traceback" in printed:
                wrong.append(f"{command}: exit code {code}\n{printed[-2000:]}")
    assert not wrong, "\n".join(wrong)


def test_only_commands_of_pages_are_exempt() -> None:
    """A command that was exempt and is not typed any more leaves the tables."""
    typed = {
        command
        for page in PAGES
        for kind, body in BLOCK.findall((PROJECT / page).read_text())
        if kind == "sh"
        for command in commands(body)
    }
    assert (NOT_RUN.keys() | ENDS.keys()) - typed == set()
