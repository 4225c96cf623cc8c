"""CUDA packages from elsewhere, with real builds: a repository, a local checkout, copies."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import tomlkit
from conftest import PROJECT, WHOLE, Project, copied_project, needs_nix, unfolded
from world import Site, World, prepare

from build_pytorch.matrix import defaults
from build_pytorch.nix.quoting import to_sri

pytestmark = needs_nix

REV = "0696b3dbc42d8ec2de3e1edcc09ca9d1161db73a"
HASH = "sha256-BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA="
PACKAGES = ("cudatoolkit", "cudnn", "nccl", "libcusparse_lt")
VARIABLE = "CUDA_TOOLKIT_REPO"
PLAIN, WRAPPER = "sm120-avx2", "sm120-avx2-wrapper"


def sibling(folder: Path, mark: str = "") -> Path:
    """A checkout of a repository with the four files; `mark` makes its packages others."""
    pkgs = folder / ".flox/pkgs"
    pkgs.mkdir(parents=True)
    for name in PACKAGES:
        package = f"cudaPackages_13.{name}"
        if mark:
            package = f'{package}.overrideAttrs {{ name = "{name}-{mark}"; }}'
        (pkgs / f"{name}-13_0.nix").write_text(f"{{ cudaPackages_13 }}: {package}\n")
    return folder


def nightly_alone(taken: str | None) -> str:
    """The matrix with release nightly only, for a platform that tests can build.

    `taken` is the hash of its CUDA packages, which are others than those of the pin.
    """
    raw = tomllib.loads(WHOLE)
    assert not list(defaults.complete(raw))
    nightly = raw["release"]["nightly"]
    assert nightly.pop("like") == "cuda13_0"
    nightly["torch"] |= {"hash": HASH, "hash_of": nightly["torch"]["rev"]}
    nightly["cuda"]["packages_from"]["hash"] = taken
    del nightly["cuda"]["packages_from"]["same_of"]
    pin = nightly["nixpkgs"]["pin"]
    here = tomlkit.dumps({"release": {"nightly": nightly}, "pin": {pin: raw["pin"][pin]}})
    names = {'["sm121"]': '["sm120"]', '["armv9"]': '["avx2"]'}
    for old, new in names.items():
        assert here.count(old) == 1
        here = here.replace(old, new)
    return here


@pytest.fixture(scope="module")
def prepared(site: Site, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A checkout with the nightly alone, whose sources are in the store. Tests only read it."""
    folder = tmp_path_factory.mktemp("prepared")
    project = copied_project(folder / "project")
    unpacked = sibling(folder / "source", "9.9")
    site.add(unpacked)
    taken = to_sri(site.nix("nix-hash", "--type", "sha256", "--base32", str(unpacked)))
    (project.root / "matrix.toml").write_text(nightly_alone(taken))
    shutil.rmtree(project.pkgs)
    return World(prepare(project), site, folder)


@pytest.fixture
def world(prepared: World, tmp_path: Path) -> World:
    """A copy of the prepared checkout."""
    prepared.site.clear()
    subprocess.run(["cp", "-a", prepared.root, tmp_path / "project"], check=True)
    return World(Project(tmp_path / "project"), prepared.site, tmp_path, is_built=True)


def drv_of(world: World, variant: str, checkout: str = "") -> str:
    """The path of the derivation of a variant."""
    package = f"pytorch-python313-cuda13_0-{variant.replace('avx2', 'avx2-nightly', 1)}"
    recipe = world.root / f"releases/nightly/.flox/pkgs/{package}.nix"
    return world.site.nix("nix-instantiate", str(recipe), env={VARIABLE: checkout}).strip()


def cudnn_of(world: World, variant: str, checkout: str = "") -> str:
    """The name of the cuDNN that a variant is built with."""
    drv = drv_of(world, variant, checkout)
    inputs = world.site.nix("nix-store", "--query", "--requisites", drv)
    (name,) = re.findall(r"(?m)-(cudnn\S*)\.drv$", inputs)
    return str(name)


def test_the_wrapper_is_built_with_the_packages_of_a_repository_at_a_revision(
    world: World, tmp_path: Path
) -> None:
    """A local checkout replaces them. The plain variant has those of its pin."""
    local = str(sibling(tmp_path / "local", "7.7"))
    assert cudnn_of(world, PLAIN, "/nowhere") == cudnn_of(world, PLAIN)
    found = [cudnn_of(world, WRAPPER, checkout) for checkout in ("", local)]
    assert found == ["cudnn-9.9", "cudnn-7.7"]
    row = world.built(WRAPPER)
    assert row["by_id"][WRAPPER]["outcome"] == "built", row["stderr"]


