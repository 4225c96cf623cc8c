"""Every mistake of mutations.py is caught, and not only by comparing with the renderer."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, WHOLE, needs_nix, write_recipes
from mutations import AUDIO, GPU, MATRIX, MUTATIONS, NIGHTLY, SMALL, VISION, Mutation
from one_release import first_release

from build_pytorch.base import digest
from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import CUDA_PACKAGES
from build_pytorch.verify import registry, verification

CATEGORIES = ("matrix", "text", "syntax", "evaluation", "hooks")
PAGE = PROJECT / "docs/reference/mutations.md"
WRITE = "WRITE_MUTATIONS"

TRITON_TABLE = f"""[release.cuda13_0.companion.triton]
version = "3.6.0"
owner = "triton-lang"
repo = "triton"
rev = "v3.6.0"
hash = "sha256-{"B" * 42}A="
hash_of = "v3.6.0"
unconfirmed = "not built"

[release.cuda13_0.companion.torchvision]"""
COPIES = {
    f"{name}-13_0.nix": f"{{ cudaPackages_13 }}: cudaPackages_13.{name}\n" for name in CUDA_PACKAGES
}


@pytest.fixture(scope="module")
def lines() -> Matrix:
    """The matrix of all lines."""
    return matrix_reader.load(PROJECT / "examples/all-lines/matrix.toml")


@pytest.fixture(scope="module")
def everything() -> Matrix:
    """The project's own matrix with all releases."""
    return matrix_reader.parse(WHOLE)


