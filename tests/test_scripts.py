"""scripts/wheel_facts.py and companion_versions.py, on small wheels that pip finds in a folder."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import companion_versions
import pytest
from built_files import compile_library, device_library, needs_cuda
from companion_versions import file_text, required, table_in
from conftest import PROJECT
from wheel_facts import changed, read_wheel

from build_pytorch.matrix import available
from build_pytorch.matrix.available import available_builds

needs_pip = pytest.mark.skipif(not importlib.util.find_spec("pip"), reason="no pip")
NCCL = 'Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == "Linux"'
TEXT = """__attribute__((used)) const char text[] = "-DUSE_FBGEMM -DUSE_KINETO ncclAllReduce";
"""
AVAILABLE = Path(available.__file__).with_suffix(".toml")
TABLE = """
| `torchcodec`       | `torch`            | Python              |
| `main` / `nightly` | `main` / `nightly` | `>=3.10`, `<=3.14`   |
| `0.16`             | `>=2.11`           | `>=3.10`, `<=3.14`   |
| `0.10`             | `2.10`             | `>=3.10`, `<=3.14`   |
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip finds wheels, and nothing elsewhere."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def plant(folder: Path, package: str, version: str, *lines: str, **files: bytes | str) -> None:
    """A wheel with lines of metadata, and with other files."""
    name = f"{package}-{version}"
    head = ["Metadata-Version: 2.1", f"Name: {package}", f"Version: {version}", *lines]
    info = {"METADATA": "\n".join([*head, "", ""]), "WHEEL": "Wheel-Version: 1.0\n", "RECORD": ""}
    files |= {f"{name}.dist-info/{key}": text for key, text in info.items()}
    with zipfile.ZipFile(folder / f"{name}-cp312-cp312-manylinux_2_28_x86_64.whl", "w") as wheel:
        for place, file in files.items():
            wheel.writestr(place, file)


def torch_wheel(folder: Path, cuda: str, *libraries: Path) -> None:
    files = {f"torch/lib/{library.name}": library.read_bytes() for library in libraries}
    files["torch/version.py"] = f"__version__ = '9.9.0'\ncuda: str = {cuda}\n".encode()
    files["../../outside.so"] = b"a name that leads out of the folder"
    plant(folder, "torch", "9.9.0", NCCL, **files)


@needs_pip
@pytest.mark.slow
def test_a_cpu_only_wheel_is_read(folder: Path, tmp_path: Path) -> None:
    torch_wheel(folder, "None", compile_library(tmp_path, source=TEXT))
    wheel = read_wheel("9.9.0", "x86_64-linux")
    assert (wheel["cuda"], wheel["code"], wheel["ptx"]) == ("", [], [])
    assert wheel["features"] == {"fbgemm": "", "kineto": "", "nccl": "2.28.9"}
    source = "PyPI, torch-9.9.0-cp312-cp312-manylinux_2_28_x86_64.whl, sha"
    assert wheel["source"].startswith(source)


@needs_pip
@needs_cuda
@pytest.mark.slow
def test_gpu_code_is_what_most_objects_have(folder: Path, tmp_path: Path) -> None:
    cuda = device_library(tmp_path, "80 90 ptx90", "80 90 90a ptx90", "80 ptx90")
    torch_wheel(folder, "'13.0'", compile_library(tmp_path, source=TEXT), cuda)
    wheel = read_wheel("9.9.0", "x86_64-linux")
    assert (wheel["cuda"], wheel["code"], wheel["ptx"]) == ("13.0", ["8.0", "9.0"], ["9.0"])


def test_what_was_read_changes_the_row_of_its_wheel_and_nothing_else() -> None:
    old = AVAILABLE.read_text()
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
    before = AVAILABLE.read_bytes()
    argv = [sys.executable, str(PROJECT / "scripts/wheel_facts.py"), "9.9.1"]
    argv += ["--platform", "x86_64-linux"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    says = "PyTorch 9.9.1 for x86_64-linux: ERROR: No matching distribution found for torch==9.9.1"
    assert (done.returncode, done.stderr.splitlines()[1:]) == (2, [says])
    assert AVAILABLE.read_bytes() == before
    assert list(folder.iterdir()) == []


# --- versions of companions ---


def test_metadata_and_a_table_name_the_pytorch() -> None:
    assert required({"requires_dist": ["numpy", "torch (>=2.14.0)"]}, "torch") == ">=2.14.0"
    assert required({"requires_dist": ['triton~=3.9.0; platform_system == "Linux"']}, "triton")
    assert required({}, "torch") == ""
    assert table_in(TABLE) == {"0.16": ">=2.11", "0.10": ">=2.10, <2.11"}


def test_the_file_keeps_its_comments_and_has_the_new_rows() -> None:
    old = companion_versions.COMPANIONS.read_text()
    vision = tomllib.loads(old)["versions"]["torchvision"]
    assert file_text(old, {"torchvision": vision["torch"]}, vision["checked"]) == old
    text = file_text(old, {"torchvision": {"1.0.0": "==9.9.0"}}, "2027-01-01")
    found = tomllib.loads(text)["versions"]["torchvision"]
    assert (found["torch"], found["checked"]) == ({"1.0.0": "==9.9.0"}, "2027-01-01")
    comments, before = ([it for it in t.splitlines() if it[:1] == "#"] for t in (text, old))
    assert comments == before


@needs_pip
@pytest.mark.slow
def test_what_metadata_do_not_state_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(folder, "torchvision", "1.0.0", "Requires-Dist: torch==9.8.0")
    plant(folder, "torchvision", "1.1.0")
    plant(folder, "torchvision", "1.2.0")
    plant(folder, "torchvision", "0.9.0", "Requires-Dist: torch==9.7.0")
    path = folder / "versions.toml"
    rows = '"1.0.0" = "==9.0.0"\n"1.1.0" = ">=9.9"\n'
    head = '[versions.torchvision]\nchecked = ""\n\n[versions.torchvision.torch]\n'
    path.write_text(f'{head}{rows}\n[versions.torchaudio.torch]\n"2.8.0" = "==2.8.0"\n')
    monkeypatch.setattr(companion_versions, "COMPANIONS", path)
    assert companion_versions.main(["torchvision"]) == 0
    found = tomllib.loads(path.read_text())["versions"]["torchvision"]["torch"]
    assert found == {"1.0.0": "==9.8.0", "1.1.0": ">=9.9"}
    said = capsys.readouterr().err.splitlines()
    assert "torchvision 1.2.0: states no PyTorch; kept: none" in said
    assert "torchvision 1.1.0: states no PyTorch; kept: >=9.9" in said
