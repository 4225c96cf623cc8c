"""`invoke doctor`: planted installations of torch, and what is said of each on some machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import PROJECT, Project, error_line, run_in_process, unfolded

from build_pytorch.hardware import asked_torch, detect, saved_machines

TORCH = """
import os, sys, types
{before}
__version__ = {version!r}
version = types.SimpleNamespace(cuda={cuda!r}, hip={hip!r})
def _initialize():
    raise RuntimeError({problem!r})
cuda = types.SimpleNamespace(
    get_arch_list=lambda: {codes!r}.split(), is_available=lambda: not {problem!r}, init=_initialize
)
_C = types.SimpleNamespace()
__config__ = types.SimpleNamespace(show=lambda: {config!r}, parallel_info=lambda: "")
"""
H200 = PROJECT / "tests/machines/h200-recorded.json"
SMOKE = PROJECT / "tests/fixtures/smoke"
WHEEL_CODES = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


class Planted(NamedTuple):
    """A fake torch with real metadata."""

    version: str = "2.13.0+cu130"
    cuda: str | None = "13.0"
    hip: str | None = None
    codes: str = WHEEL_CODES
    config: str = ""
    problem: str = ""
    before: str = ""
    installer: str = "pip"

    def plant(self, site: Path) -> Path:
        (site / "torch").mkdir(parents=True)
        (site / "torch/__init__.py").write_text(TORCH.format(**self._asdict()))
        metadata(site, self.version, self.installer)
        return site


def metadata(site: Path, version: str, installer: str = "pip") -> None:
    folder = site / f"torch-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    (folder / "INSTALLER").write_text(f"{installer}\n")


def python_with(folder: Path, *sites: Path) -> Path:
    """A Python with these folders on its module path."""
    path = folder / "python"
    places = ":".join(map(str, sites))
    path.write_text(f'#!/bin/sh\nPYTHONPATH={places} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def doctor(
    python: str, *words: str, env: dict[str, str] | None = None, root: Path = PROJECT
) -> subprocess.CompletedProcess[str]:
    """Run the command, which only reads, on a checkout.

    Options that describe a machine are of `recommend --describe`, which writes its file.
    """
    argv = ["doctor", *(["--python", python] if python else [])]
    own = [word for word in words if word == "--json"]
    if described := [word for word in words if word != "--json"]:
        text = run_in_process(root, ["recommend", *described, "--describe"], {}).stdout
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            return run_in_process(root, [*argv, "--machine", file.name, *own], env or {})
    return run_in_process(root, [*argv, *own], env or {})


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The output, with each command on one line."""
    return unfolded(done.stdout).replace(" \\ ", " ")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


