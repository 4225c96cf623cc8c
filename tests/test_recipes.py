"""Recipes: what they hold, that they are Nix, and that no value of the matrix can become code."""

from __future__ import annotations

import itertools
import json
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
from build_pytorch.verify import recipe_facts, verification

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
        "import hashlib; from build_pytorch.matrix import matrix_reader; from build_pytorch.generate import recipes;"
        "t = ''.join(recipes.render(matrix_reader.load()).values());"
        "print(hashlib.sha256(t.encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


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


def test_recipes_read_well(texts: dict[str, str]) -> None:
    for text in texts.values():
        assert text.endswith("})\n")
        assert "\n\n\n" not in text
        assert not re.search(r"[ \t]\n", text)
        assert "\t" not in text


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
    (templates / "bare.j2").write_text("x = {{ value }};")
    (templates / "wrong.j2").write_text("x = {{ value | name }};")
    (templates / "misspelled.j2").write_text("x = {{ valu | nix }};")
    (templates / "broken.j2").write_text("\n{% if %}")
    for name, says in {
        "bare.j2": "without a quoting filter",
        "wrong.j2": "not a name",
        "misspelled.j2": "'valu' is undefined",
        "broken.j2": r"templates/broken\.j2:2",
        "none.j2": "missing; restore it",
    }.items():
        with pytest.raises(BuildPytorchError, match=says):
            recipes.render_template(tmp_path, name, value='"; evil')


@needs_nix
def test_release_nix_imports_nixpkgs_once_for_recipes_with_the_same_overlays(
    tmp_path: Path,
) -> None:
    """An import for each GPU and platform, one for CPUs, one of the recipe that cleanup keeps."""
    (tmp_path / "model").symlink_to(recipe_facts.MODEL)
    (tmp_path / "nixpkgs.nix").write_text(
        'args: builtins.trace "imported ${args.system}" (import ./model args)\n'
    )
    names = [path.stem for path in (PROJECT / ".flox/pkgs").glob("*.nix")]
    scope = f"""
      let scope = {{
        import = builtins.scopedImport scope;
        builtins = builtins // {{ fetchTarball = _: {tmp_path}/nixpkgs.nix; }};
      }};
      release = scope.import {PROJECT}/release.nix {{ }};
      in map (name: (%s).drvPath) (builtins.fromJSON ''{json.dumps(names)}'')
    """

    def evaluated(package: str) -> tuple[list[str], int]:
        argv = ["nix-instantiate", "--eval", "--strict", "--json", "--store", "dummy://", "-E"]
        done = subprocess.run([*argv, scope % package], check=True, capture_output=True, text=True)
        return json.loads(done.stdout), done.stderr.count("trace: imported ")

    alone, imports = evaluated(f'scope.import ({PROJECT}/.flox/pkgs + "/${{name}}.nix") {{ }}')
    assert evaluated("release.${name}") == (alone, 9 + 2 + 1 + 1)
    assert (len(set(alone)), imports) == (44, 44)
