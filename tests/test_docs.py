"""Pages: generated text, and what people write; mistakes in Flox environments are made good."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, WHOLE, Project
from mutations import swap

from build_pytorch.generate import flox_environments
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.tasks.command import TASKS


def test_new_markers_are_filled_and_half_a_pair_is_refused(project: Project) -> None:
    readme = project.root / "README.md"
    wanted = readme.read_text().replace("## Documentation", "## Our pages  \n\n<!-- mine -->")
    empty = r"(?s)(<!-- begin generated: [^\n]*\n).*?(\n<!-- end)"
    readme.write_text(re.sub(empty, r"\1\2", wanted))
    assert "44 variants" not in readme.read_text()
    assert project.invoke("phase5").returncode == 0
    assert readme.read_text() == wanted
    for old in ("<!-- end generated: counts -->", "<!-- begin generated: counts"):
        half = wanted.replace(old, "<!-- counts")
        readme.write_text(half)
        done = project.invoke("phase5")
        assert done.returncode == 1
        assert "lacks a marker of counts" in done.stdout
        assert readme.read_text() == half


def test_the_page_of_releases_has_every_variant_and_why_one_is_impossible(
    matrix: Matrix, project: Project
) -> None:
    page = (project.root / "docs/reference/releases.md").read_text()
    groups = {variant.group.title: variant for variant in matrix.variants[::-1]}
    for variant in matrix.variants:
        line, *rows = (
            page.partition(f"- {variant.group.title}, ")[2].partition("\n- ")[0].split("\n")
        )
        first, _, cells = line.rpartition(" on: ")
        gpus, _, isas = cells.rpartition(", each with ")
        assert variant.cpu_key in isas.split(", ")
        assert variant.gpu_label in gpus.split(", ")
        told = [row for row in rows if variant.short_id in re.split(r"[ ,:]+", row)]
        reasons = [row.rpartition(" cannot be built: ")[2] for row in told]
        assert reasons == [variant.impossible] * bool(variant.impossible)
        if variant is groups[variant.group.title]:
            assert first.endswith(f", from `{variant.package}`")


# --- the Flox environment ---


def test_the_flox_manifest_is_what_flox_reads() -> None:
    manifest = tomllib.loads((PROJECT / ".flox/env/manifest.toml").read_text())
    assert manifest["version"] == 1
    assert {"git", "nix-prefetch"} <= set(manifest["install"])
    assert manifest["install"]["python3"]["pkg-path"] == "python313"
    assert all(set(package) == {"pkg-path"} for package in manifest["install"].values())
    assert manifest["options"]["systems"] == ["x86_64-linux", "aarch64-linux"]


def test_the_activation_hook_makes_a_working_environment_once(project: Project) -> None:
    """The hook itself, with pip replaced by a script that records and installs nothing."""
    manifest = tomllib.loads((project.root / ".flox/env/manifest.toml").read_text())
    cache, tools = (project.root.parent / name for name in ("cache", "tools"))
    cache.mkdir()
    tools.mkdir()
    (tools / "python3").write_text(
        f'#!/bin/sh\nset -e\n"{sys.executable}" -m venv --without-pip "$3"\n'
        'printf "#!/bin/sh\\necho pip \\"\\$@\\"\\n" > "$3/bin/pip"\nchmod +x "$3/bin/pip"\n'
    )
    (tools / "python3").chmod(0o755)
    script = manifest["hook"]["on-activate"] + '\ncommand -v python; echo "end"'
    env = {"FLOX_ENV_CACHE": str(cache), "FLOX_ENV_PROJECT": str(project.root)}

    def activate() -> str:
        argv = ["bash", "-eu", "-c", script]
        path = {"PATH": f"{tools}:/usr/bin:/bin"}
        return subprocess.run(
            argv, env=env | path, capture_output=True, text=True, check=True
        ).stdout

    first = activate()
    assert f"pip install --quiet --editable {project.root}" in first
    assert f"{cache}/venv/bin/python\nend" in first
    assert "pip install" not in activate()
    (project.root / "pyproject.toml").write_text("# changed\n")
    assert "pip install" in activate()


MATRIX = matrix_reader.parse(WHOLE)
ROOT, COMPANIONS = ".flox/env/manifest.toml", "releases/cuda12_8/companions/.flox/env/manifest.toml"
MISTAKES: dict[str, tuple[str, Callable[[str], str]]] = {
    "invalid TOML": (COMPANIONS, swap("[options]", "[options")),
    "invalid JSON": ("releases/nightly/.flox/env.json", swap(",", "")),
    "a platform missing": (COMPANIONS, swap(', "aarch64-linux"', "")),
    "a build of the name of a recipe": (
        ROOT, swap("[options]", '[build.pytorch-python313-cpu-avx2]\ncommand = "x"\n[options]')),
    "another version": ("companions/.flox/env.json", swap('"version": 1', '"version": 2')),
}  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A clone with the files of the environments alone."""
    (tmp_path / "tasks.py").touch()
    for folder in flox_environments.environments(MATRIX):
        (tmp_path / folder / ".flox/env").mkdir(parents=True)
        for file in ("env.json", "env/manifest.toml"):
            shutil.copy(PROJECT / folder / ".flox" / file, tmp_path / folder / ".flox" / file)
    return Tree(tmp_path)


