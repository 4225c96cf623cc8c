"""A second release is data: no code contains the name of a release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, Project, needs_nix
from world import Site, World, prepared_project

from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import matrix_reader

SECOND = (PROJECT / "tests/second-release.toml").read_text()
EIGHT = {
    f"sm120-{isa}" for isa in ("avx512", "avx2", "avx512vnni", "avx512bf16", "armv9", "armv8_2")
}
EIGHT |= {"sm86-avx2", "sm90-avx512"}


@pytest.fixture
def two(project: Project) -> Project:
    """The project with the second release beside the first."""
    matrix = project.root / "matrix.toml"
    matrix.write_text(matrix.read_text() + SECOND)
    return project


def test_it_renders_beside_the_first(two: Project) -> None:
    done = two.invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "52 of 52 recipes" in done.stdout
    written = {path.stem for path in (two.root / "cuda12/.flox/pkgs").glob("*.nix")}
    assert written == {f"pytorch-python312-cuda12_9-{variant}" for variant in EIGHT}
    for committed in (PROJECT / ".flox/pkgs").iterdir():
        assert (two.pkgs / committed.name).read_text() == committed.read_text()


def alone(project: Project, release: str) -> Project:
    """The project with one release only, and the axes of its matrix."""
    matrix = project.root / "matrix.toml"
    matrix.write_text(release)
    for recipe in project.pkgs.iterdir():
        recipe.unlink()
    return project


def test_it_renders_alone_and_verifies(project: Project) -> None:
    done = alone(project, SECOND).invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 recipes" in done.stdout
    readme = (project.root / "README.md").read_text()
    assert "**8 variants** of PyTorch 2.8.0 on CUDA 12.9, Python 3.12" in readme


def test_two_releases_do_not_share_a_file() -> None:
    text = SECOND.replace("python312", "python313").replace('"3.12"', '"3.13"')
    text = text.replace("cuda12/.flox/pkgs", ".flox/pkgs")
    text += '\n[[release.cuda12_9.group]]\ntitle = "c"\ncpu = ["avx2"]\n'
    with pytest.raises(MatrixError, match=r"which release\.cuda13_0 writes as well"):
        matrix_reader.parse(ONE + text)


def test_no_code_and_no_template_knows_a_release() -> None:
    known = re.compile(r"cuda13_0|2\.10|pytorch210|python313|6a030d5|CUDA 13\.0|235aefb7")
    # A row of the smoke script's table of PyTorch and Triton is a fact of all releases; `wheel:` is
    # followed by any version of the official wheel.
    allowed = re.compile(r'such as|docs: |wheel:|^    "[0-9.]+": "[~=0-9.]+",$')
    sources = [*(PROJECT / "build_pytorch").rglob("*.py"), *(PROJECT / "templates").rglob("*.j2")]
    for path in sources:
        for line in path.read_text().splitlines():
            assert not known.search(line) or allowed.search(line), f"{path.name}: {line.strip()}"


def test_a_release_without_cuda_and_with_one_variant_is_data_as_well(project: Project) -> None:
    release = SECOND[SECOND.index("[release.") : SECOND.index("[[release.")]
    cuda = release[release.index("[release.cuda12_9.cuda]") : release.index("[release.cuda12_9.py")]
    release = release.replace(cuda, "").replace("python312-cuda12_9", "python312")
    group = 'title = "one"\ncpu = ["armv9"]\n'
    pin = SECOND[SECOND.index("[pin.") :]
    done = alone(project, f"{release}\n[[release.cuda12_9.group]]\n{group}\n{pin}").invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 recipe," in done.stdout
    readme = (project.root / "README.md").read_text()
    assert "**1 variant** of PyTorch 2.8.0 without CUDA, Python 3.12: 1 one." in readme
    (recipe,) = (project.root / "cuda12/.flox/pkgs").iterdir()
    assert recipe.name == "pytorch-python312-cpu-armv9.nix"
    assert 'system = "aarch64-linux";' in recipe.read_text()


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
    assert project.invoke("all").returncode == 0

    def states() -> dict[str, str]:
        done = project.run("invoke", "status", "--packages", "*/cpu-avx2", "--json", env=world.env)
        return {row["id"]: row["steps"]["built"] for row in json.loads(done.stdout)["packages"]}

    built = world.built("copy/cpu-avx2")["by_id"]["copy/cpu-avx2"]
    assert "/copy-pytorch-python313-cpu-avx2/" in built["log"]
    assert states() == {"cuda13_0/cpu-avx2": "-", "copy/cpu-avx2": "yes"}
    both = world.built("cuda13_0/cpu-avx2,copy/cpu-avx2")["by_id"]
    actions = {name: row["action"] for name, row in both.items()}
    assert actions == {"cuda13_0/cpu-avx2": "build", "copy/cpu-avx2": "up to date"}
    assert set(states().values()) == {"yes"}
    links = sorted(link.name for link in project.root.glob("result-*"))
    ours = "pytorch-python313-cpu-avx2"
    assert links == [f"result-copy-{ours}", f"result-cuda13_0-{ours}"]
