"""The console examples of the hand-written pages: every command runs, every output is real.

A page's ```diff blocks are applied and its ```console blocks are run, from top to bottom, in a
fresh copy of the project. Builds take the model of nixpkgs, and GitHub's API, downloads and Flox
are stand-ins as well; the pages say so. After a change of a message run

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
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, needs_nix
from github_api import Api
from smoke_reports import raw
from test_prefetch import OTHER, tool
from test_publish import FLOX
from world import Site, World, prepared_project

from build_pytorch.smoke import script

pytestmark = needs_nix

FLOX_PAGE: Final = "docs/how-to/flox.md"
PAGES: Final = [
    path.relative_to(PROJECT).as_posix()
    for path in (
        PROJECT / "README.md",
        PROJECT / "docs/tutorial.md",
        *sorted((PROJECT / "docs/how-to").glob("*.md")),
    )
    if "```console\n" in path.read_text()
]
BLOCK: Final = re.compile(r"(?ms)^```(?P<kind>console|diff)\n(?P<body>.*?)^```$")
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


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    api = Api()
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB_API", api.base)
    yield api
    api.server.shutdown()
    api.server.server_close()


class Reader:
    """Types what a page says, in a checkout of the project."""

    def __init__(self, world: World, api: Api) -> None:
        self.root = world.root
        self.home = world.folder / "home"
        self.home.mkdir()
        world.project.own_program()
        world.project.edit(".gitignore", "/result\n", "/result\n/.tools/\n")
        (self.root / ".flox/env/manifest.lock").write_text("{}\n")
        world.project.commit()
        world.project.git("init", "-q", "--bare", str(world.folder / "remote.git"))
        world.project.git("remote", "add", "origin", str(world.folder / "remote.git"))
        world.project.git("push", "-q", "-u", "origin", "HEAD")
        letters = 'case "$*" in *vision*) x=CC;; *audio*) x=DD;; *) x=BB;; esac'
        tools = [
            tool(world.project, name, f"{letters}\necho {OTHER} | sed s/BB/$x/")
            for name in ("nix-prefetch", "nix-prefetch-url")
        ]
        self.env = {
            **os.environ,
            **world.env,
            "PATH": f"{Path(sys.executable).parent}:{world.env['PATH']}",
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",  # decides how sort orders lines
            "PYTHONUNBUFFERED": "1",
            "GIT_AUTHOR_NAME": "you",
            "GIT_AUTHOR_EMAIL": "you@example.org",
            "GIT_COMMITTER_NAME": "you",
            "GIT_COMMITTER_EMAIL": "you@example.org",
        }
        # The run is older than the tests of some companions, which no result is asked of.
        recorded = world.folder / "h200.json"
        report = {**raw("h200-companions"), "declared": script.declarations()}
        recorded.write_text(json.dumps(report))
        tool(world.project, "replay-h200", f"cat '{recorded}'")
        folders = [env["PATH"].split(":")[0] for env in tools]
        self.env["PATH"] = ":".join([*dict.fromkeys(folders), self.env["PATH"]])
        self.places = {
            str(world.site.store): "/nix/store",
            str(self.root): "~/build-pytorch",
            api.base: "https://api.github.com",
        }

    def types(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command.replace(".venv/bin/", "")],
            cwd=self.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        text = done.stdout
        for place, name in self.places.items():
            text = text.replace(place, name)
        return "\n".join(line.rstrip() for line in text.splitlines())

    def applies(self, diff: str) -> None:
        subprocess.run(["git", "apply", "-"], cwd=self.root, input=diff, text=True, check=True)


def examples(body: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output that follows it."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ ") and not line.startswith(ECHOED):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return [(command, "\n".join(output)) for command, output in found]


def comparable(text: str) -> str:
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return re.sub(r" +", " ", text)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page == "README.md" else pytest.mark.slow) for page in PAGES],
)
def test_commands_of_a_page_print_what_it_shows(
    page: str, site: Site, tmp_path: Path, api: Api
) -> None:
    text = (PROJECT / page).read_text()
    if "build 'cuda13_0/cpu-avx512" in text and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the page builds for AVX-512, and this CPU has none")
    project = prepared_project(tmp_path / "project", is_whole=True, allows_this_cpu=False)
    world = World(project, site, tmp_path)
    reader = Reader(world, api)
    if page == FLOX_PAGE:
        (tmp_path / "logged_in").touch()
        flox = FLOX
        for name in ("calls", "logged_in", "broken"):
            flox = flox.replace("{" + name + "}", str(tmp_path / name))
        world.program("flox", flox)
    for compiler in re.findall(r"(?m)^\$ (aarch64-linux-gnu-gcc|g\+\+) ", text):
        if not shutil.which(compiler):
            pytest.skip(f"no {compiler}")

    def run(block: re.Match[str]) -> str:
        if block["kind"] == "diff":
            reader.applies(block["body"])
            return block[0]
        lines = []
        for command, shown in examples(block["body"]):
            printed = reader.types(command)
            same = comparable(printed) == comparable(shown)
            lines += [f"$ {command}", shown if same else printed]
        return "\n".join(["```console", *(line for line in lines if line), "```"])

    real = BLOCK.sub(run, text)
    if "WRITE_DOCS" in os.environ:
        (PROJECT / page).write_text(real)
        return
    assert text == real, (
        f"{page} shows an old output; WRITE_DOCS=1 python -m pytest {Path(__file__).name} writes it"
    )
