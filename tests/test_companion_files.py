"""The files of companions: device code, version and closure."""

from __future__ import annotations

from pathlib import Path

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
from conftest import Project
from msgspec import structs

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.inspect import inspection, target
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.model import Matrix
from build_pytorch.smoke import smoke_tests

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


def test_a_folder_without_the_library_is_refused(tmp_path: Path) -> None:
    compile_library(tmp_path)
    with pytest.raises(BuildPytorchError, match=r"no _C\.so in it; give the folder that has it"):
        inspection.folder_target(package_of("cpu-avx2+torchvision"), tmp_path)


def test_all_parts_pass_for_the_files_of_a_companion(project: Project, tmp_path: Path) -> None:
    compile_library(tmp_path, name="_C.so")
    (tmp_path / "version.py").write_text("__version__ = '0.25.0'\n")
    done = project.run("invoke", "inspect", "cpu-avx2+torchvision", "--path", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu-avx2+torchvision  passed" in done.stdout
    assert "  passed   libraries\n" in done.stdout


# --- closure ---

RIGHT = "python3.13-pytorch210-python313-cuda13_0-sm120-avx2-2.10.0"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([RIGHT, f"{RIGHT}-lib", f"{RIGHT}-dev"], ""),
        ([], "PyTorch nowhere"),
        (["python3.13-torch-2.9.1"], "PyTorch python3.13-torch-2.9.1"),
        (["python3.13-pytorch210-for-torchvision-sm120-avx2-2.10.0"], "pytorch210-for-torchvision"),
        ([RIGHT, "python3.13-torch-2.9.1-lib"], "PyTorch "),
        ([RIGHT, "python3.13-pytorch-lightning-2.5", "python3.13-torchmetrics-1.9.0"], ""),
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
