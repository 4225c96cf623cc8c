"""The build for a machine: real machines with the answers of an expert, and the rules behind."""

from __future__ import annotations

import itertools
import json
import platform
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import archspec.cpu
import pytest
from conftest import ONE, PROJECT, WHOLE, Project, copied_project, error_line, unfolded
from drawn_machines import machines
from hypothesis import given, settings
from msgspec.structs import replace
from sample_fleet import LAST, SampleFleet

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware import explain, saved_machines
from build_pytorch.hardware.choice import Choice, preference
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
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.results import ledger
from build_pytorch.tasks import machine_lines

MACHINES = PROJECT / "tests/machines"
NOT_IN_ARCHSPEC = {"h200-recorded", "macbook", "dgx-spark", "jetson-orin"}
SECOND = (PROJECT / "tests/second-release.toml").read_text()
EXAMPLE = (PROJECT / "examples/all-lines/matrix.toml").read_text()
MATRIX = matrix_reader.parse(WHOLE)
KNOWN = known_hardware.load()


def machine(name: str, **changes: Any) -> Machine:
    return replace(saved_machines.load(MACHINES / f"{name}.json"), **changes)


def one_gpu(name: str, capability: str | None) -> dict[str, Any]:
    return {"gpus": (MachineGpu(index=0, name=name, capability=capability),)}


def best(choice: Choice) -> str | None:
    return choice.best.variant.id if choice.best else None


def said(choice: Choice) -> str:
    """Every reason, doubt and remark of a choice."""
    builds = [build for build in (choice.best, choice.ideal) if build]
    lines = [text for build in builds for text in (build.reason, *build.doubts)]
    lines += [reason.text for answer in choice.answers for reason in answer.reasons]
    return "\n".join([*lines, *choice.remarks, choice.update.says if choice.update else ""])


# --- real machines ---


class Answer(NamedTuple):
    best: str | None
    """In the matrix."""
    ideal: str | None
    says: str = ""


