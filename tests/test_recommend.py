"""`invoke recommend`: its screen, its JSON, the machine that it describes, the manifest of Flox."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import PROJECT, Project, copied_project, run_in_process
from sample_fleet import LAST, SampleFleet
from test_choice import DRAWN_UP, machine_of

from build_pytorch.base.console import Screen
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import matrix_reader
from build_pytorch.results.ledger import Event
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
    sample.append(Event(event="published", **sample.common(variant, LAST), organization="acme"))
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
