"""`invoke doctor`: what is said of an installed torch on a machine, and how a Python is asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import WHOLE
from msgspec.structs import replace
from test_choice import machine_of

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware import doctor
from build_pytorch.hardware.choose import Person, choose
from build_pytorch.hardware.doctor import DoctorFinding, InstalledTorch, ask, diagnose
from build_pytorch.matrix import matrix_reader

MATRIX = matrix_reader.parse(WHOLE)
NEWEST = InstalledTorch(
    python="3.12.1",
    folders=("/env/lib/torch",),
    installer="pip",
    version="2.15.0+cu132",
    cuda="13.2",
    arch_list=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
)
CPU = replace(NEWEST, version="2.15.0+cpu", cuda=None, arch_list=())
H100 = "zen4 | H100=9.0 | 580.95.05 | |"
OLD_DRIVER = "zen4 | H100=9.0 | 550.54.15 | |"


def found(
    torch: InstalledTorch, row: str, python: str = "/env/bin/python"
) -> tuple[DoctorFinding, ...]:
    machine, _ = machine_of(row)
    version = ".".join(torch.python.split(".")[:2])
    return diagnose(python, torch, machine, choose(MATRIX, machine, Person(python=version)))


RIGHT = [
    (NEWEST, H100),
    (replace(NEWEST, version="2.14.1+cu126", cuda="12.6"), OLD_DRIVER),
    (replace(NEWEST, version="2.16.0.dev20261120", cuda="13.2"), H100),
    (NEWEST, "zen4 | L4=8.9 | 580.95.05 | |"),
    (CPU, "zen4 | | | |"),
    (NEWEST, "zen4 | | | |"),  # a build with CUDA runs on the CPU, too
    (replace(NEWEST, python="3.10.2", version="2.14.1"), H100),  # 2.15.0 needs Python 3.11
]


@pytest.mark.parametrize(("torch", "row"), RIGHT)
def test_what_is_as_good_as_the_best_is_right(torch: InstalledTorch, row: str) -> None:
    assert found(torch, row) == ()


WRONG = [
    (CPU, H100, "wrong", "a build without CUDA: H100 stays unused", "torch==2.15.0"),
    (NEWEST, OLD_DRIVER, "wrong", "needs driver 580.65.06", "2.14.1 --index-url"),
    (
        replace(NEWEST, arch_list=("sm_7", "compute_x", "\x1b")),
        H100, "wrong", "no code for 9.0 (code: sm_7 compute_x", "torch==2.15.0",
    ),
    (NEWEST, "zen4 | P40=6.1 | 580.95.05 | |", "wrong", "no code for 6.1 (code: sm_75", "2.14.1"),
    (replace(NEWEST, problem="CUDA error 999"), H100, "wrong", "no GPU: CUDA er", "nvidia-smi"),
    (replace(NEWEST, error="ImportError: x"), H100, "wrong", "imported: ImportE", "--force-re"),
    (replace(NEWEST, folders=()), H100, "wrong", "no torch is installed", "-m pip install torch=="),
    (replace(NEWEST, version="2.11.0"), H100, "works, but", "this is 2.11.0, and 2.15.0", "2.15.0"),
    (
        replace(NEWEST, arch_list=("sm_80", "compute_80")),
        H100, "works, but", "PTX, which the driver compiles", "torch==2.15.0",
    ),
    (  # no driver compiles PTX of a newer CUDA than its own
        replace(NEWEST, version="2.8.0", cuda="12.8", arch_list=("sm_80", "compute_80")),
        "zen4 | H100=9.0 | 535.183.01 | |", "wrong", "needs driver 570.26 or newer", "2.14.1",
    ),
    (
        NEWEST, "zen4 | V100=7.0, H100=9.0 | 580.95.05 | |",
        "works, but", "no code for V100", "torch==2.14.1",
    ),
    (
        replace(NEWEST, folders=("/a/torch", "/b/torch")),
        H100, "works, but", "/a/torch hides /b/torch", "/env/bin/python -m pip uninstall torch",
    ),
    (
        replace(NEWEST, folders=("/a/torch", "/b/torch"), error="ImportError: x"),
        H100, "wrong", "/a/torch hides /b/torch", "uninstall torch",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("torch", "row", "verdict", "text", "command"), WRONG)
def test_what_is_worse_is_named_with_the_command_that_repairs_it(
    torch: InstalledTorch, row: str, verdict: str, text: str, command: str
) -> None:
    first = found(torch, row)[0]
    assert first.verdict == verdict
    assert text in first.text
    assert command in first.command


def test_the_reason_for_no_gpu_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (first,) = found(replace(NEWEST, problem="no CUDA-capable device"), H100)
    assert first.command == "unset CUDA_VISIBLE_DEVICES"


def test_a_checkout_of_pytorch_in_the_own_folder_hides_the_installed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    hidden = replace(NEWEST, folders=(f"{tmp_path}/torch", "/b/torch"), error="no torch._C")
    assert found(hidden, H100)[0].command == "cd /"


@pytest.mark.parametrize(
    ("installer", "command"),
    [
        ("pip", "'/my env/python' -m pip install --force-reinstall torch==2.15.0"),
        ("uv", "uv pip install --python '/my env/python' --reinstall torch==2.15.0"),
        ("other", "python3 -m venv torch-env && torch-env/bin/pip install torch==2.15.0"),
        ("conda", "pip install torch==2.15.0"),
    ],
)
def test_the_command_is_of_what_may_replace_the_torch(installer: str, command: str) -> None:
    torch = replace(CPU, installer=installer)
    assert found(torch, H100, "/my env/python")[0].command == command


# --- asking a Python ---

TORCH = """
import os, sys, types
{before}
__version__ = "2.15.0+cpu"
version = types.SimpleNamespace(cuda=None, hip=None, git_version="")
cuda = types.SimpleNamespace(has_magma=False, get_arch_list=lambda: [])
_C = types.SimpleNamespace()
cudnn = types.SimpleNamespace(is_available=lambda: False)
cpu = types.SimpleNamespace(get_cpu_capability=lambda: "AVX2")
backends = types.SimpleNamespace(cudnn=cudnn, cpu=cpu)
get_num_threads = lambda: 1
__config__ = types.SimpleNamespace(show=lambda: "", parallel_info=lambda: "")
"""


def python_with(folder: Path, before: str) -> str:
    """A Python that finds a torch which does something before it is there."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(TORCH.format(before=before))
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ("", ""),
        ("raise ImportError('no libtorch')", "ImportError: no libtorch"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("os.kill(os.getpid(), 4)", "Python ended: code -4, "),
        ("import time; time.sleep(99)", "Python ended: no answer after 2 s"),
        ("while True: os.write(2, b'x' * 65536)", "Python ended: code -9, "),
        (r"print('\x1b[31m' * 1000); raise ImportError('\x1b]0;x\x07')", "ImportError: "),
    ],
)
def test_a_python_says_what_its_torch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, error: str
) -> None:
    monkeypatch.setattr(doctor, "_SECONDS", 2.0 if "sleep" in before else 120.0)
    path, torch = ask(python_with(tmp_path, before))
    assert path == f"{tmp_path}/python"
    assert torch.folders[0] == f"{tmp_path}/torch"
    assert torch.error.startswith(error)
    assert torch.version == ("" if error else "2.15.0+cpu")


FIRST = '{"python": "3.12", "folders": [], "installer": "pip"}'


@pytest.mark.parametrize(
    "answer",
    [
        "[" * 100_000,
        FIRST.replace('"3.12"', "312"),
        f'{FIRST}\n{{"arch_list": "sm_90"}}',
        f"{FIRST}\n{json.dumps({'problem': 'x' * 20_001})}",
        f"{FIRST}\n[]",
        "",
    ],
    ids=range(6),
)
def test_another_answer_is_refused_in_one_line(tmp_path: Path, answer: str) -> None:
    (tmp_path / "answer").write_text(answer)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    program.chmod(0o755)
    with pytest.raises(
        BuildPytorchError, match=r"its answer is not that of a Python 3\.8 or newer"
    ):
        ask(str(program))


def test_the_active_environment_comes_before_python3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    python = python_with(tmp_path / "bin", "")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(name, str(tmp_path))
        assert ask("")[0] == python
    with pytest.raises(BuildPytorchError, match=r"^/none: no such program; name the Python"):
        ask("/none")