@pytest.fixture(scope="module")
def line_tree(lines: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the recipes of all lines that a mutation edits."""
    root = tmp_path_factory.mktemp("lines")
    used = {mutation.recipe for mutation in MUTATIONS}
    texts = recipes.render(lines)
    for variant in lines.variants:
        if variant.id in used:
            path = root / variant.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[variant.path])
    return root


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with nothing but the recipes."""
    root = tmp_path_factory.mktemp("mutants")
    pkgs = root / ".flox/pkgs"
    pkgs.mkdir(parents=True)
    for recipe in (PROJECT / ".flox/pkgs").glob("*.nix"):
        (pkgs / recipe.name).write_bytes(recipe.read_bytes())
    nightly = "releases/nightly/.flox/pkgs"
    shutil.copytree(PROJECT / nightly, root / nightly)
    shutil.copytree(PROJECT / "nix", root / "nix")
    companions = root / "companions/.flox/pkgs"
    companions.mkdir(parents=True)
    for name in (VISION, AUDIO):
        recipe = PROJECT / f"companions/.flox/pkgs/{name}.nix"
        (companions / recipe.name).write_bytes(recipe.read_bytes())
    return root


def small_matrix() -> str:
    """A matrix with one GPU variant, its wrapper and one without a GPU, for `SMALL`."""
    digests = ", ".join(f'"{name}" = "{digest.of_bytes(t.encode())}"' for name, t in COPIES.items())
    packages = f"""[release.cuda13_0.cuda.packages_from]
folder = "cuda-packages"
origin = "a test"
digests = {{ {digests} }}

[release.cuda13_0.python]"""
    text = ONE.replace("[release.cuda13_0.python]", packages, 1)
    text = text.replace("[release.cuda13_0.companion.torchvision]", TRITON_TABLE, 1)
    text = re.sub(r'(?m)^gpu = \["sm120", .*', 'gpu = ["sm120"]', text)
    text = re.sub(r'(?m)^cpu = \["avx2", .*', 'cpu = ["avx2"]', text)
    text = re.sub(r'\[\[release\.cuda13_0\.group\]\]\ntitle = "GPU ARM"\n(.+\n)+', "", text)
    return first_release(re.sub(r"\[\[release\.cuda13_0\.cleanup\]\]\n(.+\n)+", "", text))


def small_checkout(root: Path, recipe: str = "", edit: Callable[[str], str] = str) -> Matrix:
    """Write the files of `SMALL` with an edit of one of them, and return its matrix."""
    name = recipe.removeprefix(SMALL)
    text = small_matrix()
    texts = {f"cuda-packages/{copy}": content for copy, content in COPIES.items()}
    if recipe == MATRIX:
        text = edited(text, edit)
    fleet = matrix_reader.parse(text)
    texts |= write_recipes(root, fleet)
    if name in texts:
        texts[name] = edited(texts[name], edit)
    for path, content in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return fleet


def edited(text: str, edit: Callable[[str], str]) -> str:
    mutant = edit(text)
    assert mutant != text
    return mutant


def categories_of(result: verification.VerificationResult) -> set[str]:
    """The categories that found an error or a warning."""
    category_of = {
        check.id: category for category in CATEGORIES for check in registry.checks_of(category)
    }
    return {category_of[finding.check] for finding in result.findings}


def caught_by(fleet: Matrix, root: Path, recipe: str, edit: Callable[[str], str]) -> set[str]:
    """The categories that find an error or a warning once a recipe is edited."""
    recipe, _, imported = recipe.partition(" by ")
    names = {recipe, f"pytorch-python313-{recipe}"}
    package = next(p for p in fleet.packages if names & {p.id, p.package})
    path, variant = root / (imported or package.path), package.variant
    text = path.read_text()
    try:
        path.write_text(edited(text, edit))
        result = verification.verify(fleet, root, variants=[variant], only=CATEGORIES, trusted=True)
    finally:
        path.write_text(text)
    return categories_of(result)


@pytest.fixture(scope="module")
def caught() -> Iterator[dict[str, set[str]]]:
    """Filled by the tests of single mutations, for the table."""
    table: dict[str, set[str]] = {}
    yield table
    if os.environ.get(WRITE) and len(table) == len(MUTATIONS):
        PAGE.write_text(page(table))


def page(table: dict[str, set[str]]) -> str:
    """docs/reference/mutations.md."""
    total = len(table)
    shares = [
        f"| {category} | {count} | {100 * count // total} % |"
        for category in CATEGORIES
        for count in [sum(category in categories for categories in table.values())]
    ]
    rows = [
        f"| {name} | "
        + " | ".join("yes" if category in categories else "" for category in CATEGORIES)
        + " |"
        for name, categories in table.items()
    ]
    return "\n".join(
        [
            "# What the checks catch",
            "",
            "<!-- Generated by `WRITE_MUTATIONS=1 nox -s tests -- tests/test_mutations.py`. -->",
            "",
            f"{total} ways in which a recipe, matrix.toml or a copied file goes wrong, each as an "
            "edit of a correct one, and the categories of `nox -s verify` that report it. The "
            "comparison with the rendered text reports all edits of recipes and is left out: it "
            "shows that a recipe was edited, not that it is wrong.",
            "",
            "| category | caught | share |",
            "|---|--:|--:|",
            *shares,
            "",
            "| mistake | " + " | ".join(CATEGORIES) + " |",
            "|---|" + ":-:|" * len(CATEGORIES),
            *rows,
            "",
        ]
    )


@needs_nix
def test_the_small_checkout_is_right(tmp_path: Path) -> None:
    fleet = small_checkout(tmp_path)
    assert [variant.id for variant in fleet.variants] == [
        "sm120-avx2",
        "sm120-avx2-wrapper",
        "cpu-avx2",
    ]
    result = verification.verify(fleet, tmp_path, only=CATEGORIES, trusted=True)
    assert [f for f in result.findings if f.severity != "note"] == []


def test_there_are_enough_and_no_name_is_used_twice() -> None:
    assert len(MUTATIONS) >= 60
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@needs_nix
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[m.name for m in MUTATIONS])
def test_a_mistake_is_caught(
    fleet: Matrix,
    tree: Path,
    lines: Matrix,
    line_tree: Path,
    everything: Matrix,
    caught: dict[str, set[str]],
    tmp_path: Path,
    mutation: Mutation,
) -> None:
    if mutation.recipe.startswith(SMALL):
        own = small_checkout(tmp_path, mutation.recipe, mutation.edit)
        result = verification.verify(own, tmp_path, only=CATEGORIES, trusted=True)
        categories = categories_of(result)
    else:
        here = (lines, line_tree) if "/" in mutation.recipe.partition(" by ")[0] else (fleet, tree)
        if NIGHTLY in mutation.recipe:
            here = everything, tree
        categories = caught_by(*here, mutation.recipe, mutation.edit)
    caught[mutation.name] = categories
    assert categories, "only comparing with the rendered text notices it"


@needs_nix
def test_the_table_in_the_docs_is_this_one(caught: dict[str, set[str]]) -> None:
    if len(caught) != len(MUTATIONS):
        pytest.skip("needs all mutations in the same run")
    if not os.environ.get(WRITE):
        assert PAGE.read_text() == page(caught), f"run `{WRITE}=1 nox -s tests` and commit"


