"""examples/all-lines: sixteen release lines, compared with facts that were transcribed by hand.

`DEVIATIONS` are the places where the recipes that were written by hand contradict themselves; each
is described in docs/explanation/release-lines.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, needs_nix

from build_pytorch.generate import recipes
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix.evaluation import shared_import
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
    texts = recipes.render(lines)
    texts["release.nix"] = recipes.release_nix(lines, texts)
    for path, text in texts.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def of_line(lines: Matrix, line: str, kind: str = "gpu") -> list[Variant]:
    return [v for v in lines.of_release(line.lower()) if v.kind == kind]


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_its_pin_versions_and_source(lines: Matrix, line: str) -> None:
    fact, release = LINES[line], lines.releases[line.lower()]
    pin = lines.pins[release.nixpkgs.pin]
    assert release.cuda
    assert (release.torch.version, release.python.version, release.cuda.version, pin.rev) == (
        fact["torch"],
        fact["python"],
        fact["cuda"],
        FACTS["pins"][fact["pin"]]["rev"],
    )
    assert release.cuda.package_set == fact["set"]
    assert release.torch.is_of_pin == (fact["source"] == "native")
    if fact["source"] == "override":
        for name, value in FACTS["source"].items():
            assert getattr(release.torch, name) == value


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_its_variants_with_their_names(lines: Matrix, line: str) -> None:
    fact = LINES[line]
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
    assert (release.torch.version, release.python.version) == (fact["torch"], fact["python"])
    assert lines.pins[release.nixpkgs.pin].rev == FACTS["pins"][fact["pin"]]["rev"]
    assert release.torch.is_of_pin == (fact["source"] == "native")
    python = fact["python"].replace(".", "")
    assert {v.package for v in own} == {f"pytorch-python{python}-cpu-{isa}" for isa in isas}
    (mps,) = of_line(lines, fact["beside"], "mps")
    assert mps.package == f"pytorch-python{python}-darwin-mps"


def test_the_lines_have_959_recipes_for_linux_and_8_for_macos(lines: Matrix) -> None:
    counts = Counter(variant.kind for variant in lines.variants)
    assert counts == {kind: FACTS["counts"][kind] for kind in ("gpu", "cpu-only", "mps")}
    assert counts["gpu"] + counts["cpu-only"] == 959


def deviating(lines: Matrix, what: str) -> int:
    return sum(len(of_line(lines, line)) for line in DEVIATIONS[what])


def test_rules_apply_as_often_as_they_were_found(lines: Matrix) -> None:
    """Beside the lines in which the recipes written by hand were wrong."""
    linux = [variant for variant in lines.variants if variant.kind != "mps"]
    effects = [variant.effects for variant in linux]
    counts = FACTS["counts"]
    assert sum(e.environment.get("USE_CUDNN") == "0" for e in effects) == counts["USE_CUDNN=0"]
    assert sum(bool(e.patches) for e in effects) == counts["MAGMA patch"]
    for fix, name in (
        ("cccl-shim", "CCCL shim"),
        ("find-cuda-toolkit-stub", "FindCUDAToolkit stub"),
    ):
        found = sum(fix in each.fixes for each in effects)
        assert found == counts[name] + deviating(lines, name)
    avx = [variant for variant in linux if variant.cpu_key == "avx"]
    assert len(avx) == counts["avx"]
    for variant in avx:
        environment = dict(variant.effects.environment)
        environment.pop("USE_CUDNN", None)
        environment.pop("NVCC_APPEND_FLAGS", None)
        assert environment == FACTS["avx_environment"]
        assert list(variant.effects.cmake_flags) == FACTS["avx_cmake_flags"]
    others = [variant for variant in linux if variant.cpu_key != "avx"]
    assert not any(v.effects.cmake_flags or "USE_FBGEMM" in v.effects.environment for v in others)


@pytest.mark.parametrize("line", LINES)
def test_recipes_say_what_the_facts_say(lines: Matrix, tree: Path, line: str) -> None:
    """The text of the recipes, without the model and without the checks."""
    fact, source = LINES[line], FACTS["source"]
    for variant in of_line(lines, line):
        assert variant.gpu
        text = (tree / variant.path).read_text()
        assert f"archive/{FACTS['pins'][fact['pin']]['rev']}.tar.gz" in text
        assert re.search(rf"cudaPackages = final\.{fact['set']}[;.]", text)
        assert "cudaSupport = true;\n  gpuTargets = [ gpuArchSM ];" in text
        assert f'gpuArchSM = "{variant.gpu.capability}";' in text
        assert (FACTS["magma_patch"]["hash"] in text) == fact["magma_patch"]
        assert (source["hash"] in text) == (fact["source"] == "override")
        assert ("patches = [];" in text) == (fact["source"] == "override")
        assert ("PYTORCH_BUILD_VERSION" in text) == (fact["source"] == "override")
        # Instead of allowBroken for every package, torch alone is forgiven one reason.
        assert "allowBroken" not in text
        assert 'brokenConditions [ "Unsupported CUDA version" ]' in text
        assert ("cccl-compat" in text) == (line in LATE_CCCL)
        own_source = fact["source"] == "override"
        assert bool(re.search(r"cat > \S*FindCUDAToolkit", text)) == own_source
        assert ("CUPTI_LIBRARY_DIR" in text) == own_source
        assert ("cmake/Codegen.cmake" in text) == (variant.gpu_key in {"sm103", "sm121"})


@needs_nix
def test_all_pass_text_syntax_and_evaluation(lines: Matrix, tree: Path) -> None:
    only = ["matrix", "text", "evaluation"]
    result = verification.verify(lines, tree, only=only)
    assert [(f.path, f.check, f.found) for f in result.findings][:5] == []
    assert {o.id for o in result.checks if o.state != "passed"} == set()
    assert "967 of 967 recipes" in result.summary


def test_nixpkgs_is_imported_once_for_each_pin_system_config_and_overlays(
    lines: Matrix, tree: Path
) -> None:
    imports = {shared_import((tree / variant.path).read_text()) for variant in lines.variants}
    distinct = {
        (
            variant.pin.rev,
            variant.cpu.platform,
            variant.config,
            variant.cuda and variant.cuda.package_set,
            variant.release.torch.is_of_pin or (variant.python_set, variant.release.torch),
            variant.effects.patches,
            "own-libraries" in variant.effects.fixes and variant.gpu_key,
        )
        for variant in lines.variants
    }
    assert len(imports) == len(distinct)