@pytest.mark.parametrize(("file", "edit"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_an_environment_is_found(
    tree: Tree, file: str, edit: Callable[[str], str]
) -> None:
    assert not list(flox_environments.faults(MATRIX, tree))
    path = tree.root / file
    path.write_text(edit(path.read_text()))
    assert [place for place, *_ in flox_environments.faults(MATRIX, Tree(tree.root))] == [file]
    repaired = [change.path for change in flox_environments.plan(MATRIX, Tree(tree.root))]
    assert repaired == [file] * ('systems = ["x86_64-linux"]' in path.read_text())


@pytest.mark.parametrize("left", [{".flox/env.json", ROOT}, set()], ids=["clone", "own project"])
def test_missing_environments_are_found_and_made_but_that_of_a_clone_s_root(
    tree: Tree, left: set[str]
) -> None:
    shutil.rmtree(tree.root)
    tree.root.mkdir()
    if left:
        (tree.root / "tasks.py").touch()
    folders = list(flox_environments.environments(MATRIX))
    assert len(list(flox_environments.faults(MATRIX, tree))) == 2 * len(folders)
    for change in flox_environments.plan(MATRIX, tree):
        path = tree.root / change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(change.new or b"")
        if path.suffix == ".json":
            assert path.read_bytes() == (PROJECT / change.path).read_bytes()
    made = Tree(tree.root)
    assert {place for place, *_ in flox_environments.faults(MATRIX, made)} == left
    assert not list(flox_environments.plan(MATRIX, made))


# --- the pages that people write ---

MARKDOWN: Final = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "tests/**/*.md") for path in PROJECT.glob(pattern)
)
PROSE: Final = [path for path in MARKDOWN if "<!-- Generated " not in path.read_text()]
"""The pages that people write."""
FENCE: Final = re.compile(r"(?ms)^```.*?^```$")
REGION: Final = re.compile(r"(?s)<!-- begin generated: .*?<!-- end generated: \w+ -->")
LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
BANNED: Final = (
    r"mend(s|ed|ing)?|roads?|prove[ds]?|proving|proven|proofs?|unproved|seed 0\d*|the plan"
    r"|issue \d+"
)
"""Words that the vocabulary replaces, and references to what a reader does not have."""
MOST_WORDS: Final = 25


