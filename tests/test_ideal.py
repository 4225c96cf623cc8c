"""The build that a machine should have, whatever the matrix has: what an expert would answer."""

from __future__ import annotations

import json
import platform
from typing import Any, NamedTuple

import msgspec
import pytest
from conftest import PROJECT, WHOLE, Project, copied_project, error_line, unfolded
from drawn_machines import machines
from hypothesis import given, settings
from test_recommend import ALL_MACHINES, MACHINES, machine

from build_pytorch.hardware.choice import Choice, ChosenBuild, preference
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.hardware.verdicts import (
    Obstacle,
    cpu_obstacles,
    driver_limit,
    driver_need,
    gpu_verdict,
)
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import Matrix

MATRIX = matrix_reader.parse(WHOLE)
KNOWN = known_hardware.load()


def wanted(here: Machine, matrix: Matrix = MATRIX) -> ChosenBuild | None:
    return choose(matrix, here).ideal


def best(here: Machine, matrix: Matrix = MATRIX) -> str | None:
    found = choose(matrix, here).best
    return found.variant.id if found else None


def text_of(choice: Choice) -> str:
    return "\n".join((choice.ideal.reason if choice.ideal else "", *choice.remarks))


class Answer(NamedTuple):
    best: str | None
    """In the matrix."""
    ideal: str | None
    says: str = ""
    """Part of the reason, or of a remark."""


MACHINES_AND_ANSWERS = {
    "a100-and-rtx3090": Answer("cuda13_0/sm80-avx2", "cuda13_0/sm80-avx2", "on all GPUs"),
    "a100-mig": Answer("cuda13_0/sm80-avx2", "cuda13_0/sm80-avx2", "MIG instance"),
    "a100-vgpu": Answer("cuda12_8/sm80-avx2", "cuda12_8/sm80-avx2", "is a vGPU"),
    "a100-zen3": Answer("cuda13_0/sm80-avx2", "cuda13_0/sm80-avx2"),
    "a100-zen3-old-driver": Answer(
        "cuda12_8/sm80-avx2", "cuda12_8/sm80-avx2", "not cuda13_0: CUDA 13.0 needs driver"
    ),
    "a64fx": Answer(None, None),
    "altra-a100": Answer("cuda12_8/sm80-armv8_2", "cuda13_0/sm80-armv8_2"),
    "apple-vm": Answer("cuda12_8/cpu-armv8_2", "cuda13_0/cpu-armv8_2", "has no Metal"),
    "container-without-gpus": Answer("cuda13_0/cpu-avx512bf16", "cuda13_0/cpu-avx512bf16"),
    "dgx-spark": Answer("cuda13_0/sm121-armv9", "cuda13_0/sm121-armv9"),
    "gb200": Answer("cuda13_0/sm100-armv9", "cuda13_0/sm100-armv9"),
    "gb300": Answer("cuda13_0/sm103-armv9", "cuda13_0/sm103-armv9"),
    "gh200": Answer("cuda13_0/sm90-armv9", "cuda13_0/sm90-armv9"),
    "grace-without-gpu": Answer("cuda12_8/cpu-armv9", "cuda13_0/cpu-armv9", "no GPU"),
    "graviton2": Answer("cuda12_8/cpu-armv8_2", "cuda13_0/cpu-armv8_2"),
    "graviton3": Answer("cuda12_8/cpu-armv8_2", "cuda13_0/cpu-armv8_2"),
    "graviton4": Answer("cuda12_8/cpu-armv9", "cuda13_0/cpu-armv9"),
    "gtx1080-and-rtx3090": Answer(
        "cuda13_0/sm86-avx2", "cuda13_0/sm86-avx2", "no build has code for NVIDIA GeForce GTX 1080"
    ),
    "gtx1080-ivy-bridge": Answer("cuda12_8/sm61-avx", "cuda12_8/sm61-avx", "580 is the last"),
    "h100-sapphire-rapids": Answer(
        "cuda13_0/sm90-avx512bf16", "cuda13_0/sm90-avx512bf16", "nobody has measured a difference"
    ),
    "h200-recorded": Answer("cuda13_0/sm90-avx512bf16", "cuda13_0/sm90-avx512bf16"),
    "ice-lake": Answer("cuda13_0/cpu-avx512vnni", "cuda13_0/cpu-avx512vnni"),
    "ivy-bridge": Answer(None, "cuda13_0/cpu-avx"),
    "jetson-orin": Answer(
        "cuda12_8/cpu-armv8_2",
        "cuda12_8/sm87-armv8_2",
        "not cuda13_0: CUDA 13.0 does not compile for 8.7",
    ),
    "jetson-thor": Answer("cuda13_0/sm110-armv9", "cuda13_0/sm110-armv9"),
    "laptop-without-gpu": Answer("cuda13_0/cpu-avx2", "cuda13_0/cpu-avx2"),
    "macbook": Answer(None, "cuda13_0/darwin-mps", "Metal is the GPU of macOS"),
    "p40-broadwell": Answer(
        "cuda12_8/sm61-avx2",
        "cuda12_8/sm61-avx2",
        "not cuda13_0: CUDA 13.0 does not compile for 6.1",
    ),
    "rtx3090-and-rtx4090": Answer(
        "cuda13_0/sm86-avx512bf16", "cuda13_0/sm86-avx512bf16", "runs on all GPUs: 8.9 and 8.6"
    ),
    "rtx3090-and-rtx5090": Answer(
        "cuda13_0/sm120-avx512bf16", "cuda13_0/sm120-avx512bf16", "GPU 1 stays unused"
    ),
    "rtx4090-driver-550": Answer(
        "cuda12_8/sm89-avx512bf16", "cuda12_8/sm89-avx512bf16", "torch.compile"
    ),
    "rtx5090-zen4": Answer("cuda13_0/sm120-avx512bf16", "cuda13_0/sm120-avx512bf16"),
    "rx7900xtx-zen4": Answer(
        "cuda13_0/cpu-avx512bf16", "cuda13_0/cpu-avx512bf16", "1002:744c: ROCm is not covered"
    ),
    "t4-cascade-lake": Answer("cuda12_8/sm75-avx512vnni", "cuda13_0/sm75-avx512vnni"),
    "t4g-graviton2": Answer("cuda12_8/sm75-armv8_2", "cuda12_8/sm75-armv8_2"),
    "v100-broadwell": Answer("cuda13_0/cpu-avx2", "cuda12_8/sm70-avx2"),
    "wsl2-rtx4070": Answer("cuda12_8/sm89-avx2", "cuda12_8/sm89-avx2", "install no Linux driver"),
}