REAL = {
    "a100-and-rtx3090": Answer("cuda13_0/sm80-avx2", "cuda13_0/sm80-avx2", "on all GPUs"),
    "a100-mig": Answer("cuda13_0/sm80-avx2", "cuda13_0/sm80-avx2", "MIG instance"),
    "a100-vgpu": Answer("cuda12_8/sm80-avx2", "cuda12_8/sm80-avx2", "is a vGPU"),
    "a100-zen3": Answer("cuda13_0/sm80-avx2", "cuda13_0/sm80-avx2", "for a higher minor version"),
    "a100-zen3-old-driver": Answer(
        "cuda12_8/sm80-avx2", "cuda12_8/sm80-avx2", "not cuda13_0: CUDA 13.0 needs driver"
    ),
    "a64fx": Answer(None, None, "the CPU lacks asimddp"),
    "altra-a100": Answer("cuda12_8/sm80-armv8_2", "cuda13_0/sm80-armv8_2"),
    "apple-vm": Answer("cuda12_8/cpu-armv8_2", "cuda13_0/cpu-armv8_2", "has no Metal"),
    "container-without-gpus": Answer("cuda13_0/cpu-avx512bf16", "cuda13_0/cpu-avx512bf16"),
    "dgx-spark": Answer("cuda13_0/sm121-armv9", "cuda13_0/sm121-armv9"),
    "gb200": Answer("cuda13_0/sm100-armv9", "cuda13_0/sm100-armv9"),
    "gb300": Answer("cuda13_0/sm103-armv9", "cuda13_0/sm103-armv9"),
    "gh200": Answer("cuda13_0/sm90-armv9", "cuda13_0/sm90-armv9", "for another major version"),
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
    "ice-lake": Answer("cuda13_0/cpu-avx512vnni", "cuda13_0/cpu-avx512vnni", "lacks avx512_bf16"),
    "ivy-bridge": Answer(None, "cuda13_0/cpu-avx", "the CPU lacks avx2, fma"),
    "jetson-orin": Answer(
        "cuda12_8/cpu-armv8_2", "cuda12_8/sm87-armv8_2",
        "not cuda13_0: CUDA 13.0 does not compile for 8.7",
    ),
    "jetson-thor": Answer(
        "cuda13_0/sm110-armv9", "cuda13_0/sm110-armv9", "driver 580.00 is older than 580.65.06"
    ),
    "laptop-without-gpu": Answer("cuda13_0/cpu-avx2", "cuda13_0/cpu-avx2"),
    "macbook": Answer(None, "cuda13_0/darwin-mps", "Metal is the GPU of macOS"),
    "p40-broadwell": Answer(
        "cuda12_8/sm61-avx2", "cuda12_8/sm61-avx2",
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
}  # fmt: skip


def test_every_saved_machine_has_an_answer() -> None:
    assert REAL.keys() == {path.stem for path in MACHINES.glob("*.json")}


@pytest.mark.parametrize("name", REAL)
def test_a_machine_gets_the_answer_of_an_expert(name: str) -> None:
    choice, expected = choose(MATRIX, machine(name)), REAL[name]
    assert best(choice) == expected.best
    assert (choice.ideal and choice.ideal.variant.id) == expected.ideal
    assert expected.says in said(choice)
    if choice.ideal:  # what the matrix lacks is a few lines away
        is_there = expected.ideal in {variant.id for variant in MATRIX.variants}
        assert (choice.ideal.is_in_matrix, choice.ideal.command) == (is_there, "")
        added = matrix_reader.parse(f"{MATRIX.text}\n{choice.ideal.lines}")
        assert expected.ideal in {variant.id for variant in added.variants}


@pytest.mark.parametrize("name", sorted(REAL.keys() - NOT_IN_ARCHSPEC))
def test_the_saved_flags_are_those_that_archspec_lists_for_the_cpu(name: str) -> None:
    """An independent source: the table cannot be made to fit by inventing flags."""
    cpu = machine(name).cpu
    known = archspec.cpu.TARGETS[cpu.microarchitecture or ""].features
    in_cpuinfo = {"pni" if feature == "sse3" else feature for feature in known}
    assert in_cpuinfo
    assert in_cpuinfo <= set(cpu.flags.split())


# --- drivers ---

DRIVERS = [
    # GPU, its capability, driver, its newest CUDA; release (none: CPU) and words
    ("H100", "9.0", "580.65.06", None, "cuda13_0", ""),
    ("H100", "9.0", "580.105.08", None, "cuda13_0", ""),  # 105 comes after 65
    ("H100", "9.0", "1000.1", None, "cuda13_0", ""),
    ("H100", "9.0", "580.65.05", None, "cuda12_8", "needs driver 580.65.06 or newer; found driver"),
    ("H100", "9.0", "580.9.1", None, "cuda12_8", ""),
    ("H100", "9.0", "580.65.05", "12.9", "cuda12_8", ""),
    ("H100", "9.0", "580.00", "13.0", "cuda13_0", "580.00 is older than 580.65.06, but supports"),
    ("H100", "9.0", "580", None, "cuda13_0", "driver 580: CUDA 13.0 needs driver 580.65.06"),
    ("H100", "9.0", None, "13.0", "cuda13_0", ""),
    ("H100", "9.0", None, "12.9", "cuda12_8", "found a driver whose newest CUDA is 12.9"),
    ("H100", "9.0", None, "12.4", "cuda12_8", ""),  # one driver of CUDA 12 runs all of CUDA 12
    ("H100", "9.0", None, None, "cuda13_0", "the driver version is unknown"),
    ("H100", "9.0", "525.60.13", None, "cuda12_8", ""),
    ("H100", "9.0", "525.60.12", None, "", "CUDA 12.8 needs driver 525.60.13 or newer"),
    ("B200", "10.0", "570.26", "13.0", "cuda13_0", "570.26 is older than 580.65.06, but supports"),
    ("B200", "10.0", "550.54", None, "", "to 580.65.06 or newer (570.26 for CUDA 12.8)"),
    ("B300", "10.3", "550.54", None, "", "SM103 needs driver 580.65.06 or newer; found driver"),
    ("NVIDIA RTX PRO 6000 Blackwell", "12.0", "570.26", "13.0", "cuda13_0", ""),
    ("NVIDIA GeForce RTX 5090", "12.0", "570.26", "13.0", "cuda12_8", "does not run on this GPU"),
    ("NVIDIA GeForce RTX 5090", "12.0", "530.30.02", None, "", "SM120 needs driver 570.26"),
    ("NVIDIA GeForce RTX 5090", "12.0", None, "12.4", "", "SM120 needs driver 570.26"),
]


@pytest.mark.parametrize(("name", "capability", "driver", "cuda", "release", "says"), DRIVERS)
def test_the_driver_is_judged_by_its_version_or_by_the_cuda_it_runs(
    name: str, capability: str, driver: str | None, cuda: str | None, release: str, says: str
) -> None:
    gpu = one_gpu(name, capability)
    choice = choose(MATRIX, machine("h100-sapphire-rapids", driver=driver, cuda=cuda, **gpu))
    assert choice.best
    found = choice.best.variant
    assert (found.release_name if found.gpu else "") == release
    assert says in said(choice)
    is_doubtful = release == "cuda13_0" and bool(says or "PRO" in name)
    assert bool(choice.best.doubts) is is_doubtful


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
    assert best(choose(MATRIX, machine("wsl2-rtx4070", driver=driver, cuda=cuda))) == expected


def test_a_driver_must_know_the_gpu_and_not_only_the_code_for_it() -> None:
    """Code for SM120 runs on SM121, which a driver of SM120's time does not know."""
    variant = next(it for it in MATRIX.variants if it.id == "cuda12_8/sm120-avx2")
    own, newer = (MachineGpu(index=0, name="", capability=it) for it in ("12.0", "12.1"))
    assert driver_need(variant, own).driver == "570.26"
    assert driver_need(variant, newer) == ("12.8", "580.65.06", "SM121")


def test_of_equal_variants_the_one_that_runs_is_best_and_none_waits(matrix: Matrix) -> None:
    """A release for a newer CUDA is no better where both have the same PyTorch."""
    newer = matrix.releases["cuda13_0"]
    assert newer.cuda
    older = replace(newer, cuda=replace(newer.cuda, version="12.8", driver="570.26"))
    copies = [replace(it, release_name="older", release=older) for it in matrix.variants]
    two = replace(matrix, variants=(*matrix.variants, *copies))
    (found,) = choose(two, machine("h100-sapphire-rapids", driver="570.26", cuda="12.8")).answers
    assert found.best
    assert (found.best.variant.release_name, found.waits_for_driver) == ("older", None)


@pytest.mark.parametrize(
    ("name", "changes", "first", "says"),
    [
        ("a100-zen3", {"driver": "470.256.02", "cuda": "11.4"}, True,
         "to 580.65.06 or newer (525.60.13 for CUDA 12.8)"),
        ("a100-zen3-old-driver", {}, False, "update the NVIDIA driver to 580.65.06 or newer"),
        ("a100-zen3", {"driver": "550.54", "cuda": None, **one_gpu("B300", "10.3")}, True,
         "update the NVIDIA driver to 580.65.06 or newer"),
        ("jetson-thor", {"driver": "540.4.0", "cuda": "12.6"}, True,
         "update JetPack to one for CUDA 13.0"),
    ],
)  # fmt: skip
def test_an_update_of_the_driver_is_named_with_what_it_gives(
    name: str, changes: dict[str, Any], says: str, *, first: bool
) -> None:
    update = choose(MATRIX, machine(name, **changes)).update
    assert update is not None
    assert update.says.endswith(says)
    assert update.is_first is first
    assert (update.build.variant.release_name, bool(update.build.gpus)) == ("cuda13_0", True)


# --- GPUs, CPUs and releases ---


@pytest.mark.parametrize(
    ("name", "changes", "expected", "says"),
    [
        ("rtx5090-zen4", one_gpu("NVIDIA GB10", "12.1"), "cuda13_0/sm120-avx512bf16",
         "no x86_64-linux machine has SM121: GB10 (DGX Spark) on aarch64-linux only"),
        ("rtx5090-zen4", one_gpu("NVIDIA GPU", None), "cuda13_0/cpu-avx512bf16",
         "the capability of NVIDIA GPU is unknown"),
        ("rtx5090-zen4", {"cpu": Processor(flags="")}, None, "the CPU's flags are unknown"),
        ("jetson-orin", {}, "cuda12_8/cpu-armv8_2", "run only code built for them, and this GPU"),
        ("gb300", {"driver": "600.1", **one_gpu("GPU", "10.7")}, "cuda13_0/sm103-armv9",
         "CUDA 13.0 does not know 10.7, which needs 13.4 or newer: the code runs"),
        ("gb300", {"driver": "600.1", **one_gpu("GPU", "10.9")}, "cuda13_0/sm103-armv9",
         "CUDA 13.0 does not know 10.9, nor do the tables here"),
        ("jetson-orin", {}, "cuda12_8/cpu-armv8_2", "not confirmed: that such a build runs on the"),
        ("a100-zen3", one_gpu("GRID T4-16Q", "8.0"), "cuda13_0/sm80-avx2", "is a vGPU: its driver"),
        ("a100-zen3", one_gpu("A100-1-5C", "8.0"), "cuda13_0/sm80-avx2", "is a vGPU: its driver"),
        ("a100-zen3", one_gpu("NVIDIA A16-4B", "8.0"), "cuda13_0/sm80-avx2", "have no CUDA"),
    ],
)  # fmt: skip
def test_an_odd_machine_gets_an_answer_with_the_reason(
    name: str, changes: dict[str, Any], expected: str | None, says: str
) -> None:
    choice = choose(MATRIX, machine(name, **changes))
    assert best(choice) == expected
    assert says in said(choice)


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-32GB"])
def test_a_whole_gpu_is_not_taken_for_a_shared_one(name: str) -> None:
    assert choose(MATRIX, machine("a100-zen3", **one_gpu(name, "8.0"))).remarks == ()


def test_gpus_that_no_build_serves_are_named_and_the_others_are_used() -> None:
    """A K80 beside a 3090: no CUDA 12 compiles for 3.7."""
    here = machine("a100-and-rtx3090")
    old = MachineGpu(index=1, name="Tesla K80", capability="3.7")
    found = choose(MATRIX, replace(here, gpus=(here.gpus[0], old))).ideal
    assert found is not None
    assert found.variant.id == "cuda13_0/sm80-avx2"
    assert [gpu.index for gpu in found.unused] == [1]
    assert "no CUDA of these releases compiles for Tesla K80 (3.7): CUDA 6.5" in found.reason


def test_one_gpu_may_be_named(matrix: Matrix) -> None:
    here = machine("a100-and-rtx3090")
    for index, expected in enumerate(("sm80-avx2", "sm86-avx2")):
        choice = choose(matrix, here, gpu=index)
        assert (best(choice), choice.for_all) == (expected, None)
    with pytest.raises(BuildPytorchError, match="--gpu: found 2; allowed: 0, 1"):
        choose(matrix, here, gpu=2)


def test_the_order_of_isas_is_data(matrix: Matrix) -> None:
    """Another level in matrix.toml is another answer."""
    lower = f"{matrix.text}\n[cpu.avx512vnni]\nlevel = 50\n"
    found = choose(matrix_reader.parse(lower), machine("rtx5090-zen4"))
    assert best(found) == "sm120-avx512vnni"


def test_the_newest_pytorch_comes_first_and_a_release_may_be_named(matrix: Matrix) -> None:
    two = matrix_reader.parse(matrix.text + SECOND)
    first, *others = choose(two, machine("rtx5090-zen4")).answers[0].accepted
    assert first.variant.release_name == "cuda13_0"
    older = [it for it in others if it.variant.release_name == "cuda12_9"]
    assert older[0].variant.short_id == "sm120-avx512bf16"
    assert explain.why_fallback(older[0], first) == "PyTorch 2.8.0"
    named = choose(two, machine("a100-zen3"), release="cuda12_9")
    assert best(named) is None  # it has sm86 only, a minor above
    with pytest.raises(BuildPytorchError, match='no such release; did you mean "cuda13_0"'):
        choose(two, machine("a100-zen3"), release="cuda13")


def test_of_equal_releases_one_that_has_the_variant_is_ideal() -> None:
    """The example has four releases of PyTorch 2.10; two of them have GB10, one an Apple build."""
    example = matrix_reader.parse(EXAMPLE)
    for name, expected in (("dgx-spark", "l15/sm121-armv9"), ("macbook", "l15/darwin-mps")):
        found = choose(example, machine(name)).ideal
        assert found is not None
        assert (found.variant.id, found.is_in_matrix) == (expected, True)


def test_without_a_release_for_the_driver_a_release_is_proposed(matrix: Matrix) -> None:
    """`matrix` has CUDA 13.0 only."""
    found = choose(matrix, machine("rtx4090-driver-550")).ideal
    assert found is not None
    assert found.variant.id == "cuda12_8/sm89-avx512bf16"
    assert found.command == "invoke bump --release cuda13_0 --cuda 12.8 --as cuda12_8"


# --- the rule of NVIDIA ---


@pytest.mark.parametrize(
    ("expected", "pairs"),
    [
        ("exact", "8.0>8.0 8.7>8.7 11.0>11.0 12.1a>12.1 10.0f>10.0 11.0a>11.0"),
        ("compatible", "8.0>8.6 8.0>8.9 8.6>8.9 10.0>10.3 12.0>12.1 10.0f>10.3"),
        (None, "8.6>8.0 12.1>12.0 8.9>9.0 9.0>10.0 1.2>12.0 10.0>1.0 12.0a>12.1 10.3f>10.0"),
        (None, "8.0>8.7 8.6>8.7 8.7>8.9 7.0>7.2"),  # Tegra
    ],
)
def test_code_runs_on_the_same_major_with_an_equal_or_higher_minor(
    expected: str | None, pairs: str
) -> None:
    for pair in pairs.split():
        built, _, device = pair.partition(">")
        assert runs_on(built, device) == expected, pair


@pytest.mark.parametrize("wrong", ["sm_120", "120", "12.", ".0", "", "12.0x"])
def test_what_is_no_dotted_capability_is_refused(wrong: str) -> None:
    for built, device in ((wrong, "12.0"), ("12.0", wrong), ("12.0", "12.0a")):
        with pytest.raises(ValueError, match="not a dotted compute capability"):
            runs_on(built, device)


# --- any machine ---

SMALL = matrix_reader.parse(ONE)


def may_run(variant: Variant, here: Machine, gpu: MachineGpu | None) -> bool:
    """An independent statement of the rules, without code of the resolver."""
    if variant.cpu.platform != here.platform or variant.status != "buildable":
        return False
    if any(flag not in here.cpu.flags.split() for flag in variant.cpu.cpuinfo):
        return False
    if variant.gpu is None:
        return True
    if gpu is None or gpu.capability is None or variant.release.cuda is None:
        return False
    built, device = float(variant.gpu.capability), float(gpu.capability)
    if int(built) != int(device) or built > device or (device == 8.7 and built != device):
        return False
    new_enough = here.driver in {"580.65.06", "600"} or here.cuda == "13.0"
    return new_enough or (here.driver is None and here.cuda is None)


@settings(max_examples=100, deadline=None)
@given(here=machines(may_be_wsl=False))
def test_what_runs_is_accepted_in_order_and_what_does_not_has_a_reason(here: Machine) -> None:
    choice = choose(SMALL, here)
    assert [gpu for found in choice.answers for gpu in found.gpus] != [] or not here.gpus
    for found in choice.answers:
        named = [candidate.variant for candidate in found.accepted]
        for gpu in found.gpus or (None,):
            assert {v.id for v in named} == {v.id for v in SMALL.variants if may_run(v, here, gpu)}
        assert all(candidate.obstacles for candidate in found.rejected)
        assert len(named) + len(found.rejected) == len(SMALL.variants)
        for better, worse in itertools.pairwise(named):
            assert (better.gpu is None) <= (worse.gpu is None)
            if better.gpu and worse.gpu:
                assert float(better.gpu.capability) >= float(worse.gpu.capability)
            if better.gpu_key == worse.gpu_key:
                assert better.cpu.level > worse.cpu.level
    shared = {v.id for v in SMALL.variants if v.gpu and all(may_run(v, here, g) for g in here.gpus)}
    if len(choice.answers) > 1:
        assert (choice.for_all is None) is (not shared)
        assert choice.for_all is None or choice.for_all.id in shared


def obstructed(variant: Variant, here: Machine, gpu: MachineGpu) -> bool:
    limit = driver_limit(driver_need(variant, gpu), here, gpu)
    return bool(gpu_verdict(variant, gpu).obstacles) or isinstance(limit, Obstacle)


@settings(max_examples=100, deadline=None)
@given(here=machines())
def test_the_ideal_build_runs_and_is_no_worse_than_the_best(here: Machine) -> None:
    choice = choose(MATRIX, here)
    found, first = choice.ideal, choice.best
    if found is None:
        assert first is None
        return
    assert found.reason
    assert cpu_obstacles(found.variant, here) == ()
    assert not any(obstructed(found.variant, here, gpu) for gpu in found.gpus)
    assert {gpu.index for gpu in (*found.gpus, *found.unused)} == set(range(len(here.gpus)))
    if found.gpus:  # it serves every GPU that it can
        assert all(obstructed(found.variant, here, gpu) for gpu in found.unused)
    if first and len({gpu.capability for gpu in here.gpus}) <= 1:
        assert preference(found.variant) >= preference(first.variant)
    assert found.gpus or not (first and first.gpus)


@settings(max_examples=100, deadline=None)
@given(here=machines())
def test_a_description_is_read_as_it_was_written(here: Machine) -> None:
    assert saved_machines.parse(saved_machines.text_of(here).encode(), "file") == here


# --- known facts ---


PRODUCTS = {
    "6.0": ["Tesla P100-PCIE-16GB"],
    "6.1": ["Tesla P40"],
    "7.0": ["NVIDIA TITAN V"],
    "7.5": ["Quadro RTX 6000", "NVIDIA GeForce RTX 2080 Ti", "NVIDIA TITAN RTX", "GRID T4-16Q"],
    "8.0": ["NVIDIA A100-SXM4-40GB"],
    "8.6": ["NVIDIA RTX A6000", "NVIDIA GeForce RTX 2050"],
    "8.7": ["Orin (nvgpu)"],
    "8.9": ["rtx 4090 laptop gpu", "NVIDIA RTX 6000 Ada Generation", "NVIDIA L40S"],
    "9.0": ["NVIDIA GH200 480GB"],
    "12.0": ["NVIDIA RTX PRO 6000 Blackwell Workstation Edition"],
    "12.1": ["NVIDIA GB10"],
}


def test_a_product_is_known_by_its_name() -> None:
    for capability, names in PRODUCTS.items():
        for name in names:
            found = KNOWN.gpu_named(name)
            assert (found and found[1].capability) == capability, name
    for name in ("RX 7900 XTX", "AMD Radeon RX 7900 XTX", "MI300X", "Radeon VII"):
        assert KNOWN.other_vendor(name) == "AMD", name
    for name in ("", "RTX 9999", "4090", "A1000000", "nvidia", "x" * 10_000):
        assert (KNOWN.gpu_named(name), KNOWN.other_vendor(name)) == (None, ""), name


def test_the_cpu_is_shown_by_its_name_and_its_highest_isa(matrix: Matrix) -> None:
    """A virtual machine on Sapphire Rapids that lacks some flags looks like an Ice Lake."""
    cpu = machine("h200-recorded").cpu
    few = Processor(flags="avx2 fma f16c sse4_2")
    for shown, title in (
        (replace(cpu, microarchitecture="icelake"), f"{cpu.model}, AVX-512 with BF16"),
        (few, "an unknown CPU, AVX2"),
    ):
        here = machine("h200-recorded", cpu=shown)
        lines = machine_lines.machine_lines(here, matrix.cpus.values())
        assert lines[0] == f"machine  x86_64-linux, {title}"


# --- the command ---


@pytest.fixture(scope="module")
def all_releases(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with all releases, which these tests only read."""
    return copied_project(tmp_path_factory.mktemp("whole") / "project", is_whole=True)


def shown_for(here: Machine, tmp_path: Path, whole: Project, *options: str) -> list[str]:
    path = tmp_path / "machine.json"
    path.write_text(saved_machines.text_of(here))
    return whole.invoke("recommend", "--machine", str(path), *options).stdout.splitlines()


def asked(project: Project, *argv: str) -> dict[str, Any]:
    done = project.invoke("recommend", *argv, "--json")
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == document["exit_code"]
    return document


@pytest.mark.parametrize(
    ("name", "exit_code", "shows"),
    [
        ("rtx5090-zen4", 0, ["Best: sm120-avx512bf16", "sm80 built for another major version"]),
        ("a100-zen3-old-driver", 0, [
            "First update the NVIDIA driver to 580.65.06 or newer. Then: Best: sm80-avx2",
            "Until then: cpu-avx2; leaves the GPU unused",
        ]),
        ("gh200", 1, [
            "No variant runs here.",
            "Ideal: sm90-armv9 (not in matrix.toml)",
            "[[release.cuda13_0.group]]",
            "x86_64-linux this machine is aarch64-linux",
        ]),
        ("jetson-thor", 0, ["check: driver 580.00 is older than 580.65.06, but supports"]),
        ("container-without-gpus", 0, ["start the container with its GPUs (--gpus all)"]),
    ],
)  # fmt: skip
def test_the_command_prints_the_answer_with_its_reasons(
    still: Project, name: str, exit_code: int, shows: list[str]
) -> None:
    done = still.invoke("recommend", "--machine", str(MACHINES / f"{name}.json"), "--verbose")
    assert done.returncode == exit_code
    text = " ".join(done.stdout.split())  # columns are as wide as their rows need
    assert [line for line in shows if line not in text] == []


@pytest.mark.parametrize("gpu", ["11.3", "K80"])
def test_a_gpu_that_nothing_runs_on_is_named_before_the_cpu_build(
    all_releases: Project, gpu: str
) -> None:
    done = all_releases.invoke("recommend", "--gpu", gpu, "--cpu", "armv9", "--driver", "600.1")
    first = unfolded(done.stdout.split("\n\n")[1])
    assert first.startswith(
        "No CUDA of these releases compiles for K80 (3.7): CUDA 6.5 to 11.8"
        if gpu == "K80"
        else "Nothing known runs on a GPU of capability 11.3: 11.3 is not known"
    )


def test_the_first_screen_is_short_on_every_machine(all_releases: Project, tmp_path: Path) -> None:
    """At most 20 lines of 80 columns, 24 for several GPUs; no reason is cut."""
    for path in sorted(MACHINES.glob("*.json")):
        here = saved_machines.load(path)
        everything = shown_for(here, tmp_path, all_releases)
        lines = [line for line in everything if not line.startswith("    ")]  # of matrix.toml
        is_one = len(here.gpus) + len(here.other_gpus) < 2
        assert len(lines) <= (20 if is_one else 24), (path.name, lines)
        assert all(len(line) <= 80 and "..." not in line for line in lines), (path.name, lines)


def test_a_long_command_continues_after_a_backslash(capsys: pytest.CaptureFixture[str]) -> None:
    text = "flox install " + " ".join(f"ORG/pytorch-python313-cuda13_0-sm{n}" for n in range(5))
    Screen(sys.stdout).command("  install  ", f"{text} 'two words'")
    shown = capsys.readouterr().out
    assert shown.count("\n") > 1
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert shlex.split(shown.replace("\\\n", ""))[1:] == shlex.split(f"{text} 'two words'")


def test_a_result_is_installed_from_where_it_was_published(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the recipe is the one that was published."""
    monkeypatch.setenv("PATH", str(tmp_path))  # without Nix, a store path that exists is valid
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path / "store"))
    recipe, sample = project.recipe("cuda13_0-sm121-armv9"), SampleFleet(project.root)
    variants = matrix_reader.load(project.root).variants
    variant = next(it for it in variants if it.id == "sm121-armv9")

    def shown() -> str:
        argv = ["recommend", "--machine", str(MACHINES / "dgx-spark.json")]
        return project.invoke(*argv).stdout

    output = Path(sample.built(variant, tmp_path / "store"))
    assert "  built here\n  publish  invoke publish sm121-armv9\n" in shown()
    output.rmdir()
    nothing = "  a recipe; nobody here has built it yet\n  build    invoke build sm121-armv9\n"
    assert nothing in shown()
    sample.append(
        ledger.Event(event="published", **sample.common(variant, LAST), organization="acme")
    )
    assert f"  built and published by acme\n  install  flox install acme/{recipe.stem}\n" in shown()
    recipe.write_text(recipe.read_text() + "# changed\n")
    assert nothing in shown()
    assert "flox install" not in shown()


