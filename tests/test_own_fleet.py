"""A fleet of one's own: the package installed from its wheel, in a folder with a matrix.toml."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, WHOLE, Project, error_line, needs_nix
from world import Site, model

from build_pytorch.generate import phase_plan
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Phase
from build_pytorch.tasks.command import TASKS

SOURCES: Final = (
    *("build_pytorch", "examples", "templates", "nix", "matrix.toml"),
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"),
)
"""What a wheel is made of."""

MISSING: Final = [
    name for name in ("hatchling", "pip", "venv") if not importlib.util.find_spec(name)
]


class Installed:
    """The package in a virtualenv of its own, and a folder to use it in."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self.bin = venv / "bin"
        self.folder = folder
        folder.mkdir()

    def run(self, *words: str, cwd: str = ".") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / "build-pytorch", *words],
            cwd=self.folder / cwd,
            env=os.environ | {"PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def succeeds(self, *words: str, cwd: str = ".") -> str:
        done = self.run(*words, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self) -> dict[str, str]:
        """The text of each file by its path, without what a run remembers."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        names = {path.relative_to(self.folder).as_posix(): path.read_text() for path in found}
        return {name: text for name, text in names.items() if not name.startswith(".build-pytorch")}


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtualenv with the wheel. Its dependencies are those of these tests: no network."""
    if MISSING:
        pytest.skip(f"a wheel is built and installed with {', '.join(MISSING)}: not installed")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copy
        copy(PROJECT / name, source / name)
    steps = (
        (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)),
        (sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")),
    )
    for argv in steps:
        subprocess.run(argv, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python"))
    options = ("install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    subprocess.run([*pip, *options, str(wheel)], check=True, capture_output=True)
    shutil.rmtree(source)
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    site = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    (Path(site) / "dependencies.pth").write_text("\n".join(packages) + "\n")
    return folder / "venv"


@pytest.fixture
def installed(venv: Path, tmp_path: Path) -> Installed:
    return Installed(venv, tmp_path / "fleet")


def test_init_refuses_a_project_and_keeps_a_gitignore(project: Project, tmp_path: Path) -> None:
    found = error_line(project.invoke("init", "."))
    assert found.startswith(f"{project.root}: a project already: it has matrix.toml release.nix")
    new = tmp_path / "deep/new"
    new.mkdir(parents=True)
    (new / ".gitignore").write_text("/ours\n")
    (new / "matrix.toml").touch()
    said = project.succeeds("init", str(new))
    assert "kept        .gitignore   exists; it stays as it is" in said
    assert (new / ".gitignore").read_text() == "/ours\n"
    assert [v.id for v in matrix_reader.load(new).variants] == ["sm120-avx2"]
    before = {path: path.read_bytes() for path in new.rglob("*") if path.is_file()}
    assert "a project already" in error_line(project.invoke("init", str(new)))
    assert {path: path.read_bytes() for path in new.rglob("*") if path.is_file()} == before


def test_what_comes_after_init_leads_into_the_folder_of_any_name(
    project: Project, tmp_path: Path
) -> None:
    for name in ("a b", "it's", "$HOME", "ü"):
        said = project.invoke("init", str(tmp_path / name)).stdout
        command = said.partition("Next: ")[2].replace("\\\n", "").partition(" && ")[0]
        argv = ["bash", "-c", f"{command} && pwd -P"]
        there = subprocess.run(argv, capture_output=True, check=True, cwd="/")
        assert there.stdout == os.fsencode(tmp_path / name) + b"\n"
    said = project.invoke("init", str(tmp_path / "a\x1b[31m")).stdout
    assert "a\\x1b[31m" in said
    assert "\x1b" not in said


@pytest.mark.slow
def test_every_command_of_invoke_is_a_command_of_the_script(installed: Installed) -> None:
    listed = installed.succeeds()
    assert all(f"  {name} " in listed for name in TASKS)
    assert installed.succeeds("--help") == listed
    usage = installed.succeeds("--help", "verify")
    assert usage.startswith("Usage: build-pytorch [--core-opts] verify ")
    assert usage == installed.succeeds("verify", "--help")
    assert installed.succeeds("--version").startswith("build-pytorch 0.")


@pytest.mark.slow
def test_a_matrix_is_enough_for_recipes_docs_and_their_verification(installed: Installed) -> None:
    installed.succeeds("init", ".")
    assert "0 errors, 0 warnings" in " ".join(installed.succeeds("all").split())
    files = installed.files()
    assert "release.nix" in files
    assert ".flox/pkgs/pytorch-python313-cuda13_0-sm120-avx2.nix" in files
    installed.succeeds("all", "--check")
    assert installed.files().items() >= files.items()
    # The root is found from below it.
    assert "sm120-avx2" in installed.succeeds("status", "--json", cwd=".flox/pkgs")
    recipe = installed.folder / ".flox/pkgs/pytorch-python313-cuda13_0-sm120-avx2.nix"
    recipe.write_text(recipe.read_text().replace("cudaSupport = true", "cudaSupport = false"))
    done = installed.run("verify", "--only", "two-stage-override")
    assert (done.returncode, "`build-pytorch phase2 --force`" in done.stdout) == (1, True)
    # A template of the folder comes before that of the package.
    template = installed.folder / "templates/gpu.nix.j2"
    template.parent.mkdir()
    template.write_text((PROJECT / "templates/gpu.nix.j2").read_text() + "# ours\n")
    installed.succeeds("phase2", "--force")
    assert recipe.read_text().endswith("# ours\n")


@pytest.mark.slow
def test_without_a_project_only_commands_about_a_machine_run(installed: Installed) -> None:
    done = installed.run("status")
    assert done.returncode == 2
    assert "no matrix.toml here or in a folder above; `build-pytorch init DIR`" in done.stderr
    machine = ("--gpu", "RTX 5090", "--cpu", "zen4", "--driver", "580.95.05")
    choice = json.loads(installed.succeeds("recommend", "--json", *machine))["choice"]
    assert choice["now"][0]["build"]["who"] == "PyPI"
    assert choice["build"]["variant"] == "cuda13_2/sm120-avx2"
    assert installed.files() == {}


def table_of_companions() -> str:
    """The table that the page on companions adds to a matrix."""
    page = (PROJECT / "docs/how-to/add-companions.md").read_text()
    (table,) = re.findall(r"(?ms)^```toml\n(.*?)^```$", page)
    return str(table)


@pytest.mark.slow
def test_an_upgrade_rewrites_the_copied_nix_file_and_keeps_edited_ones(
    installed: Installed,
) -> None:
    installed.succeeds("init", ".")
    matrix = installed.folder / "matrix.toml"
    matrix.write_text(f"{matrix.read_text()}\n{table_of_companions()}")
    installed.succeeds("all")
    copied = installed.folder / "nix/companion.nix"
    copied.write_text(copied.read_text() + "# edited\n")
    done = installed.run("all", "--check")
    assert done.returncode == 1
    assert "  refused     nix/companion.nix  edited by hand" in done.stdout
    copied.write_text("# our own\n" + (PROJECT / "nix/companion.nix").read_text())
    assert "nix/companion.nix" not in installed.succeeds("all", "--check")


PROJECT_TEXT = (PROJECT / "examples/project/matrix.toml").read_text()


def test_the_first_variant_of_a_project_is_that_of_the_shipped_matrix() -> None:
    (begun,) = matrix_reader.parse(PROJECT_TEXT).variants
    like = next(each for each in matrix_reader.parse(WHOLE).variants if each.path == begun.path)
    assert begun.release.torch == like.release.torch
    assert begun.release.nixpkgs == like.release.nixpkgs
    assert {rule.id for rule in begun.effects.rules} == {rule.id for rule in like.effects.rules}
    assert "invoke " not in PROJECT_TEXT


def test_the_first_companion_of_a_project_brings_what_its_recipe_imports(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(PROJECT_TEXT)
    new = matrix_reader.parse(f"{PROJECT_TEXT}\n{table_of_companions()}", root=tmp_path)
    assert [package.id for package in new.packages] == ["sm120-avx2", "sm120-avx2+torchvision"]
    planned = [it for phase in Phase for it in phase_plan.plan(phase, new, Tree(tmp_path))]
    assert "nix/companion.nix" in {change.path for change in planned}


@pytest.mark.slow
@needs_nix
def test_the_commands_of_the_page_run(installed: Installed, site: Site) -> None:
    page = (PROJECT / "docs/how-to/your-own-fleet.md").read_text()
    assert len(page.split()) <= 400
    (site.scenarios / "default.sh").write_text("good\n")
    # A machine that runs tests need not be able to build PyTorch.
    small = r"s/\b(disk|reserved_memory) = [0-9.]+/\1 = 0.01/g; s/job_memory = 5/job_memory = 1/"
    (pin,) = matrix_reader.parse(PROJECT_TEXT).pins.values()
    hashed = f'/^rev = "6a/a sha256 = "{model()[1]}"\\nsha256_of = "{pin.rev}"'
    commands = "\n".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", page))
    commands = commands.replace(
        "cd fleet\n", f"cd fleet\nsed -i -E -e '{small}' -e '{hashed}' matrix.toml\n"
    )
    path = f"{installed.bin}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=installed.folder,
        env={**os.environ, **site.env, "PATH": path, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    fleet = installed.folder / "fleet"
    ids = {variant.id for variant in matrix_reader.load(fleet).variants}
    assert ids == {"sm120-avx2", "sm90-avx2"}
    assert matrix_reader.load(fleet).publisher == "acme"