def test_every_saved_machine_has_an_answer() -> None:
    assert set(MACHINES_AND_ANSWERS) == ALL_MACHINES


@pytest.mark.parametrize("name", MACHINES_AND_ANSWERS)
def test_a_machine_gets_the_answer_of_an_expert(name: str) -> None:
    choice, expected = choose(MATRIX, machine(name)), MACHINES_AND_ANSWERS[name]
    assert (choice.best and choice.best.variant.id) == expected.best
    assert (choice.ideal and choice.ideal.variant.id) == expected.ideal
    assert expected.says in text_of(choice)
    if choice.ideal:  # what the matrix lacks is a few lines away
        is_there = expected.ideal in {variant.id for variant in MATRIX.variants}
        assert choice.ideal.is_in_matrix is is_there
        assert choice.ideal.command == ""
        added = matrix_reader.parse(f"{MATRIX.text}\n{choice.ideal.lines}")
        assert expected.ideal in {variant.id for variant in added.variants}


def test_of_equal_releases_one_that_has_the_variant_is_ideal() -> None:
    """The example has four releases of PyTorch 2.10; two of them have GB10, one an Apple build."""
    example = matrix_reader.parse((PROJECT / "examples/all-lines/matrix.toml").read_text())
    for name, expected in (("dgx-spark", "l15/sm121-armv9"), ("macbook", "l15/darwin-mps")):
        found = wanted(machine(name), example)
        assert found is not None
        assert (found.variant.id, found.is_in_matrix) == (expected, True)


def test_gpus_that_no_build_serves_are_named_and_the_others_are_used() -> None:
    """A K80 beside a 3090: no CUDA 12 compiles for 3.7."""
    here = machine("a100-and-rtx3090")
    old = MachineGpu(index=1, name="Tesla K80", capability="3.7")
    found = wanted(msgspec.structs.replace(here, gpus=(here.gpus[0], old)))
    assert found is not None
    assert found.variant.id == "cuda13_0/sm80-avx2"
    assert [gpu.index for gpu in found.unused] == [1]
    assert (
        "no CUDA of these releases compiles for Tesla K80 (3.7): CUDA 6.5 to 11.8 does"
        in found.reason
    )


