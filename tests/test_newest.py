"""The release of the newest PyTorch, on the model of the newer expression of nixpkgs."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import WHOLE, needs_nix, write_recipes

from build_pytorch.generate import recipes
from build_pytorch.matrix import known_hardware, matrix_reader, matrix_text
from build_pytorch.matrix.model import Matrix
from build_pytorch.verify import verification

NAME = "cuda13_2"


@pytest.fixture(scope="module")
def newest() -> Matrix:
    """The matrix with a release like it for another Python."""
    other = f'[release.{NAME}_py313]\nlike = "{NAME}"\nfolder = "releases/{{release}}/.flox/pkgs"\n'
    return matrix_reader.parse(f'{WHOLE}\n{other}python = {{ version = "3.13" }}\n')


HOOK = "  preConfigure ="
CHANGES = {
    "sm120-avx2": (HOOK, "patches = [];", "eval-patches"),
    "sm90-avx2": (HOOK, 'env = oldAttrs.env // { USE_NCCL = "0"; };', "eval-unchanged"),
    "sm80-avx2": (
        *(HOOK, 'cmakeFlags = oldAttrs.cmakeFlags ++ [ "-DUSE_NCCL=OFF" ];'),
        "eval-cmake-flags",
    ),
    "sm75-avx2": (
        *(HOOK, 'env = oldAttrs.env // { PYTORCH_BUILD_VERSION = "2.12.0"; };'),
        "eval-unchanged",
    ),
    "cpu-avx2": ("-DUSE_CUDA=OFF", "-DUSE_CUDA=ON", "eval-cmake-flags"),
}
"""A mistake in a recipe, and the check that finds it."""


@pytest.mark.slow
@needs_nix
def test_mistakes_in_its_recipes_are_found(newest: Matrix, tmp_path: Path) -> None:
    write_recipes(tmp_path, newest)
    wanted = set()
    variants = newest.of_release(NAME)
    for variant in variants:
        if variant.short_id in CHANGES:
            old, new, check = CHANGES[variant.short_id]
            file = tmp_path / variant.path
            assert old in file.read_text()
            new = f"  {new}\n{HOOK}" if old == HOOK else new
            file.write_text(file.read_text().replace(old, new, 1))
            wanted.add((variant.path, check))
    result = verification.verify(newest, tmp_path, variants=variants, only=["evaluation"])
    assert wanted <= {(f.path, f.check) for f in result.findings}


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
    text = matrix_text.with_table(text, ("rule", 0), rule)
    matrix = matrix_reader.parse(text)
    texts, variants = write_recipes(tmp_path, matrix), matrix.of_release(NAME)
    only = ["evaluation", "hooks"]
    result = verification.verify(matrix, tmp_path, variants=variants, only=only)
    assert [(f.path, f.check, f.found) for f in result.findings][:5] == []
    path = variants[0].path
    text = texts[path]
    assert "extras/CUPTI" not in text  # which newer sources do not have
    flag = '"-DCUDA_cupti_LIBRARY=${lib.getLib cuda_cupti}/lib/libcupti.so"'
    (tmp_path / path).write_text(text.replace(flag, ""))
    only = ["eval-cmake-flags"]
    result = verification.verify(matrix, tmp_path, variants=variants, only=only)
    assert [f.found for f in result.findings] == [
        "cmakeFlags: without -DCUDA_cupti_LIBRARY="
        "/nix/store/cuda13.2-cuda_cupti-13.2.x-lib/lib/libcupti.so"
    ]
    assert "export PYTORCH_BUILD_VERSION=2.12.0" in text
    assert "nixpkgs exports the version that it ships" not in text


def test_each_gpu_architecture_has_the_torch_of_the_pin_on_two_pythons(newest: Matrix) -> None:
    pin = newest.pins["september_2026"]
    assert pin.unconfirmed and pin.facts and pin.facts.unconfirmed, "until somebody built it"  # noqa: PT018
    gpus = {f"sm{code}" for code in (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)}
    for name, python in ((NAME, "3.14"), (f"{NAME}_py313", "3.13")):
        variants = newest.of_release(name)
        assert {v.gpu_key for v in variants if v.gpu_key} == gpus
        assert {v.release.python.version for v in variants} == {python}
        assert not any(v.impossible for v in variants)
        assert all(source.is_of_pin for source in newest.releases[name].sources.values())
    ids = {v.short_id: {rule.id for rule in v.effects.rules} for v in newest.of_release(NAME)}
    # The torch of the pin has the patch with which the change of SM103 has no effect.
    every = {"one-architecture", "compress-size"}
    own = {name: rules - every for name, rules in ids.items() if not name.startswith("cpu")}
    assert all(every <= ids[name] for name in own)
    assert {name: rules for name, rules in own.items() if rules} == {
        "sm121-armv9": {"arch-specific-kernels"},
        "sm110-armv9": {"own-libraries"},
    }
    assert not any(rules for name, rules in ids.items() if name.startswith("cpu"))


def test_comments_are_true_for_the_newer_expression(newest: Matrix) -> None:
    """It hands cmakeFlags to CMake, which finds the version of CUDA itself."""
    texts = recipes.render(newest)
    by_id = {v.short_id: texts[v.path] for v in newest.of_release(NAME)}
    assert by_id["sm120-avx2"].count("cmakeFlags = ") == 1, "those of MAGMA"
    assert "# nixpkgs hands these to CMake, after its own." in by_id["cpu-avx2"]
    for text in by_id.values():
        assert "setup.py" not in text
        assert "CCCL" not in text