def test_packages_of_the_pin_make_the_same_build_under_another_name(
    world: World, tmp_path: Path
) -> None:
    """What `same_of` states, for files with one package of the pin each; then one is enough."""
    same, other = str(sibling(tmp_path / "same")), str(sibling(tmp_path / "other", "7.7"))
    plain = derivation_of(world, PLAIN, same)
    assert derivation_of(world, WRAPPER, same) == plain
    assert derivation_of(world, WRAPPER, other) != plain

    origin = f'rev = "{REV}"\n'
    world.project.edit("matrix.toml", origin, f'{origin}same_of = "{REV}"\n')
    for phase in ("phase2", "phase5"):  # pages of other releases have no place here
        done = world.project.invoke(phase)
        assert done.returncode == 0, done.stdout + done.stderr
    alone = world.build(WRAPPER, "--dry-run")  # nothing else stands for it
    assert f"build {WRAPPER} not built yet" in unfolded(alone.stdout)
    rows = world.built(f"{PLAIN},{WRAPPER}")["by_id"]
    assert (rows[PLAIN]["outcome"], rows[WRAPPER]["action"]) == ("built", "skipped")
    assert rows[WRAPPER]["reason"].startswith(f"the same build as {PLAIN}, unless {VARIABLE}")
    assert world.built(WRAPPER)["by_id"][WRAPPER]["action"] == "skipped"
    assert f"same build as {PLAIN}" in unfolded(world.project.invoke("show", WRAPPER).stdout)
    assert "same build" not in world.project.invoke("show", PLAIN).stdout
    forced = world.build(WRAPPER, "--force", "--dry-run")
    assert f"build {WRAPPER} not built yet" in unfolded(forced.stdout)
    world.env[VARIABLE] = other
    assert world.built(WRAPPER)["by_id"][WRAPPER]["outcome"] == "built"


def derivation_of(world: World, variant: str, checkout: str) -> str:
    """The derivation of a variant as text, without its own name and paths."""
    package = f"python313-cuda13_0-{variant.replace('avx2', 'avx2-nightly', 1)}"
    text = Path(drv_of(world, variant, checkout)).read_text()
    text = re.sub(rf"{world.site.store}/\w{{32}}-(?=[\w.]*-?pytorch210-)", "", text)
    return re.sub(rf"(/nix/store/\w{{32}}-)?[\w.]*-?pytorch210-{package}", "OWN", text)


@pytest.mark.slow
def test_the_result_of_a_local_checkout_is_not_published(world: World, tmp_path: Path) -> None:
    local = world.env[VARIABLE] = str(sibling(tmp_path / "local", "7.7"))
    done = world.build(WRAPPER)
    assert done.returncode == 0, done.stderr
    assert f"CUDA packages of {local}; the result is not for publ" in unfolded(done.stdout)
    of_checkout = world.ledger()[-1]["digest"]
    for checkout, why in (("", "not built for this recipe"), (local, "nobody else has")):
        env = {**world.env, VARIABLE: checkout}
        done = world.project.run("invoke", "publish", WRAPPER, "--dry-run", env=env)
        said = unfolded(done.stdout + done.stderr)
        assert (why in said, f"refused {WRAPPER}" in said) == (True, True)
    del world.env[VARIABLE]  # without it, the result is not up to date
    row = world.built(WRAPPER)["by_id"][WRAPPER]
    assert (row["action"], row["outcome"]) == ("build", "built")
    assert world.ledger()[-1]["digest"] != of_checkout


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../build-cudatoolkit", f"{VARIABLE}: ../build-cudatoolkit is not an absolute path"),
        ("/nowhere", "'/nowhere/.flox/pkgs/cu"),
    ],
)
def test_a_wrong_path_is_an_obstacle(world: World, path: str, says: str) -> None:
    world.env[VARIABLE] = path
    done = world.build(WRAPPER)
    assert done.returncode == 2
    assert says in unfolded(done.stderr)


@pytest.mark.slow
def test_copies_are_built(world: World, tmp_path: Path) -> None:
    """By the commands and the table of the page on the nightly."""
    sibling(tmp_path / "build-cudatoolkit", "8.8")
    page = (PROJECT / "docs/explanation/build-notes-nightly.md").read_text()
    ((commands, table),) = re.findall(r"(?ms)^```sh\n(mkdir .*?)^```$.*?^```toml\n(.*?)^```$", page)
    commands = commands.replace("../build-cudatoolkit", str(tmp_path / "build-cudatoolkit"))
    subprocess.run(["bash", "-ec", commands], cwd=world.root, check=True)
    file = world.root / "matrix.toml"
    raw = tomllib.loads(file.read_text())
    raw["release"]["nightly"]["cuda"] |= tomllib.loads(table)["release"]["nightly"]["cuda"]
    file.write_text(tomlkit.dumps(raw))
    assert world.project.invoke("phase2").returncode == 0
    row = world.built(WRAPPER)
    assert row["by_id"][WRAPPER]["outcome"] == "built", row["stderr"]
    assert cudnn_of(world, WRAPPER, "/nowhere") == "cudnn-8.8"
    (world.root / "releases/nightly/cuda-packages/cudnn-13_0.nix").unlink()
    said = world.project.invoke("verify", "--only", "evaluation")
    assert said.returncode == 1
    assert "cudnn-13_0.nix" in said.stdout