def test_a_driver_that_is_too_old_for_any_cuda_means_no_gpu_and_what_an_update_gives() -> None:
    here = msgspec.structs.replace(machine("a100-zen3"), driver="470.256.02", cuda="11.4")
    choice = choose(MATRIX, here)
    assert choice.ideal is not None
    assert choice.ideal.variant.id == "cuda13_0/cpu-avx2"
    assert choice.update is not None
    assert choice.update.build.variant.id == "cuda13_0/sm80-avx2"
    assert choice.update.is_first


def test_without_a_release_for_the_driver_a_release_is_proposed(matrix: Matrix) -> None:
    """`matrix` has CUDA 13.0 only."""
    found = wanted(machine("rtx4090-driver-550"), matrix)
    assert found is not None
    assert found.variant.id == "cuda12_8/sm89-avx512bf16"
    assert found.command == "invoke bump --release cuda13_0 --cuda 12.8 --as cuda12_8"


@pytest.mark.parametrize(
    ("driver", "cuda", "expected"),
    [
        ("560.94", "12.6", "cuda12_8/sm89-avx2"),
        ("581.29", "13.0", "cuda13_0/sm89-avx2"),
        ("580.88", "12.9", "cuda12_8/sm89-avx2"),  # whatever the number
        ("472.12", "11.4", "cuda13_0/cpu-avx2"),
    ],
)
def test_in_wsl_the_cuda_of_the_windows_driver_decides(
    driver: str, cuda: str, expected: str
) -> None:
    here = msgspec.structs.replace(machine("wsl2-rtx4070"), driver=driver, cuda=cuda)
    assert best(here) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("GRID T4-16Q", "is a vGPU: its driver belongs to"),
        ("NVIDIA A100-1-5C", "is a vGPU: its driver belongs to"),
        ("NVIDIA A16-4B", "have no CUDA"),
        ("NVIDIA A100 80GB PCIe MIG 1g.10gb", "is a MIG instance"),
        ("NVIDIA A100-SXM4-40GB", ""),
        ("Tesla V100-SXM2-32GB", ""),
    ],
)
def test_a_shared_gpu_is_recognised_by_its_name(name: str, says: str) -> None:
    gpu = MachineGpu(index=0, name=name, capability="8.0")
    cpu = Processor(flags="")
    found = choose(MATRIX, Machine(platform="x86_64-linux", cpu=cpu, gpus=(gpu,))).remarks
    assert says in "".join(found)
    assert bool(found) is bool(says)


# --- any machine ---


@settings(max_examples=100, deadline=None)
@given(here=machines())
def test_the_ideal_build_runs_and_is_no_worse_than_the_best(here: Machine) -> None:
    choice = choose(MATRIX, here)
    found, first = choice.ideal, choice.best
    if found is None:
        assert first is None
        return
    for gpu in found.gpus or (None,):
        assert cpu_obstacles(found.variant, here) == gpu_verdict(found.variant, gpu).obstacles == ()
        assert gpu is None or not isinstance(
            driver_limit(driver_need(found.variant, gpu), here, gpu), Obstacle
        )
    assert {gpu.index for gpu in (*found.gpus, *found.unused)} == set(range(len(here.gpus)))
    assert found.reason
    if first and len({gpu.capability for gpu in here.gpus}) <= 1:
        assert preference(found.variant) >= preference(first.variant)
    if first and first.gpus:
        assert len(found.gpus) >= len(first.gpus)


# --- known facts ---


def test_known_facts_and_rules_are_those_of_the_matrices() -> None:
    """known_hardware.toml, matrix.toml and the example repeat facts; they must not differ."""
    rules = {rule["id"]: rule for rule in KNOWN.raw["rule"]}
    example = (PROJECT / "examples/all-lines/matrix.toml").read_text()
    for tables in map(matrix_reader.tables, (WHOLE, example)):
        for kind in ("gpu", "cpu", "pin"):
            for key, table in tables[kind].items():
                known = KNOWN.table(kind, key)
                assert {name: known[name] for name in table} == table, f"{kind}.{key}"
                assert known.keys() - table.keys() <= {"source", "checked"}
        for rule in tables["rule"]:
            assert rules.get(rule["id"], rule) == rule


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("rtx 4090 laptop gpu", "8.9"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA RTX A6000", "8.6"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("NVIDIA GeForce RTX 2050", "8.6"),
        ("NVIDIA GeForce RTX 2080 Ti", "7.5"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA L40S", "8.9"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("Tesla P40", "6.1"),
        ("NVIDIA TITAN V", "7.0"),
        ("NVIDIA TITAN RTX", "7.5"),
        ("GRID T4-16Q", "7.5"),
        ("NVIDIA GB10", "12.1"),
        ("Orin (nvgpu)", "8.7"),
    ],
)
def test_a_product_is_known_by_its_name(name: str, capability: str) -> None:
    found = KNOWN.gpu_named(name)
    assert found is not None
    assert found[1].capability == capability


