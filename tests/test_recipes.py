"""Recipes: what they hold, that they are Nix, and that no value of the matrix can become code."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomlkit
from conftest import ONE, PROJECT, needs_nix, write_recipes
from one_release import written_out

from build_pytorch.base import digest
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.evaluation import shared_import
from build_pytorch.verify import verification

TEXT = ONE


@pytest.fixture(scope="module")
def texts(matrix: Matrix) -> dict[str, str]:
    rendered = recipes.render(matrix)
    return {variant.id: rendered[variant.path] for variant in matrix.variants}


def test_committed_recipes_are_the_rendered_ones(matrix: Matrix, texts: dict[str, str]) -> None:
    for variant in matrix.variants:
        committed = (PROJECT / variant.path).read_text()
        assert committed == texts[variant.id], "run `invoke all` and commit"


def test_rendering_is_deterministic_across_processes() -> None:
    script = (
        "from build_pytorch.matrix import matrix_reader; from build_pytorch.generate import recipes;"
        "print(recipes.render(matrix_reader.load()))"
    )
    argv, seeds = [sys.executable, "-c", script], ("1", "2")
    one, other = (
        subprocess.run(
            argv, env={"PYTHONHASHSEED": it}, cwd=PROJECT, capture_output=True, check=True
        )
        for it in seeds
    )
    assert one.stdout == other.stdout != b""


def test_the_header_names_package_source_and_phase_and_carries_a_digest(
    matrix: Matrix, texts: dict[str, str]
) -> None:
    for variant in matrix.variants:
        text = texts[variant.id]
        template = "gpu.nix.j2" if variant.gpu else "cpu.nix.j2"
        header = text.partition("\n\n")[0]
        assert header.startswith(f"# {variant.package}\n")
        assert f"Generated from matrix.toml by templates/{template}" in header
        assert f"`invoke phase{variant.phase.number}`" in header
        assert digest.is_intact(text)
        assert not digest.is_intact(text.replace("-mfma", "-mfmb").replace("armv", "armw"))
        assert text.endswith("})\n")
        assert not re.search(r"\n\n\n|[ \t]\n|\t", text), "recipes read well"


HOSTILE = (
    "AVX2'${builtins.abort 1}", "''${builtins.abort 1}", "'", "''", "$", "$${x}", "\\", '"',
    "A # */ `id` $(id) | <b> </pre> *x* [a](b) ''\\n",
)  # fmt: skip


@needs_nix
def test_hostile_text_stays_text_in_every_recipe(tmp_path: Path) -> None:
    document = tomlkit.parse(written_out(TEXT))
    texts = itertools.cycle(HOSTILE)
    for cpu in document["cpu"].values():
        cpu |= {"title": next(texts), "cpus": [next(texts)], "lacking": [next(texts)]}
    for gpu in document["gpu"].values():
        gpu |= {"family": next(texts), "hosts": {p: [next(texts)] for p in gpu["hosts"]}}
    matrix = matrix_reader.parse(tomlkit.dumps(document))
    write_recipes(tmp_path, matrix)
    checks = ["evaluates", "eval-meta", "eval-warnings"]
    outcomes = verification.verify(matrix, tmp_path, only=checks).checks
    assert {(outcome.state, outcome.reason) for outcome in outcomes} == {("passed", "")}


def test_a_value_without_a_quoting_filter_is_refused(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    for name, (text, says) in {
        "bare.j2": ("x = {{ value }};", "without a quoting filter"),
        "wrong.j2": ("x = {{ value | name }};", "not a name"),
        "misspelled.j2": ("x = {{ valu | nix }};", "'valu' is undefined"),
        "broken.j2": ("\n{% if %}", r"templates/broken\.j2:2"),
    }.items():
        (templates / name).write_text(text)
        with pytest.raises(BuildPytorchError, match=says):
            recipes.render_template(tmp_path, name, value='"; evil')
    with pytest.raises(BuildPytorchError, match="missing; restore it"):
        recipes.render_template(tmp_path, "none.j2")


def test_release_nix_imports_nixpkgs_once_for_recipes_with_the_same_overlays(
    matrix: Matrix, texts: dict[str, str]
) -> None:
    """An import for each GPU and platform, and one for CPUs of each platform."""
    rendered = recipes.render(matrix)
    release = recipes.release_nix(matrix, rendered)
    files = re.findall(r"(?m)^  nixpkgs_\S+ = import \./(\S+\.nix);$", release)
    assert len({rendered[file] for file in files}) == len(files) == 9 + 2 + 1
    assert len({shared_import(text) for text in texts.values()}) == len(files)
