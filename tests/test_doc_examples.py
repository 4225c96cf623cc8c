"""The commands that the hand-written pages show, typed from top to bottom in a checkout.

Blocks of a page: a `diff` is applied; a command of `console` prints what follows it; a command of
`sh` succeeds, or ENDS says how it ends, or NOT_RUN why no test runs it. Builds take the model of
nixpkgs, and GitHub, downloads and Flox are stand-ins; the pages say so. After a change of a
message run

    WRITE_DOCS=1 python -m pytest tests/test_doc_examples.py

which writes the new outputs into the pages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, needs_nix
from smoke_reports import raw
from test_publish import FLOX
from test_sources import NEW_PIN, OTHER, offer, serve_github, tool
from world import Site, World, prepared_project

from build_pytorch.matrix import matrix_reader
from build_pytorch.smoke import script

PAGES: Final = [
    path.relative_to(PROJECT).as_posix()
    for path in (*PROJECT.glob("*.md"), *sorted(PROJECT.glob("docs/**/*.md")))
    if re.search("```(console|sh)\n", path.read_text())
    if path.name != "your-own-fleet.md"  # see test_own_fleet
]
BLOCK: Final = re.compile(r"(?ms)^```(?P<kind>console|diff|sh)\n(?P<body>.*?)^```$")
ECHOED: Final = ("$ nix-build ", "$ nix ", "$ flox ")
"""Lines of output in which our commands show what they run."""

VARYING: Final = (
    (r"\.nix:\d+: ", ".nix:LINE: "),  # with the hash of the pin, a recipe has one more
    (r"sha256:[0-9a-f]{12}\b", "sha256:DIGEST"),  # of a recipe, which any template changes
    # Progress, of which a slow machine prints more; the note on this machine's memory.
    (
        r"(?m)^(\S+: ([a-z ]+([\d,]+ of [\d,]+)?|dependencies: \S+), \d+:\d\d.*"
        r"| +note +memory: .*)\n",
        "",
    ),
    (r"\b\d+:\d\d(:\d\d)?\b|\b\d+(\.\d+)? (s|min|h|MiB|GiB)\b", "<amount>"),
    (r"[0-9a-z]{32}-(?=[a-z])", "<hash>-"),
    (r"(?<= checks: )\d+ passed(, \d+ skipped)?", "<checks>"),
    (r"(?m)^skipped: .*\n(    .*\n)*", ""),  # of what is installed
    (r"\d{8}T\d{6}[\d.-]*\d", "<stamp>"),
    (r"\b[\d,]+ days? old\b", "<age>"),
)
"""Parts of outputs that differ between two runs or two machines, and what they are compared as."""


_PIP = "pip asks the network, and all sessions take minutes; `nox -s bare` runs README's lines"
_ROOT = "changes the machine, as root"
_WHOLE = "compiles for hours, in the root folder of a Debian that the reader makes"
NOT_RUN: Final = {
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/invoke all": _PIP,
    ".venv/bin/nox": _PIP,
    "install -d -m 2770 -g nixbld /var/cache/build-pytorch": _ROOT,
    "echo 'max_size = 20G' >/var/cache/build-pytorch/ccache.conf": _ROOT,
    "echo 'extra-sandbox-paths = /var/cache/build-pytorch?' >>/etc/nix/nix.conf": _ROOT,
    'git add -f .gitattributes ledger.jsonl && git commit -S -m "Tests on an H200"': (
        "needs a key that signs"
    ),
    "cp ../build-cudatoolkit/.flox/pkgs/{cudatoolkit,cudnn,nccl,libcusparse_lt}-13_0.nix "
    "releases/nightly/cuda-packages/": "test_cuda_packages.py runs it, beside such a repository",
    "sudo tests/whole/cuda.sh /srv/trixie": "fetches 2 GB, as root",
    "BUILD_PYTORCH_DEBIAN=/srv/trixie nox -s whole -- cuda13_0/sm90-avx2": _WHOLE,
    "BUILD_PYTORCH_DEBIAN=/srv/trixie nox -s whole -- openblas/cpu-avx2": _WHOLE,
    "invoke bump --nightly 6fc0ad22f0a07b6f38d138861c56a765d5a9bb02": (
        "no repository here has this commit; test_sources.py fetches others by revision"
    ),
}
"""Commands that no test runs, without their comments, with the reason."""

_NO_PYTHON = (3, "its closure has no Python 3.13")  # the stand-in for a build makes no files
ENDS: Final[dict[str, tuple[int, str]]] = {
    'invoke build cuda13_0/sm121-armv9 --builders "@$PWD/machines"': (1, "builder-unreachable"),
    "flox build PACKAGE 2>&1 | invoke prefetch --from-log -": (1, "--accept takes the new hash"),
    "invoke smoke cuda13_0/sm120-avx2": _NO_PYTHON,
    "invoke inspect cuda13_0/sm120-avx2": (1, "libtorch_cpu.so: not in"),
}
"""Commands that cannot succeed here: their exit code, and a text that says why."""


def examples(body: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output that follows it."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ ") and not line.startswith(ECHOED):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return [(command, "\n".join(output)) for command, output in found]


def typed(body: str) -> list[str]:
    """The commands of a block of sh, without their comments."""
    return [re.sub(r"\s+# .*", "", line) for line in body.splitlines()]


def comparable(text: str) -> str:
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return re.sub(r" +", " ", text)


class Reader:
    """Types what a page says, in a checkout of the project."""

    def __init__(self, world: World) -> None:
        self.world, self.root = world, world.root
        self.wrong: list[str] = []
        world.project.own_program()
        world.project.edit(".gitignore", "/result\n", "/result\n/.tools/\n")
        world.push(world.folder / "remote.git")
        # The run is older than the tests of some companions, which no result is asked of.
        recorded = world.folder / "h200.json"
        stated = ("name", "device", "companion", "meaning")
        declared = [{key: getattr(test, key) for key in stated} for test in script.tests(())]
        report = {**raw("h200-companions"), "declared": declared}
        recorded.write_text(json.dumps(report))
        tools = tool(world.project, "replay-h200", f"cat '{recorded}'")
        self._fetch_as_recorded()
        self.env = {
            **os.environ,
            **world.env,
            "PATH": f"{tools['PATH'].split(':')[0]}:{Path(sys.executable).parent}:"
            f"{world.env['PATH']}",
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",  # decides how sort orders lines
            "PYTHONUNBUFFERED": "1",
            "GIT_AUTHOR_NAME": "you",
            "GIT_AUTHOR_EMAIL": "you@example.org",
            "GIT_COMMITTER_NAME": "you",
            "GIT_COMMITTER_EMAIL": "you@example.org",
        }
        self.places = {
            str(world.site.store): "/nix/store",
            str(self.root): "~/build-pytorch",
        }

    def _fetch_as_recorded(self) -> None:
        """Let fetchers find the hashes of matrix.toml, and made-up ones for what has none."""
        cases = ""
        for source in matrix_reader.load(self.root).sources():
            given = source.origin.arguments
            pattern = f"'{given.get('url')} '"
            if "rev" in given:
                pattern = f"'--repo {given['repo']} '*'--rev {given['rev']} '"
            cases += f"*{pattern}*) echo {source.hash} ;;\n" if source.hash else ""
        letters_of = {"vision": "CC", "audio": "DD", "[0-9a-f]" * 40: "FF", "": "BB"}
        for name, letters in letters_of.items():
            cases += f"*{name}*) echo {OTHER.replace('BB', letters)} ;;\n"
        for name in ("nix-prefetch", "nix-prefetch-url"):
            tool(self.world.project, name, f'case "$* " in\n{cases}esac')

    def run(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        strict = "set -o pipefail\n" if "invoke" in command else ""  # grep may find nothing
        command = command.replace(".venv/bin/", "")
        done = subprocess.run(
            ["bash", "-c", f'{strict}{command}\necho "exit code $?"'],
            cwd=self.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        printed, _, code = done.stdout.rpartition("exit code ")
        for place, name in self.places.items():
            printed = printed.replace(place, name)
        return int(code), "\n".join(line.rstrip() for line in printed.splitlines())

    def follows(self, block: re.Match[str]) -> str:
        """Do what a block says. Returns it with the outputs that were printed."""
        kind, body = block["kind"], block["body"]
        if kind == "console":
            lines = []
            for command, shown in examples(body):
                _, printed = self.run(command)
                same = comparable(printed) == comparable(shown)
                lines += [f"$ {command}", shown if same else printed]
            return "\n".join(["```console", *filter(None, lines), "```"])
        if kind == "diff":
            argv = ["git", "apply", "-"]
            subprocess.run(argv, cwd=self.root, input=body, text=True, check=True)
        for command in typed(body) if kind == "sh" else ():
            if command not in NOT_RUN:
                ending, says = ENDS.get(command, (0, ""))
                code, printed = self.run(command)
                if code != ending or says not in " ".join(printed.split()):
                    self.wrong.append(f"{command}: exit code {code}\n{printed[-2000:]}")
        return block[0]


# --- what a page expects to be there ---


def with_builders(reader: Reader) -> None:
    """The machines of the page, which nobody can reach."""
    page = (PROJECT / "docs/how-to/build-many-variants.md").read_text()
    machines = "\n".join(re.findall(r"(?m)^ssh-ng://.*$", page))
    (reader.root / "machines").write_text(machines)
    tool(reader.world.project, "invoke", f"exec '{sys.executable}' -m invoke \"$@\"")


def with_sources(reader: Reader) -> None:
    """A commit of the day, and another nixpkgs with CUDA 13.1; Flox finds another hash.

    Tarballs have their true hashes.
    """
    matrix = matrix_reader.load(reader.root)
    reader.env.update(serve_github(reader.world.folder))
    sets = {**matrix.pins["early_2026"].cuda, "cudaPackages_13_1": "13.1"}
    cuda = " ".join(f'{name} = "{version}";' for name, version in sets.items())
    contents = f'{{ torch = "2.9.1"; python = "3.13"; cuda = {{ {cuda} }}; has = [ ]; }}'
    offer(reader.world.folder, NEW_PIN, contents)
    (reader.root.parent / "tools/nix-prefetch-url").unlink()
    mismatch = "error: hash mismatch in fixed-output derivation '/nix/store/x-source.drv':"
    lines = f"{mismatch}\n  specified: {OTHER}\n     got:    {OTHER.replace('BB', 'EE')}\n"
    reader.world.program("flox", f'#!/bin/sh\ncat >&2 <<"END"\n{lines}END\nexit 1\n')


def with_flox(reader: Reader) -> None:
    """A Flox that builds and publishes, logged in."""
    reader.world.program("flox", FLOX)


def with_builds(reader: Reader) -> None:
    """Builds without a Python, and their logs: the stand-in makes none."""
    code, printed = reader.run("invoke build --backend nix cuda13_0/sm120-avx2,cuda13_0/sm90-avx2")
    assert code == 0, printed


PREPARED: Final[dict[str, Callable[[Reader], None]]] = {
    "build-many-variants.md": with_builders,
    "flox.md": with_flox,
    "move-to-a-new-pytorch.md": with_sources,
    "read-a-log.md": with_builds,
    "test-on-hardware.md": with_builds,
}


@needs_nix
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page == "README.md" else pytest.mark.slow) for page in PAGES],
)
def test_a_page_is_true_when_it_is_typed(page: str, site: Site, tmp_path: Path) -> None:
    text = (PROJECT / page).read_text()
    if "$ g++ " in text and not shutil.which("g++"):
        pytest.skip("no g++")
    project = prepared_project(tmp_path / "project", is_whole=True, allows_this_cpu=False)
    reader = Reader(World(project, site, tmp_path))
    if prepare := PREPARED.get(Path(page).name):
        prepare(reader)
    real = BLOCK.sub(reader.follows, text)
    assert reader.wrong == []
    assert "Traceback" not in real
    if "WRITE_DOCS" in os.environ:
        (PROJECT / page).write_text(real)
        return
    assert text == real, (
        f"{page} shows an old output; WRITE_DOCS=1 python -m pytest {Path(__file__).name} writes it"
    )


def test_only_commands_of_pages_are_exempt() -> None:
    """A command that was exempt and is not typed any more leaves the tables."""
    blocks = [block for page in PAGES for block in BLOCK.finditer((PROJECT / page).read_text())]
    commands = {it for block in blocks if block["kind"] == "sh" for it in typed(block["body"])}
    assert (NOT_RUN.keys() | ENDS.keys()) - commands == set()
