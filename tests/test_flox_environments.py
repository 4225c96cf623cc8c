"""Flox environments: mistakes in their files are found by flox-environment, missing ones made."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROJECT, WHOLE, Project, needs_nix
from mutations import swap

from build_pytorch.generate import flox_environments
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix import matrix_reader

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


@pytest.mark.slow
@needs_nix
def test_a_new_release_has_its_environments(whole: Project) -> None:
    """From the command to the check, with a release whose pin is known: no network is asked."""
    argv = ("bump", "--release", "cuda12_8", "--cuda", "12.9", "--as", "cuda12_9")
    done = whole.invoke(*argv)
    assert done.returncode == 0, done.stdout + done.stderr
    matrix = matrix_reader.load(whole.root)
    own = {"releases/cuda12_9", "releases/cuda12_9/companions"}
    assert own < set(flox_environments.environments(matrix))
    assert not list(flox_environments.faults(matrix, Tree(whole.root)))
    for folder in own:
        manifest = whole.root / folder / ".flox/env/manifest.toml"
        assert tomllib.loads(manifest.read_text())["options"]["systems"]
        assert (manifest.parents[1] / "env.json").exists()
        shutil.rmtree(whole.root / folder / ".flox/env")
    verified = whole.invoke("verify", "--only", "flox-environment")
    assert verified.returncode == 1
    assert all(f"{folder}/.flox" in verified.stdout for folder in own)