@pytest.mark.parametrize("name", ["RX 7900 XTX", "AMD Radeon RX 7900 XTX", "MI300X", "Radeon VII"])
def test_amd_is_known_by_its_names(name: str) -> None:
    assert KNOWN.other_vendor(name) == "AMD"


@pytest.mark.parametrize("name", ["", "RTX 9999", "4090", "A1000000", "nvidia", "x" * 10_000])
def test_other_names_are_unknown(name: str) -> None:
    assert KNOWN.gpu_named(name) is None
    assert KNOWN.other_vendor(name) == ""


# --- the command ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with all releases, which these tests only read."""
    return copied_project(tmp_path_factory.mktemp("whole") / "project", is_whole=True)


def asked(project: Project, *argv: str) -> dict[str, Any]:
    done = project.invoke("recommend", *argv, "--json")
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == document["exit_code"]
    return document


def test_json_has_the_best_and_the_ideal_build(whole: Project) -> None:
    document = asked(whole, "--machine", str(MACHINES / "altra-a100.json"))
    assert document["best"]["variant"] == "cuda12_8/sm80-armv8_2"
    assert document["best"]["in_matrix"] is True
    found = document["ideal"]
    keys = ("release", "kind", "gpu", "arch", "isa", "host", "in_matrix", "command")
    assert [found[key] for key in keys] == [
        "cuda13_0",
        "gpu",
        "sm80",
        "8.0",
        "armv8_2",
        "aarch64-linux",
        False,
        None,
    ]
    assert "code for exactly 8.0" in found["reason"]


def test_a_machine_may_be_described_by_options(whole: Project) -> None:
    given = ("--gpu", "RTX 4090", "--cpu", "avx2", "--driver", "550")
    document = asked(whole, *given)
    assert document["best"]["variant"] == "cuda12_8/sm89-avx2"
    assert document["update"]["build"]["variant"] == "cuda13_0/sm89-avx2"
    several = asked(whole, "--gpu", "8.6", "--gpu", "RTX 5090", "--cpu", "avx512")
    assert several["ideal"]["arch"] == "12.0"
    arm = asked(whole, "--gpu", "GB10", "--cpu", "armv9")
    assert arm["best"]["variant"] == "cuda13_0/sm121-armv9"
    card = asked(whole, "--gpu", "RTX 4090", "--cpu", "armv8_2")
    assert card["ideal"]["gpu"] == "sm89"
    amd = asked(whole, "--gpu", "Radeon RX 7900 XTX", "--cpu", "avx2")
    assert amd["best"]["variant"] == "cuda13_0/cpu-avx2"
    (remark,) = amd["remarks"]
    assert remark.startswith("Radeon RX 7900 XTX: ROCm is not covered: the recipes are for CUDA; ")


@pytest.mark.parametrize(
    ("gpu", "others", "whose"),
    [
        ("GB10", ("--machine", str(MACHINES / "rtx5090-zen4.json")), "the machine"),
        ("NVIDIA GH200 480GB", ("--cpu", "avx2"), "--cpu avx2"),
        ("12.1", ("--cpu", "avx512"), "--cpu avx512"),
        ("Thor", ("--cpu", "avx512"), "--cpu avx512"),
    ],
)
def test_a_gpu_of_arm_machines_does_not_get_another_cpu(
    whole: Project, gpu: str, others: tuple[str, ...], whose: str
) -> None:
    done = whole.invoke("recommend", "--gpu", gpu, *others)
    assert done.returncode == 2
    why = f"{gpu} exists on aarch64-linux only, and {whose} is x86_64-linux"
    line = f"--gpu: {why}; give the CPU of its machine: --cpu armv9"
    assert error_line(done) == line


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU of an ARM machine is taken")
@pytest.mark.parametrize("gpu", ["GH200", "GB10", "12.1"])
def test_a_gpu_of_arm_machines_brings_its_cpu(whole: Project, gpu: str) -> None:
    found = asked(whole, "--gpu", gpu)
    cpu = "neoverse_v2" if gpu == "GH200" else "gb10"
    assert found == asked(whole, "--gpu", gpu, "--cpu", cpu)
    assert found["machine"]["platform"] == "aarch64-linux"
    card = asked(whole, "--gpu", "H100")
    assert card["machine"]["platform"] == "x86_64-linux"


