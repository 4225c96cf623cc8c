"""`invoke recommend`: screen, JSON and manifest of Flox; `invoke doctor`: an installed torch."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import PROJECT, Project, copied_project, run_in_process
from msgspec.structs import replace
from sample_fleet import SampleFleet
from test_choice import DRAWN_UP, machine_of

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware import doctor, saved_machines
from build_pytorch.hardware.choose import Person, choose
from build_pytorch.hardware.doctor import DoctorFinding, InstalledTorch, ask, diagnose
from build_pytorch.matrix import matrix_reader
from build_pytorch.tasks.machine import print_choice, print_machine

MACHINES = PROJECT / "tests/machines"
MATRIX = matrix_reader.load(PROJECT)
SAVED = {path.stem for path in MACHINES.glob("*.json")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with all releases, which these tests only read."""
    return copied_project(tmp_path_factory.mktemp("whole") / "project", is_whole=True)


def recommended(project: Project, name: str, *words: str) -> str:
    return project.invoke("recommend", "--machine", str(MACHINES / f"{name}.json"), *words).stdout


def test_the_screen_answers_in_a_few_lines(whole: Project) -> None:
    assert recommended(whole, "rtx5090-zen4").splitlines() == [
        "RTX 5090 (12.0), driver 580.95.05 · Ryzen 9 7950X · x86_64",
        "Now    pip install torch==2.15.0   CUDA 13.2, code for 12.0",
        "  or   flox install flox/pytorch-python313-cuda12_9-sm120-avx2",
        "       2.9.1; CUDA 12.9, for this GPU alone; unconfirmed",
        "Build  invoke build cuda13_2/sm120-avx2",
        "       2.13.0; for size (libtorch_cuda 2.6: 192 MB, not 903) or one CUDA in Nix",
        "`-v` says what else runs, and why the rest does not",
    ]


def test_the_first_screen_has_at_most_12_lines(capsys: pytest.CaptureFixture[str]) -> None:
    saved = [saved_machines.load(path) for path in MACHINES.glob("*.json")]
    for machine in [*saved, *(machine_of(row)[0] for row in DRAWN_UP)]:
        print_machine(Screen(sys.stdout), machine)
        print_choice(Screen(sys.stdout), choose(MATRIX, machine), verbose=False)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 12, lines
        assert max(map(len, lines)) <= 100, lines
        assert not [it for it in lines if len(it) > 80 and "   " in it[7:]], "commands stand alone"


# words | exit code | what is said
SAID = """
--machine v100-broadwell -v     | 0 | To have cuda12_8/sm70-avx2, append to matrix.toml
--machine v100-broadwell -v     | 0 | gpu = ["sm70"]
--machine rtx4090-driver-550 -v | 0 | Driver driver 580.65.06 or newer runs `pip install
--gpu K80 --cpu avx2 --driver 470 -v | 0 | cuda13_0: CUDA 13.0 does not compile for 3.7: CUDA 6.5
--gpu 780M --cpu AVX2           | 1 | (3.0) · AVX2
--machine rtx5090-zen4 -v       | 0 | sm120-avx2 not confirmed: that it installs today
--machine rtx5090-zen4 -v       | 0 | check invoke build cuda13_2/sm120-avx2 not confirmed: that
--machine h200-recorded -v      | 0 | Runs as well: pip install torch==2.14.1
--gpu 12.0 --cpu zen4 --driver 550 | 1 | GPU a GPU of capability 12.0 stays unused
--gpu 12.0 --cpu zen4 --driver 550 | 1 | driver 580.65.06 or newer runs `pip
--gpu K40 --cpu avx2 --driver 470  | 1 | a GPU of 7.5 (Turing) or newer runs the newest
--cpu apple                     | 0 | uses the GPU through Metal (MPS)
--cpu apple --flox              | 1 | Flox has no build
"""