NEW = "--driver 580.95.05"
NEW_VENV = "python3 -m venv torch-env && torch-env/bin/pip install torch=="
ON_GPU, BETTER = "cannot run on this GPU", "works, better available"
PLANTED = {
    "a wheel on its GPU": (Planted(), f"--gpu H100 {NEW}", "right", "", ""),
    "a wheel with CUDA 12 on the oldest driver of it": (
        Planted(version="2.8.0", cuda="12.8"), "--gpu H100 --driver 525.60.13", "right", "", "",
    ),
    "a build without CUDA on a machine with a GPU": (
        Planted(version="2.13.0+cpu", cuda=None, codes=""), f"--gpu H100 {NEW}", "slow",
        "without CUDA computes on the CPU, and this machine has H100",
        "-m pip install --force-reinstall torch==2.1",
    ),
    "no code for a newer GPU": (
        Planted(version="2.6.0", cuda="12.4", codes="sm_50 sm_90"), "--gpu 12.0 --driver 570.26",
        ON_GPU, "no code for a GPU of capability 12.0 (12.0): sm_50", "torch==2.10.0",
    ),
    "only PTX, compiled at each start": (
        Planted(codes="sm_80 compute_80"), f"--gpu 9.0 {NEW}", BETTER,
        "only PTX for a GPU of capability 9.0", "pip install",
    ),
    "PTX of a newer CUDA than the driver": (
        Planted(version="2.8.0", cuda="12.8", codes="sm_80 compute_80"), "--machine {machine}",
        ON_GPU, "CUDA 12.8 needs driver 570.26 or newer; found driver 535.104.05", "pip install",
    ),
    "CUDA 13 on a driver of CUDA 12": (
        Planted(), "--gpu H100 --driver 550.54.15", ON_GPU,
        "update the NVIDIA driver: CUDA 13 needs driver 580.65.06 or newer; found driver 550",
        "torch==2.10.0",
    ),
    "a build for AMD GPUs": (
        Planted(version="2.9.0+rocm6.4", cuda=None, hip="6.4", codes="gfx90a"),
        f"--gpu H100 {NEW}", ON_GPU,
        "built for AMD GPUs (ROCm 6.4), and this machine has H100", "pip install",
    ),
    "an older GPU that nothing serves": (
        Planted(), f"--gpu 3.5 {NEW}", ON_GPU, "no code for a GPU of capability 3.5",
        "invoke recommend",
    ),
    "one of two GPUs without code": (
        Planted(), f"--gpu H100,6.1 {NEW}", BETTER, "no code for a GPU of capability 6.1", "",
    ),
    "an import that crashes": (
        Planted(before="os.kill(os.getpid(), 4)"), "--cpu avx2", "cannot run",
        "torch cannot be imported: Python ended by SIGILL during the import",
        "-m pip install --force-reinstall torch==",
    ),
    "an installation by uv": (
        Planted(before="sys.exit(0)", installer="uv"), "--cpu avx2", "cannot run",
        "torch cannot be imported: SystemExit: 0", "uv pip install --python ",
    ),
    "an installation by conda": (
        Planted(before="raise OSError", installer="conda"), "--cpu avx2", "cannot run",
        "torch cannot be imported: OSError", NEW_VENV,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_installation_gets_its_verdict(tmp_path: Path, site: Path, name: str) -> None:
    planted, options, verdict, text, repair = PLANTED[name]
    python = python_with(tmp_path, planted.plant(site))
    older = json.loads(H200.read_text()) | {"driver": "535.104.05", "cuda": "12.2"}
    (tmp_path / "older.json").write_text(json.dumps(older))
    options = options.format(machine=tmp_path / "older.json")
    done = doctor(str(python), *options.split())
    out = said(done)
    assert f"Verdict: {verdict}" in out, done.stderr
    assert text in out
    assert repair in out
    assert done.returncode == (verdict not in {"right", "works, better available"})


def test_what_debian_leaves_out_is_slow_with_its_consequences_and_nothing_else(
    tmp_path: Path, site: Path
) -> None:
    config = (SMOKE / "debian-config.txt").read_text()
    planted = Planted(version="2.6.0+debian", cuda=None, codes="", config=config)
    done = doctor(str(python_with(tmp_path, planted.plant(site))), "--cpu", "avx2", "--json")
    found = json.loads(done.stdout)
    assert (found["verdict"], done.returncode) == ("slow", 1)
    problems = [finding["text"].partition(";")[0] for finding in found["findings"]]
    assert problems == ["BLAS: generic, not mkl", "FBGEMM: missing", "NNPACK: missing"]
    assert found["features"]["blas"] == "generic"
    assert (found["origin"], found["exit_code"]) == ("wheel", 1)
    assert found["installed"]["folders"] == [f"{site}/torch"]


@pytest.mark.parametrize(
    ("dropped", "verdict", "text"),
    [
        ("", "right", "BLAS mkl"),
        ("-DUSE_FBGEMM ", "slow", "FBGEMM: missing"),
        ("-DUSE_KINETO ", "works, better available", "Kineto: missing"),
        ("Build settings: ", "right", "features are not judged: torch says nothing of them"),
    ],
)
def test_a_feature_that_a_wheel_has_and_a_build_of_its_version_lacks_is_named(
    tmp_path: Path, site: Path, dropped: str, verdict: str, text: str
) -> None:
    config = json.loads((SMOKE / "cpu-wheel.json").read_text())["torch"]["config"]
    assert dropped in config
    config = config.replace(dropped, "") if dropped else config
    planted = Planted(version="2.13.0+cpu", cuda=None, codes="", config=config)
    out = said(doctor(str(python_with(tmp_path, planted.plant(site))), "--cpu", "avx2"))
    assert f"Verdict: {verdict}" in out
    assert text in out


def test_of_two_on_the_path_the_first_is_named_with_those_it_hides(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place, version in ((first, "2.13.0"), (second, "2.6.0")):
        Planted(version=version).plant(place)
    python = python_with(tmp_path, first, second)
    done = doctor(str(python), "--cpu", "avx2")
    assert f"- {first}/torch hides {second}/torch" in said(done)
    assert f"{python} -m pip uninstall torch" in said(done)
    assert done.returncode == 0
    metadata(first, "2.6.0", "conda")
    done = doctor(str(python_with(tmp_path, first)), "--cpu", "avx2")
    assert "has the metadata of several torch: 2.13.0, 2.6.0" in said(done)


def test_a_checkout_of_pytorch_in_the_own_folder_hides_the_installed_one(
    project: Project, tmp_path: Path, site: Path
) -> None:
    (project.root / "torch").mkdir()
    (project.root / "torch/__init__.py").write_text("raise ImportError('no module torch._C')")
    python = python_with(tmp_path, Planted().plant(site))
    done = doctor(str(python), "--cpu", "avx2", root=project.root)
    assert done.returncode == 1
    hides = f"{project.root}/torch hides {site}/torch"
    assert f"{hides}, and: ImportError: no module torch._C cd /" in said(done)


@pytest.mark.parametrize(
    ("before", "repair"),
    [
        ("", "{python} -m pip install torch==2."),
        ("importlib.util.find_spec = lambda _: None", "uv pip install --python {python} torch=="),
        ("os.access = lambda path, mode: False", NEW_VENV),
        ("sys.prefix = sys.base_prefix", NEW_VENV),
    ],
    ids=["pip", "without pip", "read-only", "of the distribution"],
)
def test_without_torch_the_command_installs_it(tmp_path: Path, before: str, repair: str) -> None:
    stdlib = tmp_path / "stdlib"
    stdlib.mkdir()
    (stdlib / "EXTERNALLY-MANAGED").touch()
    changed = f"sysconfig.get_paths = lambda: {{'stdlib': {str(stdlib)!r}, 'purelib': '/tmp'}}"
    lines = ["import importlib.util, os, sys, sysconfig", changed, before]
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    python = python_with(tmp_path, tmp_path)
    done = doctor(str(python), "--gpu", "H100", "--driver", "580.95.05")
    assert "no torch is installed" in done.stdout
    assert repair.format(python=python) in said(done)
    assert "reinstall" not in said(done)
    assert done.returncode == 1


def test_a_gpu_that_torch_does_not_find_is_named_with_the_reason(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "this_machine", lambda: saved_machines.load(H200))
    python = python_with(tmp_path, Planted(problem="CUDA unknown error").plant(site))
    for visible, repair in ((None, "nvidia-smi"), ("", "unset CUDA_VISIBLE_DEVICES")):
        env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        done = doctor(str(python), env=env)
        out = said(done)
        assert f"torch finds no GPU: CUDA unknown error {repair}" in out, done.stderr
        assert done.returncode == 1


def test_what_torch_prints_is_no_answer_and_never_reaches_the_terminal(
    tmp_path: Path, site: Path
) -> None:
    hostile = "\x1b]0;title\x07\x1b[31mred"
    before = f"print({hostile!r} * 1000); raise ImportError({hostile!r})"
    python = python_with(tmp_path, Planted(before=before).plant(site))
    done = doctor(str(python), "--cpu", "avx2")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr
    assert "torch cannot be imported: ImportError: " in done.stdout


def test_an_import_without_an_end_and_one_with_endless_output_are_stopped(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_torch, "_SECONDS", 2.0)
    python = python_with(tmp_path, Planted(before="import time; time.sleep(99)").plant(site))
    done = doctor(str(python), "--cpu", "avx2")
    assert "torch cannot be imported: no answer after 2 s" in said(done)
    endless = Planted(before="while True: os.write(2, b'x' * 65536)")
    (site / "torch/__init__.py").write_text(TORCH.format(**endless._asdict()))
    done = doctor(str(python), "--cpu", "avx2")
    assert "OSError: [Errno 27] File too large" in said(done)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/nonexistent/python"], "/nonexistent/python: no such program; name the Python"),
        (["/bin/true"], "/bin/true: its answer is not that of a Python 3.8 or newer"),
    ],
)
def test_what_is_no_python_is_refused_in_one_line(words: list[str], said: str) -> None:
    done = doctor(*words)
    assert error_line(done).startswith(said)
    assert done.returncode == 2


FIRST = '{"python": "3.12", "folders": [], "packages": [], "conda": false, "visible_devices": null}'


@pytest.mark.parametrize(
    "answer",
    [
        "[" * 100_000,
        FIRST.replace('"3.12"', "312"),
        f'{FIRST}\n{{"codes": "sm_90"}}',
        FIRST + "\n" + json.dumps({"config": "x" * 20_001}),
    ],
    ids=range(4),
)
def test_another_answer_than_that_of_the_script_is_refused(tmp_path: Path, answer: str) -> None:
    (tmp_path / "answer").write_text(answer)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    program.chmod(0o755)
    done = doctor(str(program), "--cpu", "avx2")
    assert "its answer is not that of a Python 3.8 or newer" in error_line(done)
    assert done.returncode == 2


def test_the_active_environment_comes_before_python3(tmp_path: Path, site: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = python_with(tmp_path / "bin", Planted().plant(site))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        env = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", name: str(tmp_path)}
        done = doctor("", "--cpu", "avx2", "--json", env=env)
        assert json.loads(done.stdout)["python"] == str(python), done.stderr