def test_a_driver_must_know_the_gpu_and_not_only_the_code_for_it() -> None:
    """Code for SM120 runs on SM121, which a driver of SM120's time does not know."""
    variant = next(it for it in MATRIX.variants if it.id == "cuda12_8/sm120-avx2")
    own, newer = (MachineGpu(index=0, name="", capability=it) for it in ("12.0", "12.1"))
    assert driver_need(variant, own).driver == "570.26"
    assert driver_need(variant, newer) == ("12.8", "580.65.06", "SM121")


def test_an_older_cuda_of_the_same_major_version_is_enough_but_for_a_newer_gpu(
    whole: Project,
) -> None:
    given = ("--cpu", "avx2", "--driver", "12.4")
    assert asked(whole, "--gpu", "A100", *given)["best"]["release"] == "cuda12_8"
    done = whole.invoke("recommend", "--gpu", "RTX 5090", *given, "--verbose")
    why = "SM120 needs driver 570.26 or newer; found a driver whose newest CUDA is 12.4"
    assert why in unfolded(done.stdout)


@pytest.mark.parametrize(
    ("gpu", "release", "says"),
    [
        ("10.3", "cuda12_8", "CUDA 12.8 does not know 10.3, which needs 12.9 or newer: the code"),
        ("10.7", "cuda13_0", "CUDA 13.0 does not know 10.7, which needs 13.4 or newer: the code"),
        ("10.9", "cuda13_0", "CUDA 13.0 does not know 10.9, nor do the tables here: the code runs"),
        ("10.3", "cuda13_0", ""),
        ("9.0", "cuda12_8", ""),
    ],
)
def test_a_cuda_that_does_not_know_the_gpu_is_never_taken_in_silence(
    gpu: str, release: str, says: str
) -> None:
    here = msgspec.structs.replace(
        machine("gb300"), gpus=(MachineGpu(index=0, name="GPU", capability=gpu),), driver="600.1"
    )
    choice = choose(MATRIX, here, release=release)
    for build in (choice.best, choice.ideal):
        assert build is not None
        assert build.variant.gpu is not None
        assert "".join(build.doubts).startswith(says)
        assert bool(build.doubts) is bool(says)


def test_what_nobody_confirmed_about_a_gpu_is_said_with_its_build() -> None:
    found = wanted(machine("jetson-orin"))
    assert found is not None
    (doubt,) = found.doubts
    assert doubt.startswith("not confirmed: that such a build runs on the JetPack")


def test_a_gpu_that_nothing_runs_on_is_named_before_the_cpu_build(whole: Project) -> None:
    given = ("--cpu", "armv9", "--driver", "600.1")
    first = [
        unfolded(whole.invoke("recommend", "--gpu", gpu, *given).stdout.split("\n\n")[1])
        for gpu in ("11.3", "K80")
    ]
    assert first[0].startswith("Nothing known runs on a GPU of capability 11.3: 11.3 is not known")
    assert first[1].startswith("No CUDA of these releases compiles for K80 (3.7): CUDA 6.5 to 11.8")


@pytest.mark.parametrize(
    ("driver", "release"),
    [
        ("525", "cuda12_8"),
        ("580", "cuda13_0"),
        ("12.8", "cuda12_8"),  # the newest CUDA that the driver supports
        ("13.0", "cuda13_0"),
    ],
)
def test_a_driver_may_be_a_branch_or_a_version_of_cuda(
    whole: Project, driver: str, release: str
) -> None:
    """Given by itself, and in place of that of a description."""
    given = ("--gpu", "A100", "--cpu", "avx2", "--driver", driver)
    assert asked(whole, *given)["best"]["release"] == release
    path = str(MACHINES / "a100-zen3.json")
    assert asked(whole, "--machine", path, "--driver", driver)["best"]["release"] == release
