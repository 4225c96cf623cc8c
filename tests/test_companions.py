"""Companions of variants: their tables, recipes, checks and builds."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from conftest import ONE, PROJECT, WHOLE, Project, needs_nix
from world import World

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages, variants_of
from build_pytorch.results import artefacts
from build_pytorch.sources import fetchers
from build_pytorch.verify import recipe_facts, verification
from build_pytorch.verify.check import Context

VISION = "[release.cuda13_0.companion.torchvision]"
AUDIO = "[release.cuda13_0.companion.torchaudio]"


def companion(matrix: Matrix, id_: str) -> Package:
    return next(package for package in matrix.companions if package.id == id_)


def without(text: str, *tables: str) -> str:
    """A matrix without some tables, with the comments before them."""
    for table in tables:
        text = re.sub(rf"(?m)(^#.*\n)*^{re.escape(table)}\n(.+\n)*\n?", "", text)
    return text


# --- the matrix ---


def test_each_variant_has_each_companion_of_its_release() -> None:
    matrix = matrix_reader.parse(WHOLE)
    number = sum(bool(variant.release.companions) for variant in matrix.variants)
    assert number > 90
    names = Counter(package.name for package in matrix.companions)
    assert names == {"torchvision": number, "torchaudio": number}
    assert matrix.packages == (*matrix.variants, *matrix.companions)


def test_a_companion_has_names_and_a_place_of_its_own(matrix: Matrix) -> None:
    found = companion(matrix, "sm120-avx512+torchvision")
    assert found.package == found.pname == "torchvision-python313-cuda13_0-sm120-avx512"
    assert found.path == f"companions/.flox/pkgs/{found.package}.nix"
    assert (found.version, found.platform, found.status) == ("0.25.0", "x86_64-linux", "buildable")
    assert companion(matrix, "sm121-avx2+torchaudio").status == "impossible-host"
    assert Counter(it.phase.number for it in matrix.companions) == {2: 72, 3: 8, 4: 8}


def test_the_default_folder_is_below_the_environment_of_the_release() -> None:
    matrix = matrix_reader.parse(WHOLE)
    assert [folder for folder in matrix.folders if "-grace/" not in folder][2:6] == [
        ".flox/pkgs",
        "companions/.flox/pkgs",
        "releases/cuda12_8/.flox/pkgs",
        "releases/cuda12_8/companions/.flox/pkgs",
    ]
    matrix = matrix_reader.parse(without(ONE, VISION, AUDIO))
    assert not matrix.companions
    assert "companions/.flox/pkgs" in matrix.folders


def test_patterns_name_variants_first_and_companions_else(matrix: Matrix) -> None:
    def ids(*patterns: str, companions: tuple[str, ...] = ()) -> list[str]:
        return [p.id for p in select_packages(matrix, ",".join(patterns), companions)]

    assert ids("cpu-avx2") == ["cpu-avx2"]
    assert ids("cpu-avx2+torchvision") == ["cpu-avx2+torchvision"]
    assert ids("cpu-avx2*") == ["cpu-avx2"]
    assert ids("cpu-avx2+*") == ["cpu-avx2+torchvision", "cpu-avx2+torchaudio"]
    assert len(ids("torchvision-*")) == len(ids("*")) == len(ids()) == 44
    assert ids("cpu-avx2", companions=("torchaudio",)) == ["cpu-avx2", "cpu-avx2+torchaudio"]
    assert [v.id for v in variants_of(select_packages(matrix, "cpu-avx2+*"))] == ["cpu-avx2"]
    with pytest.raises(BuildPytorchError, match='no selected variant has a companion "audio"'):
        ids("cpu-avx2", companions=("audio",))


# --- which versions belong together ---


def test_a_companion_is_for_versions_of_pytorch_and_the_newest_one_is_taken() -> None:
    required, version_for = known_hardware.required_torch, known_hardware.version_for
    assert required("torchvision", "0.24.1") == "==2.9.1"
    assert required("torchvision", "0.29.1") == ">=2.14.0"
    assert required("torchvision", "0.99.0") is None
    newest = {torch: version_for(torch, "torchvision") for torch in ("2.10.0", "2.14.0", "2.15.0")}
    assert newest == {"2.10.0": "0.25.0", "2.14.0": "0.29.2", "2.15.0": "0.29.2"}
    assert [version_for(torch, "torchaudio") for torch in ("2.9.0", "2.13.0")] == [
        "2.9.0",
        "2.11.0",
    ]
    assert version_for("2.7.0", "torchaudio") is None
    assert [version_for(torch, "triton") for torch in ("2.11.0", "2.15.0")] == ["3.6.0", "3.9.0"]


@pytest.mark.parametrize(
    ("torch", "vision", "severity", "says"),
    [
        ("2.10.0", "0.24.1", "error", "torchvision 0.24.1 with PyTorch 2.10.0; it is for PyTorch"),
        ("2.10.0", "0.99.0", "warning", "torchvision 0.99.0"),
        ("2.15.0", "0.29.1", "", ""),  # 0.29.2 is for 2.15.0 as well, and newer
    ],
)
def test_a_companion_of_another_pytorch_is_found(
    tmp_path: Path, torch: str, vision: str, severity: str, says: str
) -> None:
    text = ONE.replace("2.10.0", torch).replace("pytorch210", f"pytorch{torch[0]}{torch[2:4]}")
    text = without(text.replace("0.25.0", vision), AUDIO)
    text = re.sub(r'(?m)^(hash|hash_of) = ".*?"', r'\1 = ""', text)
    matrix = matrix_reader.parse(text)
    found = verification.verify(matrix, tmp_path, only=["companion-version"]).findings
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    for finding in found:
        assert finding.found.startswith(says)
        assert text.splitlines()[finding.line - 1] == VISION


# --- recipes ---


def test_the_recipe_of_a_companion_is_a_stub_of_values() -> None:
    matrix = matrix_reader.parse(WHOLE)
    for package in matrix.companions:
        text = (PROJECT / package.path).read_text()
        assert len(text.splitlines()) <= 15
        recipe, imported, function, variant = artefacts.recipe_files(PROJECT, package)
        assert (recipe, function, variant) == (
            package.path,
            paths.COMPANION_FUNCTION,
            package.variant.path,
        )
        assert imported.startswith(f"{paths.NIXPKGS_IMPORTS}/{package.release_name}-")
        assert (PROJECT / imported).exists()


def derivations(matrix: Matrix, packages: list[Package], *, share: bool) -> dict[str, str]:
    """The derivation path of each companion, all from one Nix process."""
    context = Context(matrix, PROJECT)
    # A single recipe shares its import of nixpkgs with no other one.
    groups = [packages] if share else [[package] for package in packages]
    found: dict[str, str] = {}
    for group in groups:
        context.present = [(p, context.recipes[p.path]) for p in group]
        given = recipe_facts.facts_of(context)
        found |= {package.path: given.facts[package.path]["drvPath"] for package in group}
    return found


@needs_nix
def test_flox_builds_the_derivation_that_is_evaluated_with_a_shared_nixpkgs() -> None:
    matrix = matrix_reader.parse(WHOLE)
    chosen = [p for p in matrix.companions if p.variant.gpu_key in {"sm121", None}]
    shared, alone = (derivations(matrix, chosen, share=share) for share in (True, False))
    assert shared == alone
    assert len(set(shared.values())) == len(chosen)


@needs_nix
def test_the_source_has_the_tag_that_newer_nixpkgs_reads(world: World) -> None:
    """meta.changelog is made from src.tag, which Flox evaluates."""
    path = "companions/.flox/pkgs/torchvision-python313-cuda13_0-sm120-avx512.nix"
    argv = ("nix-instantiate", "--eval", "--json", "-A", "src.tag", str(world.root / path))
    assert json.loads(world.site.nix(*argv)) == "v0.25.0"


@needs_nix
def test_a_fault_of_a_variant_is_one_finding_and_not_one_of_each_companion(
    project: Project,
) -> None:
    broken = project.recipe("cpu-avx2")
    broken.write_text(broken.read_text().replace("python3Packages.torch.", "nothing."))
    alone = project.root / "companions/.flox/pkgs/torchvision-python313-cpu-avx512.nix"
    alone.write_text(alone.read_text().replace("python3Packages.torchvision;", "other;"))
    matrix = matrix_reader.parse(ONE)
    result = verification.verify(matrix, project.root, only=["evaluates"])
    found = {(finding.path.rpartition("/")[2], finding.found) for finding in result.findings}
    assert found == {
        (broken.name, "attribute 'nothing' missing; it also stops 2 companions"),
        (alone.name, "attribute 'other' missing"),
    }
    (outcome,) = result.checks
    assert outcome.reason == "4 recipes not evaluated"


def test_companions_that_the_matrix_drops_are_deleted(project: Project) -> None:
    folder = project.root / "companions/.flox/pkgs"
    kept = folder / "torchaudio-python313-cpu-avx2.nix"
    kept.write_text(kept.read_text() + "# edited by hand\n")
    matrix = project.root / "matrix.toml"
    matrix.write_text(without(matrix.read_text(), VISION, AUDIO))
    done = project.invoke("phase1")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == [kept.name]
    assert f"unknown {kept.relative_to(project.root)}" in " ".join(done.stdout.split())


# --- builds ---


@needs_nix
def test_pytorch_is_compiled_once_for_a_variant_and_its_companions(world: World) -> None:
    done = world.built("cpu-avx2", "--with", "torchvision,torchaudio", "--jobs", "3")
    names = ["cpu-avx2", "cpu-avx2+torchvision", "cpu-avx2+torchaudio"]
    assert [row["variant"] for row in done["variants"]] == names
    assert [row["outcome"] for row in done["variants"]] == ["built"] * 3, done["stderr"]
    events = [(line["event"], line["variant"]) for line in world.ledger()]
    assert events[:2] == [("started", "cpu-avx2"), ("ended", "cpu-avx2")]
    stems = [f"{name}-python313-cpu-avx2" for name in ("pytorch", "torchvision", "torchaudio")]
    recipes = [str(next(world.root.glob(f"**/.flox/pkgs/{stem}.nix"))) for stem in stems]
    derivations = world.site.nix("nix-instantiate", *recipes).split()
    needed = world.site.nix("nix-store", "--query", "--requisites", *derivations).split()
    ending = "-pytorch210-python313-cpu-avx2-2.10.0.drv"
    assert [path for path in needed if path.endswith(ending)] == [derivations[0]]
    for name in ("torchvision", "torchaudio"):
        logs = world.root / f".build-pytorch/logs/{name}-python313-cpu-avx2"
        (log,) = logs.glob("*.log")
        assert "Building wheel torch" not in log.read_text()
        assert (world.root / f"result-{name}-python313-cpu-avx2").exists()
    again = world.built("cpu-avx2+torchvision")
    assert [row["action"] for row in again["variants"]] == ["up to date"] * 2


@needs_nix
def test_companions_of_a_variant_that_fails_are_not_started(world: World) -> None:
    world.scenario("cpu-avx2", "exit 1")
    done = world.built("cpu-avx2+torchvision")
    outcomes = [(row["variant"], row["outcome"]) for row in done["variants"]]
    assert outcomes == [("cpu-avx2", "failed"), ("cpu-avx2+torchvision", "not started")]
    message = done["by_id"]["cpu-avx2+torchvision"]["message"]
    assert (done["returncode"], message) == (1, "cpu-avx2 failed, and this needs it")


# --- sources ---


def test_the_sources_of_companions_have_names_of_their_own(matrix: Matrix) -> None:
    (vision,) = fetchers.sources(matrix, ("torchvision",))
    assert vision.origin.address.endswith("/pytorch/vision")
    assert vision.trail == ("release", "cuda13_0", "companion", "torchvision", "hash")
    assert vision.recorded == vision.origin.revision == "v0.25.0"
    whole = matrix_reader.parse(WHOLE)  # cuda12_8 has those of nixpkgs
    assert [s.release for s in fetchers.sources(whole, ("torchaudio",))] == ["cuda13_0"]