def test_what_is_said_of_a_machine_and_the_exit_code(whole: Project) -> None:
    for row in SAID.strip().splitlines():
        words, code, text = (cell.strip() for cell in row.split("|"))
        argv = [it if it not in SAVED else f"{MACHINES}/{it}.json" for it in shlex.split(words)]
        done = whole.invoke("recommend", *argv)
        assert (done.returncode, text in " ".join(done.stdout.split())) == (int(code), True), row


def test_json_has_the_machine_and_the_choice(still: Project, tmp_path: Path) -> None:
    document = json.loads(recommended(still, "gh200", "--json"))
    written = json.loads((MACHINES / "gh200.json").read_text())
    assert document["machine"] == {"other_gpus": [], "is_wsl": False, **written}
    choice = document["choice"]
    assert choice["now"][0]["command"] == "pip install torch==2.15.0"
    assert choice["now"][0]["build"]["platform"] == "aarch64-linux"
    assert choice["build"]["variant"] == "sm90-armv9"
    assert any("docker run" in it for several in choice["rejected"].values() for it in several)
    (tmp_path / "here.json").write_text(still.invoke("recommend", "--describe").stdout)
    words = ["--machine", str(tmp_path / "here.json"), "--json"]
    named, own = (json.loads(still.invoke("recommend", *it).stdout) for it in (words, words[2:]))
    assert named["machine"] == own["machine"] == json.loads((tmp_path / "here.json").read_text())
    assert named["choice"]["build"] == own["choice"]["build"]


MANIFESTS = """
--gpu 12.0 --cpu zen4 --driver 580  | torch flox/pytorch-python313-cuda12_9-sm120-avx2
--gpu 6.1 --cpu avx --driver 535    | torch flox/pytorch-python313-cuda12_9-sm61-avx
--gpu 9.0 --cpu armv9 --driver 580  | python3 python3 torch flox-cuda/python3Packages.torch
"""


@pytest.mark.parametrize("row", MANIFESTS.strip().splitlines())
def test_the_manifest_of_flox_installs_the_first_build_of_flox(still: Project, row: str) -> None:
    words, packages = (cell.strip() for cell in row.split("|"))
    done = still.invoke("recommend", *shlex.split(words), "--flox")
    installed = tomllib.loads(done.stdout)["install"]
    assert done.returncode == 0
    assert " ".join(f"{it} {values['pkg-path']}" for it, values in installed.items()) == packages
    for values in installed.values():
        assert values.get("version", "2.9.1") == "2.9.1"
        assert (values["priority"], len(values["systems"])) == (4, 1)


def test_a_variant_is_installed_from_where_it_was_published(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the recipe is the one that was published."""
    monkeypatch.setenv("PATH", str(tmp_path))
    recipe, sample = project.recipe("cuda13_0-sm121-armv9"), SampleFleet(project.root)
    variants = matrix_reader.load(project.root).variants
    variant = next(it for it in variants if it.id == "sm121-armv9")
    assert "Build  invoke build sm121-armv9" in recommended(project, "dgx-spark")
    sample.add(variant, "published", organization="acme")
    text = recommended(project, "dgx-spark")
    assert f"  or   flox install acme/{recipe.stem}\n" in text
    assert "no reason: Flox has 2.10.0 for this GPU alone" in text
    recipe.write_text(recipe.read_text() + "# changed\n")
    assert "acme" not in recommended(project, "dgx-spark")


def test_doctor_prints_its_verdict_and_the_repair() -> None:
    words = ["doctor", "--python", sys.executable, "--machine", str(MACHINES / "rtx5090-zen4.json")]
    done = run_in_process(PROJECT, words, {})
    assert done.stdout.startswith("RTX 5090 (12.0), driver 580.95.05")
    if "no torch is installed" in done.stdout:
        assert "Verdict: wrong" in done.stdout
        assert "install torch==2.15.0" in done.stdout
        assert done.returncode == 1
    document = json.loads(run_in_process(PROJECT, [*words, "--json"], {}).stdout)
    assert document["exit_code"] == done.returncode
    assert document["path"] == sys.executable


# --- doctor ---

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
