"""A release is data: a second one, that of the newest PyTorch, and a revision of a branch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import (
    PROJECT,
    WHOLE,
    Project,
    error_line,
    needs_nix,
    write_recipes,
)
from world import Site, World, prepared_project

from build_pytorch.base.errors import MatrixError
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.versions import order
from build_pytorch.verify import verification

SECOND = (PROJECT / "tests/second-release.toml").read_text()
EIGHT = {
    f"sm120-{isa}" for isa in ("avx512", "avx2", "avx512vnni", "avx512bf16", "armv9", "armv8_2")
}
EIGHT |= {"sm86-avx2", "sm90-avx512"}
MATRIX = matrix_reader.parse(WHOLE)


def test_a_second_release_renders_beside_the_first(project: Project) -> None:
    matrix = project.root / "matrix.toml"
    matrix.write_text(matrix.read_text() + SECOND)
    assert "52 of 52 recipes" in project.succeeds("all")
    written = {path.stem for path in (project.root / "cuda12/.flox/pkgs").glob("*.nix")}
    assert written == {f"pytorch-python312-cuda12_9-{variant}" for variant in EIGHT}
    for committed in (PROJECT / ".flox/pkgs").iterdir():
        assert (project.pkgs / committed.name).read_text() == committed.read_text()


def without_cuda() -> str:
    """The second release without CUDA and with one variant."""
    release = SECOND[SECOND.index("[release.") : SECOND.index("[[release.")]
    release = re.sub(r"(?s)\[release.cuda12_9.cuda\].*?(?=\[release)", "", release)
    release = release.replace("python312-cuda12_9", "python312")
    group = '[[release.cuda12_9.group]]\ntitle = "one"\ncpu = ["armv9"]\n'
    return f"{release}\n{group}\n{SECOND[SECOND.index('[pin.') :]}"


@pytest.mark.parametrize(
    ("release", "says", "counts"),
    [
        (SECOND, "8 of 8 recipes", "**8 variants** of PyTorch 2.8.0 on CUDA 12.9, Python 3.12"),
        (
            without_cuda(),
            "1 of 1 recipe,",
            "**1 variant** of PyTorch 2.8.0 without CUDA, Python 3.12: 1 one.",
        ),
    ],
    ids=["with CUDA", "without CUDA"],
)
def test_any_release_renders_alone_and_verifies(
    project: Project, release: str, says: str, counts: str
) -> None:
    (project.root / "matrix.toml").write_text(release)
    for recipe in project.pkgs.iterdir():
        recipe.unlink()
    assert says in project.succeeds("all")
    assert counts in (project.root / "README.md").read_text()
    checked = project.invoke("verify", "--only", "gpu-arch")
    if "without CUDA" in counts:  # a check that has nothing to look at is no passed check
        assert "or what this project does not have" in error_line(checked)
    else:
        assert "1 passed" in checked.stdout


def test_no_code_and_no_template_knows_a_release() -> None:
    known = re.compile(r"cuda13_0|2\.10|pytorch210|python313|6a030d5|CUDA 13\.0|235aefb7")
    # A row of the smoke script's table of PyTorch and Triton is a fact of all releases; `wheel:` is
    # followed by any version of the official wheel.
    allowed = re.compile(r'such as|docs: |wheel:|^    "[0-9.]+": "[~=0-9.]+",$')
    sources = [*(PROJECT / "build_pytorch").rglob("*.py"), *(PROJECT / "templates").rglob("*.j2")]
    for path in sources:
        for line in path.read_text().splitlines():
            assert not known.search(line) or allowed.search(line), f"{path.name}: {line.strip()}"


@pytest.mark.slow
@needs_nix
def test_packages_of_one_name_in_two_catalogs_have_results_of_their_own(
    site: Site, tmp_path: Path
) -> None:
    project = prepared_project(tmp_path / "project")
    world = World(project, site, tmp_path)
    path = project.root / "matrix.toml"
    copy = 'like = "cuda13_0"\nfolder = "copy/.flox/pkgs"\ncatalog = "copy"\n'
    path.write_text(f"{path.read_text()}\n[release.copy]\n{copy}")
    project.succeeds("all")
    built = world.built("copy/cpu-avx2")["by_id"]["copy/cpu-avx2"]
    assert "/copy-pytorch-python313-cpu-avx2/" in built["log"]
    both = world.built("cuda13_0/cpu-avx2,copy/cpu-avx2")["by_id"]
    actions = {name: row["action"] for name, row in both.items()}
    assert actions == {"cuda13_0/cpu-avx2": "build", "copy/cpu-avx2": "up to date"}
    links = sorted(link.name for link in project.root.glob("result-*"))
    ours = "pytorch-python313-cpu-avx2"
    assert links == [f"result-copy-{ours}", f"result-cuda13_0-{ours}"]


# --- the newest PyTorch, on the model of the newer expression of nixpkgs ---

NEWEST = MATRIX.of_release("cuda13_2")
OVERLAY = (
    'version = "2.12.0", owner = "pytorch", repo = "pytorch", rev = "v2.12.0", '
    'hash = "sha256-RKiZLHBCneMtZKRgTEuW1K7+Jpi+tx11BMXuS1jC1xA=", hash_of = "v2.12.0"'
)


@pytest.mark.slow
@needs_nix
def test_another_pytorch_evaluates_on_the_newer_expression(tmp_path: Path) -> None:
    """There the build version follows the version of the package."""
    text = WHOLE.replace('version = "2.13.0", source = "nixpkgs"', OVERLAY)
    for name, version in {"torchvision": "0.28.0", "torchaudio": "2.11.0"}.items():
        old = f'companion.{name} = {{ version = "{version}", source = "nixpkgs" }}\n'
        assert old in text
        text = text.replace(old, f'companion.{name} = "none"\n')
    rule = next(rule for rule in known_hardware.load().raw["rule"] if rule["id"] == "cupti-paths")
    matrix = matrix_reader.parse(matrix_text.with_table(text, ("rule", 0), rule))
    texts, variants = write_recipes(tmp_path, matrix), matrix.of_release("cuda13_2")
    only = ["evaluation", "hooks"]
    result = verification.verify(matrix, tmp_path, variants=variants, only=only)
    assert [(f.path, f.check, f.found) for f in result.findings][:5] == []
    recipe = texts[variants[0].path]
    assert "extras/CUPTI" not in recipe  # which newer sources do not have
    assert '"-DCUDA_cupti_LIBRARY=${lib.getLib cuda_cupti}/lib/libcupti.so"' in recipe
    assert "export PYTORCH_BUILD_VERSION=2.12.0" in recipe
    assert "nixpkgs exports the version that it ships" not in recipe


def test_each_gpu_architecture_has_the_newest_torch_which_is_that_of_its_pin() -> None:
    pin = MATRIX.pins["september_2026"]
    assert pin.unconfirmed and pin.facts and pin.facts.unconfirmed, "until somebody built it"  # noqa: PT018
    gpus = {f"sm{code}" for code in (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)}
    assert {v.gpu_key for v in NEWEST if v.gpu_key} == gpus
    assert not any(v.impossible for v in NEWEST)
    assert all(source.is_of_pin for source in NEWEST[0].release.sources.values())
    # The torch of the pin has the patch with which the change of SM103 has no effect.
    every = {"one-architecture", "compress-size"}
    own = {"sm121-armv9": {"arch-specific-kernels"}, "sm110-armv9": {"own-libraries"}}
    for variant in NEWEST:
        wanted = every | own.get(variant.short_id, set()) if variant.gpu else set()
        assert {rule.id for rule in variant.effects.rules} == wanted, variant.id


# --- a revision of a moving branch, and CUDA packages from elsewhere ---

VERSION = "2.10.0.dev20251015"
REV = "6fc0ad22f0a07b6f38d138861c56a765d5a9bb02"
PLAIN, WRAPPER = MATRIX.of_release("nightly")


def changed(old: str, new: str) -> Matrix:
    """The matrix with an edit, which must be in release nightly."""
    before, mark, after = WHOLE.partition("[release.nightly]")
    assert old in after, f"{old!r} is not in the release"
    return matrix_reader.parse(before + mark + after.replace(old, new, 1))


def test_a_nightly_is_below_its_release_and_above_the_one_before() -> None:
    versions = [VERSION, "2.10.0", "2.11.0.dev20251222", "2.11.0rc1", "2.11", "2.11.1"]
    assert sorted({*versions}, key=order) == versions


def test_every_release_is_preferred_to_a_nightly() -> None:
    text = WHOLE.replace(f'"{VERSION}"', '"2.99.0.dev20260101"')
    newer = matrix_reader.parse(text.replace('"pytorch{torch}"', '"pytorch299{torch}"'))
    spark = saved_machines.load(PROJECT / "tests/machines/dgx-spark.json")
    assert choose(newer, spark).build.variant == "cuda13_2/sm121-armv9"


@needs_nix
def test_a_wrapper_compiles_nccl_for_a_gpu_that_its_pin_leaves_out(tmp_path: Path) -> None:
    """Its CUDA packages are replaced, and then NCCL is changed."""
    of_pin = ("pin", "february_2026", "facts")
    facts = known_hardware.load().raw["pin"]["february_2026"]["facts"]
    text = matrix_text.with_table(WHOLE, of_pin, facts)
    place = (*of_pin, "cuda_sets", "cudaPackages_13_0", "capabilities")
    matrix = matrix_reader.parse(matrix_text.with_values(text, {place: ["10.0", "12.0"]}))
    write_recipes(tmp_path, matrix)
    wrapper = matrix.of_release("nightly")[1]
    assert "own-libraries" in wrapper.effects.fixes
    found = verification.verify(matrix, tmp_path, variants=[wrapper], only=["evaluates"])
    assert found.findings == []


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
        changed(old, new)
    assert says in str(caught.value)
    assert "matrix.toml:" in str(caught.value)


@needs_nix
def test_the_plain_recipe_takes_no_packages_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / PLAIN.path).parent.mkdir(parents=True)
    (tmp_path / PLAIN.path).write_text((PROJECT / WRAPPER.path).read_text())
    only = ["eval-cuda-packages"]
    result = verification.verify(MATRIX, tmp_path, variants=[PLAIN], only=only)
    names = ("cudatoolkit", "cudnn", "libcusparse_lt", "nccl")
    wrong = [f"{origin}.{name}" for origin in ("checkout", "cudaPackages") for name in names]
    assert [item.found.partition(": ")[0] for item in result.findings] == wrong
    assert [item.expected for item in result.findings] == [f"{name}: nothing" for name in wrong]


def test_a_hash_that_is_not_taken_yet_is_a_note_and_no_warning() -> None:
    assert verification.verify(MATRIX, PROJECT, only=["stale-hash"]).findings == []
    packages = WRAPPER.packages_from
    assert packages
    without = changed(f'hash = "{packages.hash}"', 'hash = ""')
    for matrix, untaken in ((MATRIX, ["torch"]), (without, ["torch", "cuda-packages"])):
        plain, wrapper = matrix.of_release("nightly")
        assert [name for name, _ in plain.untaken_hashes] == ["torch"]
        assert [name for name, _ in wrapper.untaken_hashes] == untaken
        assert sum("no build begins" in note for note in matrix.notes) == len(untaken)


def test_the_wrapper_is_the_same_build_while_its_revision_is_the_one_that_was_read() -> None:
    assert (PLAIN.same_build_as, WRAPPER.same_build_as) == (None, PLAIN)
    packages = WRAPPER.packages_from
    assert packages
    other = changed(f'rev = "{packages.rev}"', f'rev = "{REV}"')
    assert other.of_release("nightly")[1].same_build_as is None
