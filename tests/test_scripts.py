"""scripts/wheel_facts.py, and companion_versions.py on small wheels that pip finds in a folder."""

from __future__ import annotations

import importlib.util
import tomllib
import zipfile
from pathlib import Path

import companion_versions
import pytest
from built_files import device_library, needs_cuda
from companion_versions import file_text, required, table_in
from wheel_facts import changed, gpu_code

from build_pytorch.matrix import available
from build_pytorch.matrix.available import available_builds

needs_pip = pytest.mark.skipif(not importlib.util.find_spec("pip"), reason="no pip")
AVAILABLE = Path(available.__file__).with_suffix(".toml")
TABLE = """
| `torchcodec`       | `torch`            | Python              |
| `main` / `nightly` | `main` / `nightly` | `>=3.10`, `<=3.14`   |
| `0.16`             | `>=2.11`           | `>=3.10`, `<=3.14`   |
| `0.10`             | `2.10`             | `>=3.10`, `<=3.14`   |
"""


@needs_cuda
def test_gpu_code_is_what_most_objects_have(tmp_path: Path) -> None:
    library = device_library(tmp_path, "80 90 ptx90", "80 90 90a ptx90", "80 ptx90")
    assert gpu_code(library) == (["8.0", "9.0"], ["9.0"])
    assert gpu_code(tmp_path / "libtorch_cuda_of_a_cpu_only_wheel.so") == ([], [])


def test_what_was_read_changes_the_row_of_its_wheel_and_nothing_else() -> None:
    old = AVAILABLE.read_text()
    known = next(it for it in available_builds() if it.features)
    facts = {"cuda": known.cuda, "code": list(known.code), "features": known.features}
    assert changed(old, known.version, known.platform, facts) == old
    facts["features"] = {**known.features, "nccl": "9.9"}
    lines = changed(old, known.version, known.platform, facts).splitlines()
    assert [line for line in lines if line not in old.splitlines()] == ['nccl = "9.9"']
    assert changed(old, "9.9.0", "x86_64-linux", facts).startswith(f"{old}[[build]]\n")


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


def plant(folder: Path, version: str, *lines: str) -> None:
    """A wheel of TorchVision with lines of metadata."""
    info = f"torchvision-{version}.dist-info"
    head = ["Metadata-Version: 2.1", "Name: torchvision", f"Version: {version}", *lines]
    name = f"torchvision-{version}-cp312-cp312-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "\n".join([*head, "", ""]))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr(f"{info}/RECORD", "")


@needs_pip
@pytest.mark.slow
def test_what_metadata_do_not_state_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # and nothing elsewhere: see conftest.py
    plant(tmp_path, "1.0.0", "Requires-Dist: torch==9.8.0")
    plant(tmp_path, "1.1.0")
    plant(tmp_path, "1.2.0")
    plant(tmp_path, "0.9.0", "Requires-Dist: torch==9.7.0")
    path = tmp_path / "versions.toml"
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