def test_json_has_every_variant_with_its_verdict(still: Project, matrix: Matrix) -> None:
    path = MACHINES / "gh200.json"
    document = asked(still, "--machine", str(path))
    assert (document["exit_code"], document["best"]) == (1, None)
    assert document["machine"] == json.loads(path.read_text())
    assert (document["ideal"]["variant"], document["ideal"]["in_matrix"]) == ("sm90-armv9", False)
    (found,) = document["answers"]
    assert {row["variant"] for row in found["variants"]} == {v.id for v in matrix.variants}
    verdict = next(row for row in found["variants"] if row["variant"] == "sm90-avx2")
    assert verdict["runs"] is False
    assert [obstacle["kind"] for obstacle in verdict["obstacles"]] == ["platform"]


needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the CPU of an ARM machine is taken"
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--gpu RTX4090 --cpu avx2 --driver 550", "cuda12_8/sm89-avx2"),
        ("--gpu 4090 --cpu zen4 --driver 580.95.05", "cuda13_0/sm89-avx512bf16"),
        ("--gpu 8.6,RTX5090 --cpu avx512", "cuda13_0/sm120-avx512"),
        ("--gpu None --cpu zen4", "cuda13_0/cpu-avx512bf16"),
        ("--gpu cpu --cpu zen4", "cuda13_0/cpu-avx512bf16"),
        ("--gpu GB10 --cpu armv9", "cuda13_0/sm121-armv9"),
        pytest.param("--gpu GH200", "cuda13_0/sm90-armv9", marks=needs_x86),  # brings its CPU
        pytest.param("--gpu 12.1", "cuda13_0/sm121-armv9", marks=needs_x86),
        ("--gpu A100 --cpu avx2 --driver 525", "cuda12_8/sm80-avx2"),
        ("--gpu A100 --cpu avx2 --driver 12.8", "cuda12_8/sm80-avx2"),  # a version of CUDA
        ("--gpu A100 --cpu avx2 --driver 13.0", "cuda13_0/sm80-avx2"),
        ("--machine {machines}/a100-zen3.json --driver 525", "cuda12_8/sm80-avx2"),
        ("--gpu 'Radeon RX 7900 XTX' --cpu avx2", "cuda13_0/cpu-avx2"),
    ],
)
def test_a_machine_may_be_described_by_options(
    all_releases: Project, options: str, expected: str
) -> None:
    document = asked(all_releases, *shlex.split(options.format(machines=MACHINES)))
    assert document["best"]["variant"] == expected
    assert ("ROCm is not covered" in str(document["remarks"])) is ("Radeon" in options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--gpu", "RTX 4095"], "an unknown GPU; did you mean RTX 4090?"),
        (["--gpu", "5000"], "an unknown GPU; did you mean RTX PRO 5000 Blackwell or RTX 5000 Ada"),
        (["--gpu", "dgxspark", "--cpu", "zen4"], "exists on aarch64-linux only"),
        (["--gpu", "12.1", "--cpu", "avx512"], "exists on aarch64-linux only, and --cpu avx512"),
        (["--gpu", "GB10", "--machine", str(MACHINES / "rtx5090-zen4.json")], "only, and the mach"),
        (["--gpu", "one"], '--gpu: found "one", an unknown GPU; give its compute capability'),
        (["--gpu", "x" * 5000], f'--gpu: found "{"x" * 36}", an unknown GPU; give its'),
        (["--gpu", "1" * 5000], f'--gpu: found "{"1" * 36}"; allowed: a number from 0 to 1023'),
        (["--gpu", "0,A100"], "--gpu: give one number of this machine, or names"),
        (["--cpu", "avx3"], '--cpu: found "avx3"; did you mean "avx'),
        (["--driver", "v550"], '--driver: found "v550"; allowed: a driver version such as 550'),
        (["--gpu", ""], "--gpu: found an empty value, as from a variable that is not set"),
        (["--machine", ""], "--machine: found an empty value, as from a variable that is not set"),
        (["--gpu", "9"], "--gpu: found 9; allowed: 0"),
        (["--machine", "none.json"], "none.json: cannot be read: No such file or directory"),
        (["--release", "cuda13_1"], 'did you mean "cuda13_0"?'),
    ],
)
def test_wrong_options_are_one_line(still: Project, options: list[str], says: str) -> None:
    here = [] if "--machine" in options else ["--machine", str(MACHINES / "dgx-spark.json")]
    done = still.invoke("recommend", *here, *options)
    assert done.returncode == 2
    assert says in error_line(done)


