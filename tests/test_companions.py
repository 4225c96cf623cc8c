"""Companions of variants: their tables, recipes, builds, files, evidence and publication."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from built_files import (
    compile_library,
    device_library,
    looked,
    needs_cuda,
    package_of,
    texts,
    variant_of,
)
from conftest import ONE, PROJECT, WHOLE, Project, needs_nix
from msgspec import structs
from sample_fleet import Checkout, SampleFleet
from test_publish import add_evidence, calls, hub, publish  # noqa: F401 - a fixture
from world import World

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.inspect import inspection, target
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages
from build_pytorch.publish.publication import Publishing, decide
from build_pytorch.results import artefacts, ledger
from build_pytorch.results.package_state import PackageState
from build_pytorch.smoke import smoke_tests
from build_pytorch.sources import fetchers
from build_pytorch.verify import recipe_facts, verification
from build_pytorch.verify.check import Context

VISION = "[release.cuda13_0.companion.torchvision]"
AUDIO = "[release.cuda13_0.companion.torchaudio]"
ID = "cpu-avx2+torchvision"
ALL_RELEASES = matrix_reader.parse(WHOLE)


def without(text: str, *tables: str) -> str:
    """A matrix without some tables, with the comments before them."""
    for table in tables:
        text = re.sub(rf"(?m)(^#.*\n)*^{re.escape(table)}\n(.+\n)*\n?", "", text)
    return text


# --- the matrix ---


def test_each_variant_has_each_companion_of_its_release() -> None:
    number = sum(bool(variant.release.companions) for variant in ALL_RELEASES.variants)
    assert number > 90
    names = Counter(package.name for package in ALL_RELEASES.companions)
    assert names == {"torchvision": number, "torchaudio": number}
    assert ALL_RELEASES.packages == (*ALL_RELEASES.variants, *ALL_RELEASES.companions)


def test_a_companion_has_names_and_a_place_of_its_own(matrix: Matrix) -> None:
    found = package_of("sm120-avx512+torchvision")
    assert found.package == found.pname == "torchvision-python313-cuda13_0-sm120-avx512"
    assert found.path == f"companions/.flox/pkgs/{found.package}.nix"
    assert (found.version, found.platform, found.status) == ("0.25.0", "x86_64-linux", "buildable")
    assert package_of("sm121-avx2+torchaudio").status == "impossible-host"
    assert Counter(it.phase.number for it in matrix.companions) == {2: 72, 3: 8, 4: 8}


def test_the_default_folder_is_below_the_environment_of_the_release() -> None:
    assert [folder for folder in ALL_RELEASES.folders if "-grace/" not in folder][2:6] == [
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
    assert {p.variant.id for p in select_packages(matrix, "cpu-avx2+*")} == {"cpu-avx2"}
    with pytest.raises(BuildPytorchError, match='no selected variant has a companion "audio"'):
        ids("cpu-avx2", companions=("audio",))


def test_the_sources_of_companions_have_names_of_their_own(matrix: Matrix) -> None:
    (vision,) = fetchers.sources(matrix, ("torchvision",))
    assert vision.origin.address.endswith("/pytorch/vision")
    assert vision.trail == ("release", "cuda13_0", "companion", "torchvision", "hash")
    assert vision.recorded == vision.origin.revision == "v0.25.0"
    audio = fetchers.sources(ALL_RELEASES, ("torchaudio",))  # cuda12_8 has that of nixpkgs
    assert [source.release for source in audio] == ["cuda13_0"]


# --- which versions belong together ---


def test_a_companion_is_for_versions_of_pytorch_and_the_newest_one_is_taken() -> None:
    required, version_for = known_hardware.required_torch, known_hardware.version_for
    assert required("torchvision", "0.24.1") == "==2.9.1"
    assert required("torchvision", "0.29.1") == ">=2.14.0"
    assert required("torchvision", "0.99.0") is None
    for torch, name, newest in (
        ("2.10.0", "torchvision", "0.25.0"),
        ("2.14.0", "torchvision", "0.29.2"),
        ("2.15.0", "torchvision", "0.29.2"),
        ("2.7.0", "torchaudio", None),
        ("2.9.0", "torchaudio", "2.9.0"),
        ("2.13.0", "torchaudio", "2.11.0"),
        ("2.11.0", "triton", "3.6.0"),
        ("2.15.0", "triton", "3.9.0"),
    ):
        assert version_for(torch, name) == newest, (torch, name)


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


@needs_nix
def test_flox_builds_the_derivation_that_is_evaluated_with_a_shared_nixpkgs() -> None:
    """A single recipe shares its import of nixpkgs with no other one."""
    chosen = [p for p in ALL_RELEASES.companions if p.variant.gpu_key == "sm121"][:4]
    context = Context(ALL_RELEASES, PROJECT)

    def derivations(*packages: Package) -> list[str]:
        context.present = [(p, context.recipes[p.path]) for p in packages]
        facts = recipe_facts.facts_of(context).facts
        return [facts[package.path]["drvPath"] for package in packages]

    shared = derivations(*chosen)
    assert shared == [derivations(package)[0] for package in chosen]
    assert len(set(shared)) == len(chosen)


@needs_nix
def test_the_source_has_the_tag_that_newer_nixpkgs_reads(world: World) -> None:
    """meta.changelog is made from src.tag, which Flox evaluates."""
    path = "companions/.flox/pkgs/torchvision-python313-cuda13_0-sm120-avx512.nix"
    argv = ("nix-instantiate", "--eval", "--json", "-A", "src.tag", str(world.root / path))
    assert json.loads(world.site.nix(*argv)) == "v0.25.0"


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
    for stem in stems[1:]:
        (log,) = (world.root / f".build-pytorch/logs/{stem}").glob("*.log")
        assert "Building wheel torch" not in log.read_text()
        assert (world.root / f"result-{stem}").exists()
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


# --- built files ---

LIBRARIES = {"torchvision": "_C.so", "torchaudio": "libtorchaudio.so"}


def test_every_known_companion_can_be_inspected_and_has_smoke_tests(matrix: Matrix) -> None:
    names = known_hardware.load().companion.keys()
    assert names == set(smoke_tests.COMPANIONS)
    assert names >= {package.name for package in matrix.companions}


# companion of a variant | objects in its library, without a word: no device code | findings
CASES = """
sm120-avx2+torchvision | 120             |
sm120-avx2+torchvision | 90              | 1 of 1 objects for sm_90 (1)
sm120-avx2+torchaudio  | 120 90          | 1 of 1 objects for sm_120 (1), sm_90 (1)
sm120-avx2+torchaudio  | 120; 89         | 1 of 2 objects for sm_89 (1)
# PyTorch adds it for files of its own, which no companion has.
sm120-avx2+torchvision | 120 120f 121a   | 1 of 1 objects for sm_120 (1), sm_120f (1), sm_121a (1)
sm120-avx2+torchvision |                 | no device code: this TorchVision is CPU-only
sm120-avx2+torchaudio  |                 | no device code: this TorchAudio is CPU-only
cpu-avx2+torchvision   | 120             | code for CUDA
cpu-avx2+torchaudio    |                 |
"""


@needs_cuda
@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if "|" in line])
def test_device_code_is_that_of_the_variant(tmp_path: Path, case: str) -> None:
    name, objects, found = (cell.strip() for cell in case.split("|"))
    library = LIBRARIES[name.partition("+")[2]]
    if objects:
        device_library(tmp_path, *objects.split(";"), name=library)
    else:
        compile_library(tmp_path, name=library)
    part = looked("libraries", name, tmp_path)
    assert (part["state"], texts(part)) == ("failed" if found else "passed", found)


@needs_cuda
@pytest.mark.parametrize(("version", "state"), [("0.10.0", "passed"), ("0.14.0", "failed")])
def test_versions_without_device_code_are_known(tmp_path: Path, version: str, state: str) -> None:
    vision = package_of("sm120-avx2+torchvision")
    assert vision.companion
    companion = structs.replace(vision.companion, version=version)
    package = structs.replace(vision, name="torchcodec", companion=companion)
    compile_library(tmp_path, name="libtorchcodec_core7.so")
    assert looked("libraries", package, tmp_path)["state"] == state


@pytest.mark.parametrize(
    ("version", "state"),
    [("0.25.0", "passed"), ("0.25.0a0+cu130", "passed"), ("0.24.1", "failed"), ("", "skipped")],
)
@pytest.mark.parametrize(
    ("name", "library"),
    [("torchvision", "_C.so"), ("torchaudio", "lib/libtorchaudio.abi3.so")],  # of the stable ABI
)
def test_the_version_is_the_one_of_the_matrix(
    tmp_path: Path, name: str, library: str, version: str, state: str
) -> None:
    path = tmp_path / name / library
    compile_library(path.parent, name=path.name)
    version = version.replace("0.25.0", package_of(f"cpu-avx2+{name}").version)
    text = f"__version__ = '{version}'\ngit_version = 'x'\n" if version else ""
    (tmp_path / name / "version.py").write_text(text)
    assert looked("config", f"cpu-avx2+{name}", path.parent)["state"] == state


def test_a_folder_is_inspected_if_it_has_the_library(project: Project, tmp_path: Path) -> None:
    with pytest.raises(BuildPytorchError, match=r"no _C\.so in it; give the folder that has it"):
        inspection.folder_target(package_of(ID), tmp_path)
    compile_library(tmp_path, name="_C.so")
    (tmp_path / "version.py").write_text("__version__ = '0.25.0'\n")
    said = project.succeeds("inspect", ID, "--path", str(tmp_path))
    assert f"{ID}  passed" in said
    assert "  passed   libraries\n" in said


RIGHT = "python3.13-pytorch210-python313-cuda13_0-sm120-avx2-2.10.0"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([RIGHT, f"{RIGHT}-lib", f"{RIGHT}-dev", "python3.13-torchmetrics-1.9.0"], ""),
        ([RIGHT, "python3.13-pytorch-lightning-2.5", "python3.13-torchmetrics-1.9.0"], ""),
        ([], "PyTorch nowhere"),
        (["python3.13-torch-2.9.1"], "PyTorch python3.13-torch-2.9.1"),
        (["python3.13-pytorch210-for-torchvision-sm120-avx2-2.10.0"], "pytorch210-for-torchvision"),
        ([RIGHT, "python3.13-torch-2.9.1-lib"], "PyTorch "),
    ],
)
def test_the_closure_of_a_companion_holds_the_pytorch_of_its_variant_only(
    names: list[str], found: str
) -> None:
    of_cuda = ["cuda_cudart-13.0.96", *names]
    findings = list(target.check_names(package_of("sm120-avx2+torchvision"), of_cuda))
    assert findings == list(target.check_torch(variant_of("sm120-avx2"), names))
    assert [finding.severity for finding in findings] == (["error"] if found else [])
    assert not found or found in findings[0].found


# --- evidence and publication ---

TORCH_STEM, VISION_STEM = (f"{name}-python313-cpu-avx2" for name in ("pytorch", "torchvision"))


def test_the_digest_of_a_companion_covers_its_imports_and_its_variant(project: Project) -> None:
    package = package_of(ID)
    before = artefacts.recipe_digest(project.root, package)
    imported = "nix/nixpkgs/cuda13_0-cpu-only-x86_64-linux.nix"
    for path in (package.path, imported, paths.COMPANION_FUNCTION, package.variant.path):
        with project.edited(path, "\n", "\n# changed\n"):
            assert artefacts.recipe_digest(project.root, package) != before, path
    assert artefacts.recipe_digest(project.root, package) == before
    assert artefacts.recipe_digest(project.root, package.variant) != before


OWN_TORCH = "/nix/store/0-python3.13-pytorch210-python313-cpu-avx2-2.10.0"
OTHER_TORCH = "/nix/store/1-python3.13-torch-2.9.1"
NOT_SENT = f"its PyTorch is not published, and its closure has it: `invoke publish cpu-avx2,{ID}`"
BOTH = f"its closure has PyTorch {OWN_TORCH[13:]} {OTHER_TORCH[13:]}, and not "


@pytest.mark.parametrize(
    ("sent", "closure", "action", "reason"),
    [
        ({"cpu-avx2"}, [OWN_TORCH], "publish", "tested"),
        ((), [OWN_TORCH], "refused", NOT_SENT),
        ({"cpu-avx2"}, [OWN_TORCH, OTHER_TORCH], "refused", BOTH),
        ({"cpu-avx2"}, [OTHER_TORCH], "refused", f"has PyTorch {OTHER_TORCH[13:]}, and not "),
        ({"cpu-avx2"}, [], "refused", "its closure has PyTorch nowhere, and not pytorch210-"),
    ],
)
def test_a_companion_is_published_after_its_pytorch_which_alone_is_in_its_closure(
    sent: Collection[str], closure: list[str], action: str, reason: str
) -> None:
    package, path = package_of(ID), "/nix/store/x"
    fields: dict[str, Any] = {"by": "inspect", "outcome": "passed"}
    events = (
        ledger.event_of(package, "ended", digest="sha256:0", outcome="built", outputs=(path,)),
        ledger.event_of(package, "tested", digest="sha256:0", output=path, **fields),
    )
    state = PackageState(package=package, digest="sha256:0", link=path, events=events)
    row = decide(state, Publishing(organization="acme", system=package.platform), sent, closure)
    assert (row.variant, row.action) == (ID, action)
    assert reason in row.reason


def add_results(world: World) -> None:
    """Results of the companion and its variant in the store, and their evidence."""
    packages = matrix_reader.load(world.root).companions
    package = next(package for package in packages if package.id == ID)
    output = str((world.root / f"result-{TORCH_STEM}").resolve())
    held = f"${{builtins.storePath {output}}}"
    expression = f"""derivation {{
      name = "torchvision"; system = builtins.currentSystem; builder = "/bin/sh";
      args = [ "-c" "echo {held} > $out" ];
    }}"""
    link = world.root / f"result-{VISION_STEM}"
    world.site.nix("nix-build", "-E", expression, "-o", str(link))
    sample, made = SampleFleet(world.root), str(link.resolve())
    sample.ended(package, "built", 1.0, outputs=(made,))
    sample.tested(package, made, by="smoke", outcome="passed")
    add_evidence(world, "cpu-avx2")


@needs_nix
def test_variant_and_companion_are_published_torch_first(hub: World) -> None:  # noqa: F811
    add_results(hub)
    code, said = publish(hub, ID)
    assert (code, calls(hub)) == (1, [])
    assert NOT_SENT in " ".join(said.split())
    (hub.bin / f"broken-{TORCH_STEM}").touch()
    code, said = publish(hub, f"cpu-avx2,{ID}")
    assert (code, calls(hub)) == (1, [f"publish {TORCH_STEM}"])
    assert "1 failed, 1 refused" in said
    (hub.bin / f"broken-{TORCH_STEM}").unlink()
    code, said = publish(hub, f"{ID},cpu-avx2", "--org", "acme")
    assert code == 0, said
    assert calls(hub)[1:] == [
        f"publish -o acme {TORCH_STEM}",
        f"publish --dir companions -o acme {VISION_STEM}",
    ]
    assert hub.ledger()[-1]["variant"] == ID
    assert "2 already" in publish(hub, f"{ID},cpu-avx2", "--org", "acme")[1]


# --- show and status ---


def test_a_companion_is_shown_by_its_id_which_its_variant_names(still: Project) -> None:
    document = json.loads(still.succeeds("show", ID, "--json"))
    assert (document["id"], document["package"]) == (ID, VISION_STEM)
    assert (document["version"], document["torch"]) == ("0.25.0", "cpu-avx2")
    path = f"companions/.flox/pkgs/{VISION_STEM}.nix"
    assert (document["recipe"]["path"], document["recipe"]["action"]) == (path, "unchanged")
    said = " ".join(still.invoke("show", VISION_STEM).stdout.split())
    assert "companion torchvision 0.25.0 for the PyTorch of cpu-avx2" in said
    document = json.loads(still.invoke("show", "cpu-avx2", "--json").stdout)
    assert document["torch"] == document["id"]
    assert document["companions"] == [ID, "cpu-avx2+torchaudio"]


def test_a_companion_has_a_state_and_a_failure_of_its_own(checkout: Checkout) -> None:
    package = checkout.package(ID)
    checkout.failed(package, "error: builder failed\n")
    assert checkout.state(ID).overall == "failed"
    output = checkout.built(package, checkout.store, seconds=300.0)
    checkout.tested(package, output, by="inspect", outcome="passed")
    assert checkout.state(ID).overall == "tested"
    assert checkout.state("cpu-avx2").overall == "not built"
    checkout.add(package, "published", output=output, organization="acme")
    assert checkout.state(ID).overall == "published"


def test_status_has_companions_with_events_and_those_that_are_named(project: Project) -> None:
    SampleFleet(project.root).failed(package_of(ID), "error: builder failed\n")

    def rows(*words: str) -> dict[str, str]:
        document = json.loads(project.invoke("status", *words, "--json").stdout)
        return {row["id"]: row["state"] for row in document["packages"]}

    assert {"cpu-avx2": "not built", ID: "failed"}.items() <= rows().items()
    assert "cpu-avx2+torchaudio" not in rows()
    named = {"cpu-avx2": "not built", "cpu-avx512+torchaudio": "not built"}
    assert named.items() <= rows("--packages", "cpu-avx2,cpu-*+torchaudio").items()