def name(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def prose(path: Path) -> str:
    """A page without fenced blocks and generated regions."""
    return FENCE.sub("", REGION.sub("", path.read_text()))


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", FENCE.sub("", path.read_text()))
    plain = (re.sub(r"\]\([^)]*\)", "]", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def commands(text: str) -> Iterator[list[str]]:
    """Words of each command of invoke, build-pytorch and nox that a page tells people to type."""
    code = [
        re.sub(r"(?m)^(?!\$ ).*$", "", block[0]) if block[0].startswith("```console") else block[0]
        for block in FENCE.finditer(text)
    ]
    code += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for part in code:
        for found in re.findall(r"(?:invoke|build-pytorch|nox -s) +\"?([^`\n|;&#)]*)", part):
            yield found.replace('"', " ").split()


@pytest.mark.parametrize("page", MARKDOWN, ids=name)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for target, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        to = (page.parent / target).resolve() if target else page
        assert to.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(to), f"{name(page)} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_prose_has_the_words_of_the_glossary(page: Path) -> None:
    text = prose(page)
    text = re.sub(r"\]\([^)]*\)", "", text)
    assert [match[0] for match in re.finditer(rf"(?i)\b({BANNED})\b", text)] == []


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_sentences_have_at_most_25_words(page: Path) -> None:
    lines = [line for line in prose(page).splitlines() if not line.startswith(("|", "#", "<"))]
    text = "\n".join(re.sub(r"^(- |\d+\. )", "\n", line) for line in lines)
    text = re.sub(r"`[^`\n]+`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    sentences = re.split(r"(?<=[.!?:;])\s+|\n\s*\n", text)
    assert [s for s in sentences if len(s.split()) > MOST_WORDS] == []


@pytest.fixture(scope="module")
def menus() -> dict[str, set[str]]:
    """The options of each command that pages may name, by name; sessions of nox have any."""
    listed = Project(PROJECT).nox("-l").stdout
    found: dict[str, set[str]] = {it: set() for it in re.findall(r"(?m)^[*-] ([a-z]+)", listed)}
    for task in TASKS.values():
        arguments = task.get_arguments(ignore_unknown_help=True)
        found[task.name] = {f"--{flag}" for it in arguments for flag in it.names}
    return found


def test_commands_and_options_of_pages_exist(menus: dict[str, set[str]], matrix: Matrix) -> None:
    wrong, ids = [], Counter(package.short_id for package in matrix.packages)
    for page in set(PROSE) - {PROJECT / "CHANGELOG.md"}:  # it names what went
        for words in commands(REGION.sub("", page.read_text())):
            command = words[0].partition("(")[0] if words else ""
            if not re.fullmatch(r"[a-z][a-z0-9-]*", command):
                continue
            options = {word.partition("=")[0] for word in words if re.match(r"--\w", word)}
            if command not in menus or (menus[command] and options - menus[command]):
                wrong.append(f"{name(page)}: {' '.join(words)}")
            several = [word for word in words if ids[word] > 1]
            wrong += [f"{name(page)}: {command} {word}: of several releases" for word in several]
    assert wrong == []


def test_the_readmes_two_commands_are_those_of_ci() -> None:
    readme = (PROJECT / "README.md").read_text()
    ci = (PROJECT / ".ci/run").read_text()
    for command in (
        "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/invoke all",
        ".venv/bin/nox",
    ):
        assert re.search(rf"(?m)^{re.escape(command)}(\s|$)", readme)
        assert command in ci


def test_the_table_of_places_names_what_the_files_hold() -> None:
    rows = re.findall(r"(?m)^\| [^|`]+ \| (.*) \|$", (PROJECT / "CONTRIBUTING.md").read_text())
    places = [row for row in rows if "`build_pytorch/" in row]
    assert len(places) > 5
    for row in places:
        words = re.findall(r"`([^`]+)`", row)
        files = [PROJECT / word for word in words if "/" in word]
        held = "".join(file.read_text() for file in files if file.is_file())
        names = [word for word in words if re.fullmatch(r"\w+", word)]
        assert [name for name in names if name not in held] == [], row


def test_how_to_pages_say_their_goal_and_what_can_go_wrong() -> None:
    for page in (PROJECT / "docs/how-to").glob("*.md"):
        text = page.read_text()
        assert "\n**Goal:** " in text, name(page)
        assert "What can go wrong" in text or "what can go wrong" in text, name(page)


def test_the_version_is_the_newest_of_the_changelog() -> None:
    table = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    changelog = (PROJECT / table["path"]).read_text()
    assert re.findall(table["pattern"], changelog)[0] in changelog
    dated = re.findall(r"\n## \[([^\]]*)\](?: - \d{4}-\d\d-\d\d)?\n", changelog)
    assert dated[:2] == ["Unreleased", re.findall(table["pattern"], changelog)[0]]


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_files_that_pages_name_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`((?:build_pytorch|templates|tests|examples|\.ci)/[\w./-]+)`", text)
    assert [file for file in named if not (PROJECT / file).exists()] == []
