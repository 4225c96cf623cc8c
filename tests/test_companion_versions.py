"""scripts/companion_versions.py, with small wheels that pip finds in a folder."""

from __future__ import annotations

import importlib.util
import tomllib
import zipfile
from pathlib import Path

import companion_versions
import pytest
from companion_versions import file_text, required, table_in

needs_pip = pytest.mark.skipif(not importlib.util.find_spec("pip"), reason="no pip")
TABLE = """
| `torchcodec`       | `torch`            | Python              |
| `main` / `nightly` | `main` / `nightly` | `>=3.10`, `<=3.14`   |
| `0.16`             | `>=2.11`           | `>=3.10`, `<=3.14`   |
| `0.10`             | `2.10`             | `>=3.10`, `<=3.14`   |
"""


def plant(folder: Path, package: str, version: str, *lines: str, description: str = "") -> None:
    name = f"{package}-{version}"
    head = ["Metadata-Version: 2.1", f"Name: {package}", f"Version: {version}", *lines]
    with zipfile.ZipFile(folder / f"{name}-cp312-cp312-manylinux_2_28_x86_64.whl", "w") as archive:
        archive.writestr(f"{name}.dist-info/METADATA", "\n".join([*head, "", description]))
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")


def test_metadata_and_a_table_name_the_pytorch() -> None:
    assert required({"requires_dist": ["numpy", "torch (>=2.14.0)"]}, "torch") == ">=2.14.0"
    assert required({"requires_dist": ['triton~=3.9.0; platform_system == "Linux"']}, "triton")
    assert required({}, "torch") == ""
    assert table_in(TABLE) == {"0.16": ">=2.11", "0.10": ">=2.10, <2.11"}


def test_the_file_keeps_its_comments_and_has_the_new_rows() -> None:
    old = companion_versions.COMPANIONS.read_text()
    checked = tomllib.loads(old)["versions"]["torchvision"]["checked"]
    known = tomllib.loads(old)["versions"]["torchvision"]["torch"]
    assert file_text(old, {"torchvision": known}, checked) == old
    text = file_text(old, {"torchvision": {"1.0.0": "==9.9.0"}}, "2027-01-01")
    found = tomllib.loads(text)["versions"]["torchvision"]
    assert (found["torch"], found["checked"]) == ({"1.0.0": "==9.9.0"}, "2027-01-01")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in old.splitlines() if line.startswith("#")
    ]


@needs_pip
@pytest.mark.slow
def test_what_metadata_do_not_state_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    plant(tmp_path, "torchvision", "1.0.0", "Requires-Dist: torch==9.8.0")
    plant(tmp_path, "torchvision", "1.1.0")
    plant(tmp_path, "torchvision", "1.2.0")
    plant(tmp_path, "torchvision", "0.9.0", "Requires-Dist: torch==9.7.0")
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
