"""examples/all-lines: sixteen release lines, compared with facts that were transcribed by hand.

`DEVIATIONS` are the places where the recipes that were written by hand contradict themselves; each
is described in docs/explanation/release-lines.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, needs_nix, write_recipes

from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import Release
from build_pytorch.verify import verification

pytestmark = pytest.mark.slow

EXAMPLE = PROJECT / "examples/all-lines/matrix.toml"
FACTS: dict[str, Any] = json.loads((PROJECT / "tests/fixtures/lines.json").read_text())
LINES: dict[str, dict[str, Any]] = FACTS["lines"]
LATE_CCCL = {"L10", "L15", "L16"}
"""Lines on CUDA 13 whose pin is older than the fix of cuda_cccl."""
DEVIATIONS = {
    "CCCL shim": {"L10"},  # a pin without the fix of cuda_cccl
    "FindCUDAToolkit stub": {"L13", "L14"},  # patches cleared, on whichever CUDA
}


@pytest.fixture(scope="module")
def lines() -> Matrix:
    """The matrix of all lines."""
    return matrix_reader.load(EXAMPLE.parent)


@pytest.fixture(scope="module")
def tree(lines: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all recipes."""
    root = tmp_path_factory.mktemp("lines")
    (root / "release.nix").write_text(recipes.release_nix(lines, write_recipes(root, lines)))
    return root


def of_line(lines: Matrix, line: str, kind: str = "gpu") -> list[Variant]:
    return [v for v in lines.of_release(line.lower()) if v.kind == kind]


def has_versions(lines: Matrix, release: Release, fact: dict[str, Any]) -> None:
    """A release has the versions, the pin and the source of a fact."""
    assert (release.torch.version, release.python.version) == (fact["torch"], fact["python"])
    assert lines.pins[release.nixpkgs.pin].rev == FACTS["pins"][fact["pin"]]["rev"]
    assert release.torch.is_of_pin == (fact["source"] == "native")


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_its_versions_and_variants(lines: Matrix, line: str) -> None:
    fact, release = LINES[line], lines.releases[line.lower()]
    has_versions(lines, release, fact)
    assert release.cuda
    assert (release.cuda.version, release.cuda.package_set) == (fact["cuda"], fact["set"])
    if fact["source"] == "override":
        assert {name: getattr(release.torch, name) for name in FACTS["source"]} == FACTS["source"]
    python, cuda = fact["python"].replace(".", ""), fact["cuda"].replace(".", "_")
    wanted = {
        f"pytorch-python{python}-cuda{cuda}-{gpu}-{isa}"
        for platform, gpus in FACTS["gpus"][fact["cuda"]].items()
        for gpu in gpus + (["sm70"] if line in FACTS["with_sm70"] else [])
        for isa, about in FACTS["isas"].items()
        if about["platform"] == platform
    }
    if line in FACTS["with_sm61"]:
        wanted |= {f"pytorch-python{python}-cuda{cuda}-sm61-{isa}" for isa in ("avx", "avx2")}
    own = of_line(lines, line)
    assert len(own) == len(wanted) == fact["variants"]
    assert {Path(variant.path).stem for variant in own} == wanted
    for variant in own:
        about = FACTS["isas"][variant.cpu_key]
        assert variant.cpu.platform == about["platform"]
        assert set(variant.cpu.flags) == set(about["flags"].split())


@pytest.mark.parametrize("name", FACTS["cpu_sets"])
def test_a_cpu_set_has_its_variants(lines: Matrix, name: str) -> None:
    fact = FACTS["cpu_sets"][name]
    release = lines.releases[fact["beside"].lower()]
    own = of_line(lines, fact["beside"], "cpu-only")
    isas = set(FACTS["isas"]) - ({"avx"} if not fact["avx"] else set())
    assert {variant.cpu_key for variant in own} == isas
    assert len(own) == fact["variants"]
    has_versions(lines, release, fact)
    python = fact["python"].replace(".", "")
    assert {v.package for v in own} == {f"pytorch-python{python}-cpu-{isa}" for isa in isas}
    (mps,) = of_line(lines, fact["beside"], "mps")
    assert mps.package == f"pytorch-python{python}-darwin-mps"


def test_rules_apply_as_often_as_they_were_found(lines: Matrix) -> None:
    """Beside the lines in which the recipes written by hand were wrong."""
    linux = [variant for variant in lines.variants if variant.kind != "mps"]
    effects = [variant.effects for variant in linux]
    counts = FACTS["counts"]
    assert sum(e.environment.get("USE_CUDNN") == "0" for e in effects) == counts["USE_CUDNN=0"]
    assert sum(bool(e.patches) for e in effects) == counts["MAGMA patch"]
    fixes = {"cccl-shim": "CCCL shim", "find-cuda-toolkit-stub": "FindCUDAToolkit stub"}
    for fix, name in fixes.items():
        deviating = sum(len(of_line(lines, line)) for line in DEVIATIONS[name])
        assert sum(fix in each.fixes for each in effects) == counts[name] + deviating
    assert sum(variant.cpu_key == "avx" for variant in linux) == counts["avx"]
    for variant in linux:
        of_avx = variant.effects.environment.keys() - {"USE_CUDNN", "NVCC_APPEND_FLAGS"}
        own = {name: variant.effects.environment[name] for name in of_avx}
        is_avx = variant.cpu_key == "avx"
        assert own == (FACTS["avx_environment"] if is_avx else {})
        assert [*variant.effects.cmake_flags] == (FACTS["avx_cmake_flags"] if is_avx else [])


@pytest.mark.parametrize("line", LINES)
def test_recipes_say_what_the_facts_say(lines: Matrix, tree: Path, line: str) -> None:
    """The text of the recipes, without the model and without the checks."""
    fact, source = LINES[line], FACTS["source"]
    for variant in of_line(lines, line):
        assert variant.gpu
        text = (tree / variant.path).read_text()
        assert re.search(rf"cudaPackages = final\.{fact['set']}[;.]", text)
        own_source = fact["source"] == "override"
        has = {
            f"archive/{FACTS['pins'][fact['pin']]['rev']}.tar.gz": True,
            "cudaSupport = true;\n  gpuTargets = [ gpuArchSM ];": True,
            f'gpuArchSM = "{variant.gpu.capability}";': True,
            FACTS["magma_patch"]["hash"]: fact["magma_patch"],
            source["hash"]: own_source,
            "patches = [];": own_source,
            "PYTORCH_BUILD_VERSION": own_source,
            # Instead of allowBroken for every package, torch alone is forgiven one reason.
            "allowBroken": False,
            'brokenConditions [ "Unsupported CUDA version" ]': True,
            "cccl-compat": line in LATE_CCCL,
            "cat > cmake/Modules/FindCUDAToolkit": own_source,
            "CUPTI_LIBRARY_DIR": own_source,
            "cmake/Codegen.cmake": variant.gpu_key in {"sm103", "sm121"},
        }
        assert {piece: piece in text for piece in has} == has


@needs_nix
def test_all_pass_text_syntax_and_evaluation(lines: Matrix, tree: Path) -> None:
    only = ["matrix", "text", "evaluation"]
    result = verification.verify(lines, tree, only=only)
    assert [(f.path, f.check, f.found) for f in result.findings][:5] == []
    assert {o.id for o in result.checks if o.state != "passed"} == set()
    assert "967 of 967 recipes" in result.summary