GOOD = (MACHINES / "dgx-spark.json").read_bytes()


@pytest.mark.parametrize(
    ("data", "errors"),
    [
        (GOOD.replace(b'"12.1"', b'"sm_121"'), ["gpus[0].capability: found"]),
        (GOOD.replace(b'"flags"', b'"flgs"'), ["cpu.flgs: unknown key"]),
        (GOOD.replace(b'"580', b'"v580'), ["driver: found"]),
        (GOOD.replace(b"machine 1", b"machine 2"), ["format: found"]),
        (GOOD.replace(b'"fp asimd', b'"fp\\nasimd'), ["cpu.flags: found"]),
        (GOOD.replace(b'"memory": null', b'"memory": -1', 1), ["gpus[0].memory: found -1"]),
        (GOOD.replace(b'"notes": []', b'"notes": ["\\u001b[2J"]'), ["notes[0]: found"]),
        (GOOD.replace(b"}", b"", 1), ["not JSON ("]),
        (b"[]", ["top level: found []; allowed: an object"]),
        (b"[" * 100_000, ["not JSON (nested too deeply); write one with"]),
        (b'{"cpu": [], "gpus": {}}', ["platform: missing", "cpu: found []", "gpus: found {}"]),
        (
            (MACHINES / "a100-and-rtx3090.json").read_bytes().replace(b'x": 1', b'x": 0'),
            ["gpus[1].index: found 0 twice"],
        ),
    ],
    ids=range(12),
)
def test_a_wrong_description_has_a_line_for_each_place(data: bytes, errors: list[str]) -> None:
    with pytest.raises(BuildPytorchError) as caught:
        saved_machines.parse(data, "file")
    found = str(caught.value).splitlines()
    assert len(found) == len(errors)
    for line, error in zip(found, errors, strict=True):
        assert line.startswith(f"file: {error}")