NEUTRAL: dict[str, Callable[[str], str]] = {
    "a comment": lambda text: text.replace("let\n", "let\n  # ours\n", 1),
    "blank lines": lambda text: text.replace("in\n", "\n\nin\n", 1),
    "spaces": lambda text: text.replace("[ gpuArchSM ]", "[  gpuArchSM  ]", 1),
    "another name for a let-binding": lambda text: text.replace(
        "inherit (nixpkgs_pinned) lib;", "library = nixpkgs_pinned.lib;"
    ).replace("${lib.", "${library."),
    "another name for an argument": lambda text: text.replace("oldAttrs", "old"),
    "another name for overlay arguments": lambda text: text.replace("pfinal", "pf").replace(
        "pprev", "pp"
    ),
    "a tag instead of a rev": lambda text: text.replace('rev = "v2.10.0"', 'tag = "v2.10.0"'),
    "an indented body": lambda text: text.replace("\n  pname", "\n    pname", 1),
    "quotes in the shell": lambda text: text.replace("MAX_JOBS=32", 'MAX_JOBS="32"').replace(
        "PYTORCH_BUILD_VERSION=2.10.0", "PYTORCH_BUILD_VERSION='2.10.0'"
    ),
    "printf instead of echo": lambda text: text.replace(
        'echo "2.10.0" > version.txt', "printf '2.10.0\\n' > version.txt"
    ),
    "a path with ./": lambda text: text.replace("> cmake/Modules", "> ./cmake/Modules"),
    "spaces in CMake": lambda text: text.replace("if(NOT", "if (NOT"),
    "a job limit written another way": lambda text: text.replace(
        "$((cores < 32 ? cores : 32))", "$((cores > 32 ? 32 : cores))"
    ),
    "links one by one": lambda text: re.sub(
        r"    for library in .*?\n      ln -sfn (\S+)\$library (\S+)\$library\n    done",
        lambda m: "\n".join(
            f"    ln -s {m[1]}{n} {m[2]}{n}" for n in ["cuda", "cub", "thrust", "nv"]
        ),
        text,
        flags=re.DOTALL,
    ),
    "a long option": lambda text: text.replace("ln -sfn", "ln --symbolic"),
    "interpolated": lambda text: text.replace("[ gpuArchSM ]", '[ "${gpuArchSM}" ]'),
    "a list over lines": lambda text: text.replace(' "-mfma" ]', '\n    "-mfma"\n  ]', 1),
}


@needs_nix
@pytest.mark.parametrize("edit", NEUTRAL.values(), ids=NEUTRAL)
def test_an_edit_without_meaning_trips_nothing_but_the_comparison(
    fleet: Matrix, tree: Path, edit: Callable[[str], str]
) -> None:
    assert caught_by(fleet, tree, GPU, edit) == set()


@needs_nix
def test_two_recipes_that_are_the_same_build_are_found(fleet: Matrix, tree: Path) -> None:
    pkgs = tree / ".flox/pkgs"
    one, other = (pkgs / f"pytorch-python313-cpu-{isa}.nix" for isa in ("avx512", "avx2"))
    kept = other.read_text()
    other.write_text(one.read_text())
    result = verification.verify(fleet, tree, only=["eval-distinct"])
    other.write_text(kept)
    assert [finding.path for finding in result.findings] == [
        ".flox/pkgs/pytorch-python313-cpu-avx512.nix"
    ]


@needs_nix
def test_many_recipes_that_end_the_process_are_all_named(fleet: Matrix, tree: Path) -> None:
    pkgs = tree / ".flox/pkgs"
    kept = {path: path.read_text() for path in sorted(pkgs.glob("*.nix"))[::3]}
    for path, text in kept.items():
        path.write_text(text.replace("python3Packages.torch.override", "nothing.override"))
    result = verification.verify(fleet, tree, only=["evaluates"])
    for path, text in kept.items():
        path.write_text(text)
    assert {finding.path for finding in result.findings} == {
        f".flox/pkgs/{path.name}" for path in kept
    }
    assert all("'nothing' missing" in finding.found for finding in result.findings)
    assert all(finding.line > 50 for finding in result.findings)


@needs_nix
def test_a_recipe_that_computes_forever_is_given_up_and_the_others_are_not(
    fleet: Matrix, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from build_pytorch.verify import recipe_evaluation

    monkeypatch.setattr(recipe_evaluation, "_SECONDS", 1.0)
    path = tree / ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
    kept = path.read_text()
    path.write_text(
        "{ pkgs }: builtins.foldl' (a: n: builtins.foldl' (b: m: b + m) 0 (builtins.genList (x: x)"
        " 20000)) 0 (builtins.genList (x: x) 100000)\n"
    )
    result = verification.verify(fleet, tree, only=["evaluates"])
    path.write_text(kept)
    (outcome,) = result.outcomes
    assert sum(path.startswith(".flox/pkgs/") for path in outcome.passed) == 43
    (finding,) = result.findings
    assert finding.path == f".flox/pkgs/{path.name}"
    assert finding.found == "no end after 1 s"


@needs_nix
def test_a_recipe_cannot_read_this_machine(fleet: Matrix, tree: Path) -> None:
    def edit(text: str) -> str:
        return text.replace('echo "Jobs:', '${builtins.readFile "/etc/hostname"} echo "Jobs:', 1)

    assert "evaluation" in caught_by(fleet, tree, GPU, edit)
