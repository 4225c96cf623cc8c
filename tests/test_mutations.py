"""Every mistake of mutations.py is caught, and not only by comparing with the renderer."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, WHOLE, needs_nix, write_recipes
from msgspec import structs
from mutations import GPU, MATRIX, MUTATIONS, SMALL, both, swap
from one_release import one_release

from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix import evaluation
from build_pytorch.verify import verification
from build_pytorch.verify.check import Finding

Edit = Callable[[str], str]

CATEGORIES = ("matrix", "text", "evaluation", "hooks")
CAUGHT = PROJECT / "tests/fixtures/mutations.json"
"""The checks that report each mistake; WRITE_MUTATIONS=1 with this file's tests writes it."""
WRITE = "WRITE_MUTATIONS"


def small_matrix() -> str:
    """A matrix with one GPU variant and one without a GPU but MKL, for `SMALL`."""
    text = re.sub(r'(?m)^gpu = \["sm120", .*', 'gpu = ["sm120"]', ONE)
    text = re.sub(r'(?m)^cpu = \["avx2", .*', 'cpu = ["avx2"]', text)
    text = re.sub(r'\[\[release\.cuda13_0\.group\]\]\ntitle = "GPU ARM"\n(.+\n)+', "", text)
    text = text.replace('title = "CPU-only"', 'title = "CPU-only"\nblas = "mkl"', 1)
    return one_release(re.sub(r"(?m)^cleanup = \[\n(  .+\n)+\]\n", "", text))


class Checkout:
    """Recipes of several matrices in one tree, each with an edit and in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        own = matrix_reader.parse(WHOLE)
        lines = matrix_reader.parse((PROJECT / "examples/all-lines/matrix.toml").read_text())
        small = matrix_reader.parse(small_matrix())
        self.sources = {"own": own, "lines": lines, "small": small}
        self.texts = {name: recipes.render(matrix) for name, matrix in self.sources.items()}
        self.packages: list[Package] = []

    def add(self, name: str, edit: Edit) -> str:
        """Write a recipe with an edit, and the one that it imports; return their folder."""
        name, _, imported = name.partition(" by ")
        key = "lines" if re.match(r"l\d+/", name) else "own"
        if name.startswith(SMALL):
            key, name = "small", Path(name).stem
        names = {name, f"pytorch-python313-{name}"}
        source = next(p for p in self.sources[key].packages if names & {p.id, p.package})
        folder = f"m{len(self.packages)}"
        for package in {source.path: source, source.variant.path: source.variant}.values():
            text = self.texts[key][package.path]
            # Each copy of a companion has its own copy of what companions import.
            text = text.replace("../../../nix/", f"../../../../nix/{folder}/")
            path = self.root / folder / package.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(edited(text, edit) if package is source and not imported else text)
        if source.companion:
            shutil.copytree(PROJECT / "nix", self.root / "nix" / folder)
        if imported:
            path = self.root / "nix" / folder / imported.removeprefix("nix/")
            path.write_text(edited(path.read_text(), edit))
        self.packages.append(self._moved(source, key, folder))
        return f"{folder}/"

    def _moved(self, package: Package, key: str, folder: str) -> Package:
        """A package in a release that is below a folder and has this package alone."""
        old = package.release
        release = structs.replace(
            old,
            folder=f"{folder}/{old.folder}",
            catalog=folder,
            nixpkgs=structs.replace(old.nixpkgs, pin=f"{key}-{old.nixpkgs.pin}"),
            like=None,
        )
        of_release = {"release": release, "release_name": folder}
        moved, variant = (
            structs.replace(
                it, **of_release, folder=f"{folder}/{it.folder}", id=f"{folder}/{it.id}"
            )
            for it in (package, package.variant)
        )
        return structs.replace(moved, torch=variant) if package.companion else moved

    def matrix(self) -> Matrix:
        """The matrix of all recipes that were added."""
        variants = tuple(package.variant for package in self.packages)
        return structs.replace(
            self.sources["own"],
            releases={variant.release_name: variant.release for variant in variants},
            pins={
                f"{key}-{name}": pin
                for key, matrix in self.sources.items()
                for name, pin in matrix.pins.items()
            },
            rules=(),
            variants=variants,
            companions=tuple(p for p in self.packages if p.companion),
        )

    def verified(self) -> list[Finding]:
        """The findings in all recipes: one verification, one Nix."""
        return verification.verify(self.matrix(), self.root, only=CATEGORIES).findings


def edited(text: str, edit: Edit) -> str:
    mutant = edit(text)
    assert mutant != text
    return mutant


LIBRARIES = ("cuda", "cub", "thrust", "nv")
LINKS = r"    for library in .*?\n      ln -sfn (\S+)\$library \"(\S+)\$library\"\n    done"
NEUTRAL: dict[str, Edit] = {
    "a comment": swap("let\n", "let\n  # ours\n"),
    "blank lines": swap("in\n", "\n\nin\n"),
    "spaces": swap("[ gpuArchSM ]", "[  gpuArchSM  ]"),
    "another name for a let-binding": lambda text: re.sub(
        r"\blib\.",
        "library.",
        text.replace("inherit (nixpkgs_pinned) lib;", "library = nixpkgs_pinned.lib;"),
    ),
    "another name for an argument": lambda text: text.replace("oldAttrs", "old"),
    "another name for overlay arguments": lambda text: re.sub(r"\bp(final|prev)\b", r"q\1", text),
    "a tag instead of a rev": swap('rev = "v2.10.0"', 'tag = "v2.10.0"'),
    "an indented body": swap("\n  pname", "\n    pname"),
    "quotes in the shell": both(
        swap("MAX_JOBS=32", 'MAX_JOBS="32"'),
        swap("PYTORCH_BUILD_VERSION=2.10.0", "PYTORCH_BUILD_VERSION='2.10.0'"),
    ),
    "printf instead of echo": swap('echo "2.10.0" > version', "printf '2.10.0\\n' > version"),
    "a path with ./": swap("> cmake/Modules", "> ./cmake/Modules"),
    "spaces in CMake": swap("if(NOT", "if (NOT"),
    "a job limit written another way": swap("cores < 32 ? cores : 32", "cores > 32 ? 32 : cores"),
    "links one by one": lambda text: re.sub(
        LINKS,
        lambda m: "\n".join(
            f'ln -s {m[1]}{n} "{m[2]}{n}"' for n in ("cuda", "cub", "thrust", "nv")
        ),
        text,
        flags=re.DOTALL,
    ),
    "a long option": swap("ln -sfn", "ln --symbolic"),
    "interpolated": swap("[ gpuArchSM ]", '[ "${gpuArchSM}" ]'),
    "a list over lines": swap(' "-mfma" ]', '\n    "-mfma"\n  ]'),
}
UNCHANGED = list(dict.fromkeys(m.recipe for m in MUTATIONS if m.recipe != MATRIX))


def caught(root: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The checks that find each mistake, and each edit that is none: all in one tree and run."""
    checkout = Checkout(root)
    recipe_edits = [m for m in MUTATIONS if m.recipe != MATRIX]
    folders = {m.name: checkout.add(m.recipe, m.edit) for m in recipe_edits}
    others = {name: checkout.add(GPU, edit) for name, edit in NEUTRAL.items()}
    others |= {recipe: checkout.add(recipe, lambda text: text + "\n") for recipe in UNCHANGED}
    findings = checkout.verified()

    def checks_in(folder: str) -> set[str]:
        return {finding.check for finding in findings if finding.path.startswith(folder)}

    found = {name: checks_in(folder) for name, folder in folders.items()}
    for mutation in MUTATIONS:
        if mutation.recipe == MATRIX:  # no recipe is edited: Nix is not needed
            place = root / mutation.name
            matrix = matrix_reader.parse(edited(small_matrix(), mutation.edit))
            write_recipes(place, matrix)
            result = verification.verify(matrix, place, only=["matrix", "text"])
            found[mutation.name] = {finding.check for finding in result.findings}
    in_order = {mutation.name: found[mutation.name] for mutation in MUTATIONS}
    return in_order, {name: checks_in(folder) for name, folder in others.items()}


