"""CUDA packages from elsewhere, with real builds: a repository, a local checkout, copies."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, WHOLE, Project, copied_project, needs_nix, unfolded
from world import Site, World, prepare

from build_pytorch.matrix import defaults, matrix_text
from build_pytorch.matrix.field_types import Trail
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


def nightly_alone() -> str:
    """The matrix with release nightly only, for a platform that tests can build."""
    raw = tomllib.loads(WHOLE)
    assert not list(defaults.complete(raw))
    nightly = raw["release"]["nightly"]
    assert nightly.pop("like") == "cuda13_0"
    pin = nightly["nixpkgs"]["pin"]
    here = "\n".join(
        [
            *tables(("release", "nightly"), nightly),
            matrix_text.block(("pin", pin), raw["pin"][pin]),
        ]
    )
    for old, new in (
        ('gpu = ["sm121"]', 'gpu = ["sm120"]'),
        ('cpu = ["armv9"]', 'cpu = ["avx2"]'),
    ):
        assert here.count(old) == 1
        here = here.replace(old, new)
    return here


def tables(header: Trail, values: dict[str, Any]) -> Iterator[str]:
    """The text of a table, and of each in it below a header of its own."""
    inner = {k: v for k, v in values.items() if isinstance(v, dict) or k == "group"}
    yield matrix_text.block(header, {k: v for k, v in values.items() if k not in inner})
    for key, value in inner.items():
        if isinstance(value, dict):
            yield from tables((*header, key), value)
        else:
            yield from (matrix_text.block((*header, key, 0), each) for each in value)


@pytest.fixture(scope="module")
def prepared(site: Site, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A checkout with the nightly alone, whose sources are in the store. Tests only read it."""
    folder = tmp_path_factory.mktemp("prepared")
    project = copied_project(folder / "project")
    text = nightly_alone()
    revs = re.findall(r'(?m)^rev = "([0-9a-f]{40})"', text.partition("[release.nightly.torch]")[2])
    text = text.replace('hash = ""\nhash_of = ""', f'hash = "{HASH}"\nhash_of = "{revs[0]}"', 1)
    unpacked = sibling(folder / "source", "9.9")
    site.add(unpacked)
    taken = to_sri(site.nix("nix-hash", "--type", "sha256", "--base32", str(unpacked)))
    text = re.sub(r'(packages_from\](?s:.*?)hash = ")[^"]*', rf"\g<1>{taken}", text)
    text = re.sub("same_of = .*\n", "", text)  # the packages of these files are others
    (project.root / "matrix.toml").write_text(text)
    shutil.rmtree(project.pkgs)
    return World(prepare(project), site, folder)


@pytest.fixture
def world(prepared: World, tmp_path: Path) -> World:
    """A copy of the prepared checkout."""
    prepared.site.clear()
    subprocess.run(["cp", "-a", prepared.root, tmp_path / "project"], check=True)
    return World(Project(tmp_path / "project"), prepared.site, tmp_path, is_built=True)


def regenerate(world: World) -> None:
    """Run `invoke all`; pages of other releases have no place here."""
    for phase in ("phase2", "phase5"):
        done = world.project.invoke(phase)
        assert done.returncode == 0, done.stdout + done.stderr


def inputs_of(world: World, variant: str, env: dict[str, str] | None = None) -> str:
    """The names of the derivations that a variant is built from."""
    package = f"pytorch-python313-cuda13_0-{variant.replace('avx2', 'avx2-nightly', 1)}"
    recipe = world.root / f"releases/nightly/.flox/pkgs/{package}.nix"
    drv = world.site.nix("nix-instantiate", str(recipe), env=env or {VARIABLE: ""}).strip()
    return world.site.nix("nix-store", "--query", "--requisites", drv)


def test_a_the_plain_variant_takes_the_packages_of_its_pin(world: World) -> None:
    world.env[VARIABLE] = "/nowhere"  # which does not concern it
    assert world.built(PLAIN)["by_id"][PLAIN]["outcome"] == "built"
    assert "9.9" not in inputs_of(world, PLAIN)


def test_b_the_wrapper_takes_those_of_a_repository_at_a_revision(world: World) -> None:
    row = world.built(WRAPPER)
    assert row["by_id"][WRAPPER]["outcome"] == "built", row["stderr"]
    assert "cudnn-9.9" in inputs_of(world, WRAPPER)


