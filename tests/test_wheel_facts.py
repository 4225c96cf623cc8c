"""scripts/wheel_facts.py, on small wheels that pip finds in a folder."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from built_files import compile_library, device_library, needs_cuda
from conftest import PROJECT
from wheel_facts import changed, read_wheel

from build_pytorch.matrix import available
from build_pytorch.matrix.available import available_builds

needs_pip = pytest.mark.skipif(not importlib.util.find_spec("pip"), reason="no pip")
METADATA = """Metadata-Version: 2.1
Name: torch
Version: 9.9.0
Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == "Linux"
"""
TEXT = """__attribute__((used)) const char text[] = "-DUSE_FBGEMM -DUSE_KINETO ncclAllReduce";
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip finds wheels, and nothing elsewhere."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def plant(folder: Path, cuda: str, *libraries: Path) -> Path:
    wheel = folder / "torch-9.9.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    info = "torch-9.9.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for library in libraries:
            archive.write(library, f"torch/lib/{library.name}")
        archive.writestr("torch/version.py", f"__version__ = '9.9.0'\ncuda: str = {cuda}\n")
        archive.writestr("../../outside.so", "a name that leads out of the folder")
        archive.writestr(f"{info}/METADATA", METADATA)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@needs_pip
@pytest.mark.slow
def test_a_cpu_only_wheel_is_read(folder: Path, tmp_path: Path) -> None:
    plant(folder, "None", compile_library(tmp_path, source=TEXT))
    wheel = read_wheel("9.9.0", "x86_64-linux")
    assert (wheel["cuda"], wheel["code"], wheel["ptx"]) == ("", [], [])
    assert wheel["features"] == {"fbgemm": "", "kineto": "", "nccl": "2.28.9"}
    assert wheel["source"].startswith(
        "PyPI, torch-9.9.0-cp312-cp312-manylinux_2_28_x86_64.whl, sha"
    )


@needs_pip
@needs_cuda
@pytest.mark.slow
def test_gpu_code_is_what_most_objects_have(folder: Path, tmp_path: Path) -> None:
    objects = ["80 90 ptx90", "80 90 90a ptx90", "80 ptx90"]
    cuda = device_library(tmp_path, *objects)
    plant(folder, "'13.0'", compile_library(tmp_path, source=TEXT), cuda)
    wheel = read_wheel("9.9.0", "x86_64-linux")
    assert (wheel["cuda"], wheel["code"], wheel["ptx"]) == ("13.0", ["8.0", "9.0"], ["9.0"])


def test_what_was_read_changes_the_row_of_its_wheel_and_nothing_else() -> None:
    old = Path(available.__file__).with_suffix(".toml").read_text()
    known = next(it for it in available_builds() if it.features)
    facts = {"cuda": known.cuda, "code": list(known.code), "features": known.features}
    assert changed(old, known.version, known.platform, facts) == old
    facts["features"] = {**known.features, "nccl": "9.9"}
    lines = changed(old, known.version, known.platform, facts).splitlines()
    assert [line for line in lines if line not in old.splitlines()] == ['nccl = "9.9"']
    assert changed(old, "9.9.0", "x86_64-linux", facts).startswith(f"{old}[[build]]\n")


@needs_pip
@pytest.mark.slow
def test_an_unknown_version_is_one_line(folder: Path) -> None:
    path = Path(available.__file__).with_suffix(".toml")
    before = path.read_bytes()
    argv = [sys.executable, str(PROJECT / "scripts/wheel_facts.py"), "9.9.1"]
    done = subprocess.run(
        [*argv, "--platform", "x86_64-linux"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [
        "PyTorch 9.9.1 for x86_64-linux: ERROR: No matching distribution found for torch==9.9.1"
    ]
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == []
