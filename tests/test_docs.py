"""Generated text in docs, never in prose; mistakes in Flox environments are found and made good."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROJECT, WHOLE, Project
from mutations import swap

from build_pytorch.generate import flox_environments
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix

NOTES = "docs/explanation/build-notes-2.10-cuda13.md"


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


def test_the_notes_have_a_section_for_each_fix_with_its_signature() -> None:
    notes = (PROJECT / NOTES).read_text()
    for signature in (
        "has no member named 'clockRate'",
        "cccl/cuda/std/utility: No such file or directory",
        "TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0",
        "file INSTALL cannot find",
        "PyTorch: CUDA cannot be found.",
    ):
        assert signature in notes
    fixes = [int(number) for number in re.findall(r"(?m)^### (\d)\. ", notes)]
    assert fixes == list(range(1, len(fixes) + 1))


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