def test_b_packages_of_the_pin_make_the_same_build_under_another_name(
    world: World, tmp_path: Path
) -> None:
    """What `same_of` states, for files with one package of the pin each; then one is enough."""
    same = {VARIABLE: str(sibling(tmp_path / "same"))}
    plain, wrapper = (derivation_of(world, name, same) for name in (PLAIN, WRAPPER))
    assert plain == wrapper
    other = {VARIABLE: str(sibling(tmp_path / "other", "7.7"))}
    assert derivation_of(world, WRAPPER, other) != plain

    origin = f'rev = "{REV}"\n'
    world.project.edit("matrix.toml", origin, f'{origin}same_of = "{REV}"\n')
    regenerate(world)
    alone = world.build(WRAPPER, "--dry-run")  # nothing else stands for it
    assert f"build {WRAPPER} not built yet" in " ".join(alone.stdout.split())
    rows = world.built(f"{PLAIN},{WRAPPER}")["by_id"]
    assert (rows[PLAIN]["outcome"], rows[WRAPPER]["action"]) == ("built", "skipped")
    assert rows[WRAPPER]["reason"].startswith(f"the same build as {PLAIN}, unless {VARIABLE}")
    assert world.built(WRAPPER)["by_id"][WRAPPER]["action"] == "skipped"
    assert f"same build as {PLAIN}" in unfolded(world.project.invoke("show", WRAPPER).stdout)
    assert "same build" not in world.project.invoke("show", PLAIN).stdout
    forced = world.build(WRAPPER, "--force", "--dry-run")
    assert f"build {WRAPPER} not built yet" in " ".join(forced.stdout.split())
    world.env |= other
    assert world.built(WRAPPER)["by_id"][WRAPPER]["outcome"] == "built"


def derivation_of(world: World, variant: str, env: dict[str, str]) -> str:
    """The derivation of a variant as text, without its own name and paths."""
    package = f"python313-cuda13_0-{variant.replace('avx2', 'avx2-nightly', 1)}"
    recipe = world.root / f"releases/nightly/.flox/pkgs/pytorch-{package}.nix"
    drv = world.site.nix("nix-instantiate", str(recipe), env=env).strip()
    own = re.compile(rf"(/nix/store/\w{{32}}-)?[\w.]*-?pytorch210-{package}")
    return own.sub(
        "OWN",
        re.sub(rf"{world.site.store}/\w{{32}}-(?=[\w.]*-?pytorch210-)", "", Path(drv).read_text()),
    )


@pytest.mark.slow
def test_c_a_local_checkout_replaces_it_and_the_result_is_not_published(
    world: World, tmp_path: Path
) -> None:
    local = sibling(tmp_path / "local", "7.7")
    world.env[VARIABLE] = str(local)
    done = world.build(WRAPPER)
    assert done.returncode == 0, done.stderr
    assert f"CUDA packages of {local}; the result is not for publ" in " ".join(done.stdout.split())
    of_checkout = world.ledger()[-1]["digest"]
    assert "cudnn-7.7" in inputs_of(world, WRAPPER, {VARIABLE: str(local)})

    for checkout, why in (("", "not built for this recipe"), (str(local), "nobody else has")):
        said = publish(world, {VARIABLE: checkout})
        assert why in said
        assert f"refused {WRAPPER}" in said

    del world.env[VARIABLE]  # without it, the result is not up to date
    row = world.built(WRAPPER)["by_id"][WRAPPER]
    assert (row["action"], row["outcome"]) == ("build", "built")
    assert world.ledger()[-1]["digest"] != of_checkout
    assert "which nobody else has" not in publish(world, {})


def publish(world: World, env: dict[str, str]) -> str:
    """What `invoke publish --dry-run` says of the wrapper."""
    clean = {key: value for key, value in world.env.items() if key != VARIABLE}
    argv = ("invoke", "publish", WRAPPER, "--dry-run")
    done = world.project.run(*argv, env={VARIABLE: "", **clean, **env})
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../build-cudatoolkit", f"{VARIABLE}: ../build-cudatoolkit is not an absolute path"),
        ("/nowhere", "'/nowhere/.flox/pkgs/cu"),
    ],
)
def test_c_a_wrong_path_is_an_obstacle(world: World, path: str, says: str) -> None:
    world.env[VARIABLE] = path
    done = world.build(WRAPPER)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())


@pytest.mark.slow
def test_d_copies_are_built(world: World, tmp_path: Path) -> None:
    """By the commands and the table of the page on the nightly."""
    sibling(tmp_path / "build-cudatoolkit", "8.8")
    page = (PROJECT / "docs/explanation/build-notes-nightly.md").read_text()
    ((commands, table),) = re.findall(r"(?ms)^```sh\n(mkdir .*?)^```$.*?^```toml\n(.*?)^```$", page)
    commands = commands.replace("../build-cudatoolkit", str(tmp_path / "build-cudatoolkit"))
    subprocess.run(["bash", "-ec", commands], cwd=world.root, check=True)
    file = world.root / "matrix.toml"
    header = table.splitlines()[0]
    before, _, after = file.read_text().partition(header)
    rest = re.search(r"(?m)^(\[|$)", after.lstrip("\n"))
    assert rest
    file.write_text(before + table + "\n" + after.lstrip("\n")[rest.start() :])
    assert world.project.invoke("phase2").returncode == 0
    row = world.built(WRAPPER)
    assert row["by_id"][WRAPPER]["outcome"] == "built", row["stderr"]
    assert "cudnn-8.8" in inputs_of(world, WRAPPER, {VARIABLE: "/nowhere"})
    (world.root / "releases/nightly/cuda-packages/cudnn-13_0.nix").unlink()
    said = world.project.invoke("verify", "--only", "evaluation")
    assert said.returncode == 1
    assert "cudnn-13_0.nix" in said.stdout