def as_json(table: dict[str, set[str]]) -> str:
    """The text of CAUGHT: a line of JSON for each mistake."""
    lines = [f" {json.dumps(name)}: {json.dumps(sorted(table[name]))}" for name in table]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@needs_nix
def test_every_mistake_is_caught_and_an_edit_without_meaning_trips_only_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, as all edits are verified together; more end Nix than one is asked to correct."""
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 255
    monkeypatch.setattr(evaluation, "MOST_ERRORS", 1000)
    mutations, others = caught(tmp_path)
    missed = [name for name, checks in mutations.items() if not checks]
    assert missed == [], "only comparing with the rendered text notices them"
    if os.environ.get(WRITE):
        CAUGHT.write_text(as_json(mutations))
    assert CAUGHT.read_text() == as_json(mutations), f"run `{WRITE}=1 nox -s tests` and commit"
    assert {name: checks for name, checks in others.items() if checks} == {}


@pytest.fixture
def few(matrix: Matrix, tmp_path: Path) -> tuple[list[Variant], Path]:
    """The CPU-only variants and a checkout with their recipes."""
    shutil.copytree(PROJECT / ".flox", tmp_path / ".flox")
    return [variant for variant in matrix.variants if variant.gpu is None], tmp_path


@needs_nix
def test_two_recipes_that_are_the_same_build_are_found(
    matrix: Matrix, few: tuple[list[Variant], Path]
) -> None:
    variants, root = few
    (root / variants[1].path).write_bytes((root / variants[0].path).read_bytes())
    result = verification.verify(matrix, root, variants=variants, only=["eval-distinct"])
    assert [finding.path for finding in result.findings] == [variants[1].path]


@needs_nix
def test_a_recipe_that_computes_forever_is_given_up_and_the_others_are_not(
    matrix: Matrix, few: tuple[list[Variant], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "SECONDS", 3.0)
    variants, root = few
    (root / variants[0].path).write_text(
        "{ pkgs }: builtins.foldl' (a: n: builtins.foldl' (b: m: b + m) 0 (builtins.genList (x: x)"
        " 20000)) 0 (builtins.genList (x: x) 100000)\n"
    )
    result = verification.verify(matrix, root, variants=variants, only=["evaluates"])
    (outcome,) = result.checks
    assert (outcome.state, outcome.reason) == ("failed", "1 recipe not evaluated")
    (finding,) = result.findings
    assert (finding.path, finding.found) == (variants[0].path, "no end after 3 s")
