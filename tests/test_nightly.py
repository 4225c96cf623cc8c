"""A release that is a revision of a moving branch, and CUDA packages from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import PROJECT, WHOLE, copied_project, needs_nix

from build_pytorch.base.errors import MatrixError
from build_pytorch.generate import recipes
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.versions import order
from build_pytorch.verify import verification

VERSION = "2.10.0.dev20251015"
REV = "6fc0ad22f0a07b6f38d138861c56a765d5a9bb02"


@pytest.fixture(scope="module")
def whole_matrix() -> Matrix:
    """The matrix of this project."""
    return matrix_reader.parse(WHOLE)


def nightly(matrix: Matrix) -> tuple[Variant, Variant]:
    """The plain variant and the wrapper."""
    plain, wrapper = matrix.of_release("nightly")
    return plain, wrapper


def changed(old: str, new: str) -> str:
    """The text of the matrix with an edit, which must be in release nightly."""
    before, mark, after = WHOLE.partition("[release.nightly]")
    assert old in after, f"{old!r} is not in the release"
    return before + mark + after.replace(old, new, 1)


def test_a_nightly_is_below_its_release_and_above_the_one_before() -> None:
    versions = [VERSION, "2.10.0", "2.11.0.dev20251222", "2.11.0rc1", "2.11", "2.11.1"]
    backwards = versions[::-1]
    assert sorted(backwards, key=order) == versions


@needs_nix
def test_a_wrapper_compiles_nccl_for_a_gpu_that_its_pin_leaves_out(tmp_path: Path) -> None:
    """Its CUDA packages are replaced, and then NCCL is changed."""
    project = copied_project(tmp_path / "project", is_whole=True)
    text = (project.root / "matrix.toml").read_text()
    of_pin = ("pin", "february_2026", "facts")
    facts = known_hardware.load().raw["pin"]["february_2026"]["facts"]
    text = matrix_text.with_table(text, of_pin, facts)
    place = (*of_pin, "cuda_sets", "cudaPackages_13_0", "capabilities")
    text = matrix_text.with_values(text, {place: ["10.0", "12.0"]})
    (project.root / "matrix.toml").write_text(text)
    wrapper = nightly(matrix_reader.load(project.root))[1]
    assert "own-libraries" in wrapper.effects.fixes
    assert project.invoke("phase3").returncode == 0
    matrix = matrix_reader.load(project.root)
    found = verification.verify(matrix, project.root, variants=[wrapper], only=["evaluates"])
    assert found.findings == []


def test_every_release_is_preferred_to_a_nightly(whole_matrix: Matrix) -> None:
    newer = matrix_reader.parse(
        changed(f'"{VERSION}"', '"2.99.0.dev20260101"').replace(
            'pname = "pytorch{torch}"', 'pname = "pytorch299{torch}"'
        )
    )
    spark = saved_machines.load(PROJECT / "tests/machines/dgx-spark.json")
    for matrix in (whole_matrix, newer):
        assert choose(matrix, spark).build.variant == "cuda13_2/sm121-armv9"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (f'rev = "{REV}"', 'rev = "main"', "40 hex digits, never a branch"),
        (VERSION, "2.10.0.dev20251399", "a version such as 2.10.0 or 2.11.0.dev20251222"),
        (VERSION, "2.10.1.dev20251015", "a version such as 2.10.0 or 2.11.0.dev20251222"),
        ('rev = "0696b3dbc42d8ec2de3e1edcc09ca9d1161db73a"', 'rev = "main"', "packages_from.rev"),
        ('owner = "barstoolbluz"', 'path = "../build-cudatoolkit"', "packages_from.path"),
        ('owner = "barstoolbluz"', 'owner = "b"\nfolder = "cuda"', "or a folder of copies"),
        ('owner = "barstoolbluz"\n', "", "packages_from.owner: found nothing; allowed: a repo"),
        ('owner = "barstoolbluz"', 'folder = "../cuda"', "a folder below the root, without .."),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, says: str) -> None:
    with pytest.raises(MatrixError) as caught:
        matrix_reader.parse(changed(old, new))
    assert says in str(caught.value)
    assert "matrix.toml:" in str(caught.value)


@needs_nix
def test_the_plain_recipe_takes_no_packages_from_elsewhere(
    whole_matrix: Matrix, tmp_path: Path
) -> None:
    plain, wrapper = nightly(whole_matrix)
    path = tmp_path / plain.path
    path.parent.mkdir(parents=True)
    path.write_text(recipes.render(whole_matrix)[wrapper.path])
    only = ["eval-cuda-packages"]
    result = verification.verify(whole_matrix, tmp_path, variants=[plain], only=only)
    found = [item.found.partition(": ")[0] for item in result.findings]
    names = ("cudatoolkit", "cudnn", "libcusparse_lt", "nccl")
    wrong = [f"{origin}.{name}" for origin in ("checkout", "cudaPackages") for name in names]
    assert found == wrong
    assert [item.expected for item in result.findings] == [f"{name}: nothing" for name in wrong]


def test_the_hash_is_not_taken_yet_and_the_repository_has_no_warning() -> None:
    matrix = matrix_reader.load(PROJECT)
    plain, wrapper = nightly(matrix)
    assert [name for name, _ in plain.untaken_hashes] == ["torch"]
    assert [name for name, _ in wrapper.untaken_hashes] == ["torch"]
    assert verification.verify(matrix, PROJECT, only=["stale-hash"]).findings == []
    assert sum("no build begins" in note for note in matrix.notes) == 1
    hash_ = wrapper.packages_from and wrapper.packages_from.hash
    without = matrix_reader.parse(changed(f'hash = "{hash_}"', 'hash = ""'))
    assert [name for name, _ in nightly(without)[1].untaken_hashes] == ["torch", "cuda-packages"]
    assert sum("no build begins" in note for note in without.notes) == 2


def test_the_wrapper_is_the_same_build_while_its_revision_is_the_one_that_was_read(
    whole_matrix: Matrix,
) -> None:
    plain, wrapper = nightly(whole_matrix)
    assert (plain.same_build_as, wrapper.same_build_as) == (None, plain)
    packages = wrapper.packages_from
    assert packages
    other = matrix_reader.parse(changed(f'rev = "{packages.rev}"', f'rev = "{REV}"'))
    assert nightly(other)[1].same_build_as is None
