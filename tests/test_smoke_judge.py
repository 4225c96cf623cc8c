"""Judging a smoke report: what is evidence for a variant, and what is not."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from conftest import PROJECT, Project
from smoke_reports import FIXTURES, Raw, change, device, raw, report, right, variant, without_gpu

from build_pytorch.base.console import Screen
from build_pytorch.cli.smoke import SmokeCase, exit_code, show
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import Matrix
from build_pytorch.smoke import script, smoke_report
from build_pytorch.smoke.judge import Judgement, Outcome, judge
from build_pytorch.smoke.smoke_report import SmokeRun

NAMES = [test.name for test in script.tests() if not test.companion]
OF_COMPANIONS = [test.name for test in script.tests() if test.companion]
VERSIONS = {"torchvision": "0.25.0", "torchaudio": "2.10.0"}


def judged(document: Raw, fleet: Matrix, id_: str) -> Judgement:
    return judge(report(document), variant(fleet, id_))


# --- what passes ---


def test_every_variant_passes_on_the_machine_that_it_is_for(fleet: Matrix) -> None:
    for each in fleet.variants:
        judgement = judge(report(right(each)), each)
        assert (judgement.outcome, judgement.reasons) == ("passed", ()), each.id
        assert judgement.cpu == "passed"
        assert judgement.gpu == ("passed" if each.gpu else "not run")


def test_the_script_has_every_test_of_the_specification() -> None:
    both = ["matmul fp32", "matmul bf16", "matmul fp16", "convolution", "sparse matmul", "training"]
    both += ["flash attention bf16", "fft", "compile"]
    gpu = ["matmul tf32", "matmul fp8", "solve cusolver", "solve magma", "cudnn attention bf16"]
    gpu += ["matmul fp8 rowwise", "grouped matmul bf16", "nvrtc", "profiler", "nccl all-reduce"]
    wanted = [f"{where} {name}" for where in ("cpu", "cuda") for name in both]
    wanted += [f"cuda {name}" for name in gpu] + ["cpu solve", "cpu matmul int8"]
    assert set(wanted) <= set(NAMES)


def test_the_page_says_what_each_test_with_a_need_needs() -> None:
    page = (PROJECT / "docs/how-to/test-on-hardware.md").read_text()
    rows = dict(re.findall(r"(?m)^\| ([a-z0-9 -]+) \| (.*?) \|", page))
    for test in script.tests():
        is_special = test.capability or test.magma or test.torch or test.optional
        if is_special and not test.companion:
            needs = rows[test.name.partition(" ")[2]]
            for need in filter(None, (test.capability, test.torch)):
                assert need in needs, test.name
            assert ("optional" in needs) is bool(test.optional), test.name


@pytest.mark.parametrize("name", NAMES)
def test_one_failed_test_fails_the_variant(fleet: Matrix, name: str) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    change(document, name, outcome="failed", error=0.5, tolerance=1e-5, message="or so")
    judgement = judged(document, fleet, "sm90-avx512")
    assert judgement.outcome == "failed"
    (meaning,) = [test.meaning for test in script.tests() if test.name == name]
    why = f"{name}: error 0.5, tolerance 1e-05; or so"
    assert judgement.reasons == (f"{why}; {meaning}" if meaning else why,)
    half = "cpu" if name.startswith("cpu ") else "gpu"
    assert getattr(judgement, half) == "failed"


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_test_without_a_result_fails_the_variant(fleet: Matrix, name: str) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["tests"] = [test for test in document["tests"] if test["name"] != name]
    judgement = judged(document, fleet, "sm90-avx512")
    assert (judgement.outcome, judgement.reasons) == ("failed", (f"not run: {name}",))


OPTIONAL = [test.name for test in script.tests() if test.optional and not test.companion]


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_missing_optional_part_is_a_note(fleet: Matrix, name: str) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    change(document, name, outcome="skipped", message="no such part")
    judgement = judged(document, fleet, "sm90-avx512")
    assert judgement.outcome == "passed"
    assert f"{name} was skipped: no such part" in judgement.notes


@pytest.mark.parametrize("name", sorted({*NAMES} - {*OPTIONAL}))
def test_a_skipped_test_fails_the_variant(fleet: Matrix, name: str) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    change(document, name, outcome="skipped", message="no idea")
    if name == "cuda solve magma":
        document["torch"]["magma"] = False
    assert judged(document, fleet, "sm90-avx512").outcome == "failed"


@pytest.mark.parametrize(("id_", "outcome"), [("sm86-avx2", "passed"), ("sm89-avx2", "failed")])
def test_fp8_may_be_skipped_only_where_the_gpu_lacks_it(
    fleet: Matrix, id_: str, outcome: Outcome
) -> None:
    document = right(variant(fleet, id_))
    change(document, "cuda matmul fp8", outcome="skipped", message="FP8 needs capability 8.9")
    assert judged(document, fleet, id_).outcome == outcome


@pytest.mark.parametrize(
    ("torch", "outcome"), [("2.8.0", "passed"), ("2.10.0a0+git1", "failed"), ("?", "passed")]
)
def test_a_test_may_be_skipped_by_a_pytorch_that_is_too_old_for_it(
    fleet: Matrix, torch: str, outcome: Outcome
) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["torch"]["version"] = torch
    change(document, "cuda grouped matmul bf16", outcome="skipped", message="needs PyTorch 2.9")
    judgement = judged(document, fleet, "sm90-avx512")
    assert judgement.gpu == outcome


def test_magma_may_be_skipped_only_by_a_torch_without_it(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    change(document, "cuda solve magma", outcome="skipped", message="built without MAGMA")
    assert judged(document, fleet, "sm90-avx512").reasons == (
        "cuda solve magma: error 0, tolerance 1e-05; built without MAGMA",
    )
    document["torch"]["magma"] = False
    assert judged(document, fleet, "sm90-avx512").reasons == ("is built without MAGMA",)


# --- companions ---


def with_companions(fleet: Matrix, **versions: str) -> Raw:
    """What a correct variant reports where the script was told to test these companions."""
    document = right(variant(fleet, "sm90-avx512"))
    document["companions"] = {
        name: {"expected": version, "version": version, "file": f"/{name}/__init__.py"}
        for name, version in versions.items()
    }
    return document


def judged_with(document: Raw, fleet: Matrix, **versions: str) -> Judgement:
    return judge(report(document), variant(fleet, "sm90-avx512"), versions)


def test_companions_that_passed_their_tests_pass(fleet: Matrix) -> None:
    document = with_companions(fleet, **VERSIONS)
    assert judged_with(document, fleet, **VERSIONS).outcome == "passed"


@pytest.mark.parametrize("name", OF_COMPANIONS)
def test_a_failed_test_of_a_companion_fails_it_and_nothing_else(fleet: Matrix, name: str) -> None:
    document = with_companions(fleet, **VERSIONS)
    change(document, name, outcome="failed", error=None, tolerance=None, message="no kernel image")
    (test,) = [test for test in script.tests() if test.name == name]
    judgement = judged_with(document, fleet, **{test.companion: VERSIONS[test.companion]})
    assert judgement.reasons == (f"{name}: no kernel image; {test.meaning}",)
    (other,) = VERSIONS.keys() - {test.companion}
    assert judged_with(document, fleet, **{other: VERSIONS[other]}).outcome == "passed"
    assert judged_with(document, fleet).outcome == "passed"


def test_a_test_of_a_companion_may_be_skipped_only_if_its_part_is_optional(fleet: Matrix) -> None:
    for name in OF_COMPANIONS:
        document = with_companions(fleet, **VERSIONS)
        change(document, name, outcome="skipped", message="no such part")
        (test,) = [test for test in script.tests() if test.name == name]
        judgement = judged_with(document, fleet, **VERSIONS)
        assert judgement.outcome == ("passed" if test.optional else "failed"), name
        assert (f"{name} was skipped: no such part" in judgement.notes) is bool(test.optional)


@pytest.mark.parametrize("told", [{}, {"torchvision": "0.24.1"}, {"torchaudio": "2.10.0"}])
def test_a_report_is_evidence_only_for_the_companion_that_was_asked_for(
    fleet: Matrix, told: dict[str, str]
) -> None:
    judgement = judged_with(with_companions(fleet, **told), fleet, torchvision="0.25.0")
    assert judgement.outcome == "failed"
    assert judgement.reasons == ("the script was not told to test torchvision 0.25.0",)


# --- Triton ---


@pytest.mark.parametrize(
    ("found", "required", "is_noted"),
    [
        ("3.5.1", "3.6.0", True),
        ("3.6.0", "3.6.0", False),
        ("3.6.0+git1", "3.6.0", False),
        ("3.9.0", "~=3.8.0", True),
        ("3.8.1", "~=3.8.0", False),
        (None, "3.6.0", False),
        ("3.5.1", None, False),
        ("3.5.1", "three", False),
        ("what", "3.6.0", True),
    ],
)
def test_another_triton_than_the_required_one_is_a_note(
    fleet: Matrix, found: str | None, required: str | None, *, is_noted: bool
) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["torch"].update(triton=found, triton_required=required)
    judgement = judged(document, fleet, "sm90-avx512")
    note = f"Triton is {found}, and PyTorch 2.10.0 requires {required}: torch.compile may fail"
    assert judgement.outcome == "passed"
    assert any(each.startswith(note) for each in judgement.notes) is is_noted


# --- which tests a report must have ---


@pytest.mark.parametrize("name", [t["name"] for t in raw("dgx-spark")["tests"]])
def test_a_report_of_the_first_format_needs_every_test_of_its_time(
    fleet: Matrix, name: str
) -> None:
    document = raw("dgx-spark")
    document["tests"] = [test for test in document["tests"] if test["name"] != name]
    judgement = judged(document, fleet, "sm121-armv9")
    assert (judgement.outcome, judgement.reasons) == ("failed", (f"not run: {name}",))


def test_a_report_needs_the_tests_that_it_declares_and_no_others(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    for part in ("declared", "tests"):
        document[part] = [t for t in document[part] if t["name"] != "cuda training"]
    assert judged(document, fleet, "sm90-avx512").outcome == "passed"
    document["declared"].append({"name": "cuda added later", "device": "cuda", "tolerance": 1e-5})
    assert judged(document, fleet, "sm90-avx512").reasons == ("not run: cuda added later",)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_report_that_declares_no_tests_of_a_device_is_not_a_report(
    fleet: Matrix, device: str
) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["declared"] = [t for t in document["declared"] if t["device"] != device]
    with pytest.raises(ValueError, match="declares no tests for the CPU or none for CUDA"):
        report(document)


NEW_TEST = '''
@smoke_test("added later", 1e-5)
def added_later(torch: Any, device: str) -> Measured:
    """Transform a vector."""
    x = torch.randn(1024)
    return compared(torch.fft.fft(x.to(device)).abs(), torch.fft.fft(x.double()).abs())


# --- The process that runs the tests ---
'''

JUDGE_ALL = """
import json, sys
from pathlib import Path
import msgspec
from build_pytorch.matrix import matrix_reader
from build_pytorch.smoke import script, smoke_report
from build_pytorch.smoke.judge import judge
from build_pytorch.smoke.smoke_report import SmokeReport
reports = {
    path.stem: msgspec.json.decode(path.read_text(), type=SmokeReport)
    for path in Path(sys.argv[1]).glob("*.json")
}
print(json.dumps([
    [test.name for test in script.tests()],
    [[name, variant.id, str(judge(report, variant))]
     for name, report in sorted(reports.items()) for variant in matrix_reader.load().variants],
]))
"""


def test_a_new_test_is_one_function_and_leaves_recorded_reports_as_they_are(
    project: Project, fleet: Matrix
) -> None:
    def judge_all() -> tuple[list[str], list[list[str]]]:
        argv = [sys.executable, "-c", JUDGE_ALL, str(FIXTURES)]
        done = subprocess.run(argv, cwd=project.root, check=True, capture_output=True, text=True)
        names, judgements = json.loads(done.stdout)
        return names, judgements

    names, before = judge_all()
    assert len(before) == len(fleet.variants) * len(list(FIXTURES.glob("*.json")))
    old = "\n# --- The process that runs the tests ---\n"
    project.edit("build_pytorch/smoke/script.py", old, NEW_TEST)
    new_names, after = judge_all()
    assert set(new_names) - set(names) == {"cpu added later", "cuda added later"}
    assert after == before


# --- what it is ---


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("2.10.0", "passed"),
        ("2.10.0+cu130", "passed"),
        ("2.10.0+git1a2b3c4", "passed"),
        ("2.10.0a0+git1a2b3c4", "failed"),
        ("2.10.1", "failed"),
        ("2.9.1", "failed"),
        ("2.10.0.post1", "failed"),
    ],
)
def test_the_version_is_the_one_of_the_release(
    fleet: Matrix, version: str, outcome: Outcome
) -> None:
    document = right(variant(fleet, "sm90-avx2"))
    document["torch"]["version"] = version
    judgement = judged(document, fleet, "sm90-avx2")
    assert judgement.outcome == outcome
    assert any(version in note for note in judgement.notes) == ("+" in version)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"cuda": "12.8"}, "is built with CUDA 12.8, not 13.0"),
        ({"cuda": None}, "is a CPU-only PyTorch: it was built without CUDA"),
        ({"hip": "6.4"}, "is built for ROCm 6.4"),
        ({"arch_list": ["sm_90", "sm_120"]}, "is built for sm_90 sm_120, not for sm_90 alone"),
        ({"arch_list": ["sm_90", "compute_90"]}, "is built for sm_90 compute_90, not for"),
        ({"arch_list": ["sm_100"]}, "is built for sm_100, not for sm_90 alone"),
        ({"arch_list": []}, "is built for nothing, not for sm_90 alone"),
        ({"magma": False}, "is built without MAGMA"),
        ({"cpu_capability": "AVX2"}, "takes AVX2 kernels, not AVX512"),
        ({"cpu_capability": "DEFAULT"}, "takes DEFAULT kernels, not AVX512"),
    ],
)
def test_another_torch_fails_even_if_all_its_tests_pass(
    fleet: Matrix, facts: Raw, says: str
) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["torch"].update(facts)
    judgement = judged(document, fleet, "sm90-avx512")
    assert judgement.outcome == "failed"
    assert len(judgement.reasons) == 1
    assert says in judgement.reasons[0]


def test_another_python_fails(fleet: Matrix) -> None:
    document = right(variant(fleet, "cpu-avx2"))
    for version, outcome in {"3.13.9": "passed", "3.1.3": "failed", "3.12.1": "failed"}.items():
        document["python"]["version"] = version
        assert judged(document, fleet, "cpu-avx2").outcome == outcome


def test_a_gpu_torch_for_a_cpu_variant_fails(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx2"))
    judgement = judged(document, fleet, "cpu-avx2")
    assert judgement.outcome == "failed"
    assert judgement.reasons == ("is built with CUDA 13.0, and the variant is CPU-only",)


def test_a_cpu_only_torch_fails_for_a_gpu_variant_on_any_machine(fleet: Matrix) -> None:
    document = right(variant(fleet, "cpu-avx512"))
    for id_ in ("sm90-avx512", "sm120-avx512"):
        judgement = judged(document, fleet, id_)
        assert judgement.outcome == "failed"
        assert "is a CPU-only PyTorch: it was built without CUDA" in judgement.reasons


def test_a_torch_that_cannot_be_imported_fails(fleet: Matrix) -> None:
    document = right(variant(fleet, "cpu-avx2"))
    document["torch"] = {"import_error": "ImportError: libtorch.so: undefined symbol"}
    judgement = judged(document, fleet, "cpu-avx2")
    assert judgement.outcome == "failed"
    assert "undefined symbol" in judgement.reasons[0]


# --- the GPU that is there ---


@pytest.mark.parametrize(
    ("built", "gpu", "fit"),
    [
        ("8.0", "8.0", "exact"),
        ("8.0", "8.6", "compatible"),
        ("8.0", "8.7", None),
        ("8.0", "8.9", "compatible"),
        ("8.6", "8.9", "compatible"),
        ("10.0", "10.3", "compatible"),
        ("12.0", "12.1", "compatible"),
        ("12.1", "12.0", None),
        ("8.9", "8.6", None),
        ("8.9", "9.0", None),
        ("9.0", "10.0", None),
        ("10.3", "11.0", None),
        ("1.0", "10.0", None),
        ("11.0", "12.1", None),
    ],
)
def test_a_binary_runs_on_its_major_with_its_minor_or_a_higher_one(
    built: str, gpu: str, fit: str | None
) -> None:
    assert runs_on(built, gpu) == fit


def test_a_run_on_a_compatible_gpu_is_compatible_and_never_passed(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm80-avx2"), "8.9", "NVIDIA L40S")
    judgement = judged(document, fleet, "sm80-avx2")
    assert judgement.outcome == "compatible"
    assert judgement.reasons == ("ran on NVIDIA L40S (8.9); it is for 8.0",)
    assert (judgement.fit, judgement.gpu) == ("compatible", "passed")


def test_a_failed_test_on_a_compatible_gpu_fails_the_variant(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm80-avx2"), "8.9")
    change(document, "cuda training", outcome="failed", message="CUDA error: no kernel image")
    judgement = judged(document, fleet, "sm80-avx2")
    assert (judgement.outcome, judgement.fit) == ("failed", "compatible")


def test_on_another_gpu_a_variant_is_skipped_whatever_its_cuda_tests_gave(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm120-avx2"), "9.0", "NVIDIA H200")
    for test in document["tests"]:
        if test["name"].startswith("cuda "):
            test.update(outcome="failed", error=None, message="no kernel image is available")
    judgement = judged(document, fleet, "sm120-avx2")
    assert judgement.outcome == "skipped"
    assert judgement.reasons == ("is for 12.0 and does not run on NVIDIA H200 (9.0)",)
    assert (judgement.cpu, judgement.gpu) == ("passed", "not run")


def test_no_other_gpu_makes_a_variant_pass(fleet: Matrix) -> None:
    for each in fleet.variants:
        for gpu in fleet.gpus.values():
            if each.gpu and gpu.capability != each.gpu.capability:
                judgement = judge(report(right(each, gpu.capability)), each)
                assert judgement.outcome in {"skipped", "compatible"}


def test_a_failed_cpu_test_fails_the_variant_on_another_gpu_too(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm120-avx2"), "9.0")
    change(document, "cpu solve", outcome="failed", error=1.0)
    assert judged(document, fleet, "sm120-avx2").outcome == "failed"


def test_the_gpu_that_device_names_decides(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx2"))
    document["cuda"]["devices"] = [device("8.0"), device("9.0", index=1, name="NVIDIA H200")]
    judgement = judged(document, fleet, "sm90-avx2")
    assert judgement.outcome == "skipped"
    assert judgement.notes == ("--device 1, NVIDIA H200 (9.0), fits",)
    document["cuda"]["device"] = 1
    assert judged(document, fleet, "sm90-avx2").outcome == "passed"


@pytest.mark.parametrize(
    ("capability", "outcome"),
    [("8.6", "passed"), ("12.0", "passed"), ("8.9", "compatible"), ("13.0", "compatible"),
     ("9.0", "skipped")],
)  # fmt: skip
def test_a_build_for_several_architectures_is_tested_on_each(
    fleet: Matrix, capability: str, outcome: Outcome
) -> None:
    one = variant(fleet, "sm86-avx2")
    assert one.gpu
    mixed = msgspec.structs.replace(
        one, gpu=msgspec.structs.replace(one.gpu, also=("12.0",), ptx=True)
    )
    document = right(one, capability)
    document["torch"]["arch_list"] = ["sm_86", "sm_120", "compute_120"]
    assert judge(report(document), mixed).outcome == outcome
    for codes in (["sm_86", "sm_120"], ["sm_86", "compute_86"], ["sm_86", "sm_120", "sm_90"]):
        document["torch"]["arch_list"] = codes
        judgement = judge(report(document), mixed)
        assert judgement.outcome == "failed"
        assert "not for sm_86 sm_120 compute_120 alone" in judgement.reasons[0]


def test_the_other_gpus_of_a_build_for_several_are_named(fleet: Matrix) -> None:
    one = variant(fleet, "sm86-avx2")
    assert one.gpu
    mixed = msgspec.structs.replace(one, gpu=msgspec.structs.replace(one.gpu, also=("12.0",)))
    document = right(one)
    document["torch"]["arch_list"] = ["sm_86", "sm_120"]
    document["cuda"]["devices"] += [device("12.0", index=1, name="RTX 5090")]
    judgement = judge(report(document), mixed)
    assert judgement.outcome == "passed"
    assert judgement.notes == ("--device 1, RTX 5090 (12.0), is another GPU that it is for",)


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        ({}, "no NVIDIA GPU here, so CUDA was not tested"),
        ({"version": "580.95.05", "visible_devices": ""}, "CUDA_VISIBLE_DEVICES hides the GPUs"),
        ({"version": "570.26"}, "driver 570.26 is older than 580.65.06, which CUDA 13.0 needs"),
        ({"version": "580.95.05"}, "but this Python cannot load its library"),
        (
            {"version": "580.95.05", "libcuda_problem": ""},
            "torch reaches no GPU: system not yet initialized",
        ),
    ],
)
def test_without_a_usable_gpu_a_variant_is_skipped_with_the_reason(
    fleet: Matrix, driver: Raw, says: str
) -> None:
    document = right(variant(fleet, "sm90-avx2"))
    without_gpu(document, "system not yet initialized")["driver"].update(driver)
    judgement = judged(document, fleet, "sm90-avx2")
    assert judgement.outcome == "skipped"
    assert says in judgement.reasons[0]
    assert (judgement.cpu, judgement.gpu) == ("passed", "not run")


def test_a_crash_while_cuda_starts_is_a_failure(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx2"))
    without_gpu(document, "ended by SIGSEGV")["cuda"]["crashed"] = True
    judgement = judged(document, fleet, "sm90-avx2")
    assert judgement.outcome == "failed"
    assert judgement.reasons == ("CUDA does not start: ended by SIGSEGV",)


# --- the CPU that is there ---


def test_on_a_cpu_without_the_isa_a_variant_is_skipped_with_the_missing_flags(
    fleet: Matrix,
) -> None:
    document = right(variant(fleet, "cpu-avx512"))  # Skylake-SP: neither VNNI nor BF16
    judgement = judged(document, fleet, "cpu-avx512vnni")
    assert judgement.outcome == "skipped"
    assert judgement.reasons == ("this CPU lacks avx512_vnni",)


def test_a_crash_on_a_cpu_without_the_isa_is_not_the_fault_of_the_variant(fleet: Matrix) -> None:
    document = right(variant(fleet, "cpu-avx512"))
    document["torch"] = {"import_error": "import torch: ended by SIGILL"}
    assert judged(document, fleet, "cpu-avx512bf16").outcome == "skipped"
    assert judged(document, fleet, "cpu-avx512").outcome == "failed"


def test_another_processor_family_is_skipped(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm110-armv9"))
    judgement = judged(document, fleet, "sm110-avx2")
    assert judgement.outcome == "skipped"
    assert judgement.reasons == ("is for x86_64; this machine is aarch64",)


def test_the_names_of_arm_kernels_decide_nothing(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm121-armv9"))
    for name in ("DEFAULT", "SVE256", "SVE"):
        document["torch"]["cpu_capability"] = name
        assert judged(document, fleet, "sm121-armv9").outcome == "passed"


# --- exit codes ---


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["passed"], 0),
        (["passed", "passed"], 0),
        (["failed"], 1),
        (["passed", "failed", "skipped"], 1),
        (["skipped"], 3),
        (["not run"], 3),
        (["compatible"], 3),
        (["passed", "compatible"], 3),
        (["passed", "not run"], 3),
        ([], 3),
    ],
)
def test_the_exit_code_is_0_only_if_all_passed(outcomes: list[Outcome], code: int) -> None:
    assert exit_code([Judgement(outcome=outcome) for outcome in outcomes]) == code


# --- a recorded run of a CPU wheel ---


def test_a_recorded_cpu_wheel_passed_all_cpu_tests(fleet: Matrix) -> None:
    document = raw("cpu-wheel")
    by_name = {test["name"]: test for test in document["tests"]}
    for test in report(document).declared:
        assert by_name[test.name]["outcome"] == ("passed" if test.device == "cpu" else "skipped")
    judgement = judged(document, fleet, "cpu-avx512")
    assert judgement.outcome == "failed"
    assert judgement.reasons == (
        "is PyTorch 2.13.0+cpu, not 2.10.0",
        "is for Python 3.11.7, not 3.13",
    )
    assert judgement.cpu == "passed"


def test_a_recorded_cpu_wheel_fails_for_a_gpu_variant(fleet: Matrix) -> None:
    judgement = judged(raw("cpu-wheel"), fleet, "sm90-avx512")
    assert judgement.outcome == "failed"
    assert "is a CPU-only PyTorch: it was built without CUDA" in judgement.reasons


# --- a recorded run on an H200 ---


def as_variant(document: Raw, fleet: Matrix, id_: str) -> Raw:
    """The recorded run with the torch of a variant; GPU, CPU and test results are unchanged."""
    each = variant(fleet, id_)
    document["python"]["version"] = "3.13.9"
    arch_list = [f"sm_{each.gpu.capability.replace('.', '')}"] if each.gpu else []
    document["torch"].update(version="2.10.0", arch_list=arch_list)
    return document


@pytest.mark.parametrize("name", ["h200", "h200-format-2", "h200-all-tests"])
def test_the_recorded_h200_passed_all_tests_fp8_and_magma_included(name: str) -> None:
    tests = raw(name)["tests"]
    assert {test["name"] for test in tests} == {t.name for t in report(raw(name)).declared}
    for test in tests:
        assert test["outcome"] == "passed"
        assert test["error"] <= test["tolerance"]
    errors = {test["name"]: test["error"] for test in tests}
    # With TF32 in place of FP32 the FP32 test would have failed.
    assert errors["cuda matmul tf32"] > 1e-5 > errors["cuda matmul fp32"]


def test_the_recorded_h200_ran_torchvision_and_torchaudio_on_cpu_and_gpu() -> None:
    document = report(raw("h200-companions"))
    tests = {test.name: test for test in document.tests}
    assert tests.keys() == {test.name for test in document.declared}
    skipped = [name for name, test in tests.items() if test.outcome != "passed"]
    assert skipped == ["cpu torchaudio pairing"]  # the public wheel states no PyTorch
    for companion in ("torchvision", "torchaudio"):
        devices = {test.device for test in document.declared if test.companion == companion}
        assert devices == {"cpu", "cuda"}


def test_the_wheel_on_the_h200_is_not_a_variant_though_its_tests_passed(fleet: Matrix) -> None:
    judgement = judged(raw("h200"), fleet, "sm90-avx512")
    assert judgement.outcome == "failed"
    assert judgement.reasons == (
        "is PyTorch 2.11.0+cu130, not 2.10.0",
        "is for Python 3.12.3, not 3.13",
        "is built for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120, not for sm_90 alone",
    )
    assert (judgement.fit, judgement.cpu, judgement.gpu) == ("exact", "passed", "passed")


@pytest.mark.parametrize("cpu", ["avx2", "avx512", "avx512bf16", "avx512vnni"])
@pytest.mark.parametrize("name", ["h200", "h200-format-2", "h200-all-tests", "h200-companions"])
def test_a_correct_sm90_variant_would_pass_on_the_h200(fleet: Matrix, name: str, cpu: str) -> None:
    id_ = f"sm90-{cpu}"
    assert judged(as_variant(raw(name), fleet, id_), fleet, id_).outcome == "passed"


def test_a_variant_for_any_other_architecture_is_skipped_on_the_h200(fleet: Matrix) -> None:
    others = [v for v in fleet.variants if v.gpu and v.gpu_key != "sm90"]
    assert others
    for each in others:
        judgement = judged(as_variant(raw("h200"), fleet, each.id), fleet, each.id)
        assert (judgement.outcome, judgement.fit) == ("skipped", None), each.id
        here = "is for aarch64" if "arm" in each.cpu_key else "does not run on NVIDIA H200 (9.0)"
        assert here in judgement.reasons[0]


def test_with_a_hidden_h200_a_variant_is_skipped(fleet: Matrix) -> None:
    document = as_variant(raw("h200-nogpu"), fleet, "sm90-avx512")
    judgement = judged(document, fleet, "sm90-avx512")
    assert judgement.outcome == "skipped"
    assert judgement.reasons == ("CUDA_VISIBLE_DEVICES hides the GPUs",)
    assert (judgement.cpu, judgement.gpu) == ("passed", "not run")


def test_the_arch_list_is_known_without_a_gpu(fleet: Matrix) -> None:
    assert raw("h200-nogpu")["torch"]["arch_list"] == raw("h200")["torch"]["arch_list"] != []
    judgement = judged(raw("h200-nogpu"), fleet, "sm90-avx512")
    assert any("not for sm_90 alone" in reason for reason in judgement.reasons)


def test_a_cuda_wheel_fails_for_a_cpu_variant(fleet: Matrix) -> None:
    reasons = judged(raw("h200"), fleet, "cpu-avx512").reasons
    assert "is built with CUDA 13.0, and the variant is CPU-only" in reasons


# --- output ---


def shown(document: Raw, fleet: Matrix, id_: str) -> list[str]:
    screen = Screen(io.StringIO())
    run = SmokeRun(report=report(document))
    judgement = judged(document, fleet, id_)
    show(screen, SmokeCase(package=variant(fleet, id_), judgement=judgement, ran=run))
    assert isinstance(screen.stream, io.StringIO)
    return screen.stream.getvalue().splitlines()


def test_the_output_of_a_dgx_spark_states_torch_gpu_and_capability(fleet: Matrix) -> None:
    lines = shown(raw("dgx-spark"), fleet, "sm121-armv9")
    assert lines[1:7] == [
        "PyTorch version: 2.10.0",
        "CUDA available: True",
        "CUDA version: 13.0",
        "GPU: NVIDIA DGX Spark",
        "Compute capability: 12.1",
        "✅ SM121 (DGX Spark) detected correctly!",
    ]
    assert lines[-1] == "sm121-armv9: passed"


def test_the_fixture_of_a_dgx_spark_states_that_it_is_constructed() -> None:
    assert "Not recorded" in raw("dgx-spark")["constructed"]


def test_another_gpu_gets_a_warning(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm121-armv9"), "9.0", "NVIDIA GH200")
    lines = shown(document, fleet, "sm121-armv9")
    assert "⚠️  Expected SM121, got SM90" in lines
    assert lines[-1] == ("sm121-armv9: skipped: is for 12.1 and does not run on NVIDIA GH200 (9.0)")


def test_every_test_is_shown_with_error_and_tolerance(fleet: Matrix) -> None:
    document = raw("dgx-spark")
    lines = shown(document, fleet, "sm121-armv9")
    for name in (test["name"] for test in document["tests"]):
        (line,) = [line for line in lines if f" {name} " in line]
        assert "passed" in line
        assert "error 5.0e-07, tolerance 1e-05, 0.10 s" in line or name.startswith("cpu ")


def test_control_characters_of_a_gpu_name_do_not_reach_the_terminal(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx2"), name="\x1b[31mH200")
    assert not any("\x1b" in line for line in shown(document, fleet, "sm90-avx2"))


# --- reports by others ---


def test_an_error_without_a_tolerance_is_judged_and_shown(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    change(document, "cuda fft", outcome="failed", error=0.5, tolerance=None, message="by hand")
    judgement = judged(document, fleet, "sm90-avx512")
    assert judgement.reasons[0].startswith("cuda fft: by hand")
    case = SmokeCase(
        package=variant(fleet, "sm90-avx512"),
        judgement=judgement,
        ran=smoke_report.parse(json.dumps(document)),
    )
    show(Screen(io.StringIO()), case)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("cuda", "devices", 0, "capability"), "x", "$.cuda.devices[0].capability"),
        (("declared", 0, "capability"), "sm_89", "$.declared[0].capability"),
        (("torch", "config"), [[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]], "nested too deeply"),
    ],
)
def test_a_wrong_report_is_refused_with_its_place(
    fleet: Matrix, path: tuple[str | int, ...], value: object, says: str
) -> None:
    document: Any = right(variant(fleet, "sm90-avx512"))
    *way, last = path
    parent = document
    for step in way:
        parent = parent[step]
    parent[last] = value
    found = smoke_report.parse(json.dumps(document))
    assert found.report is None
    assert says in found.problem


@pytest.mark.parametrize(
    "values",
    [
        {"error": None},
        {"tolerance": None},
        {"error": 2e-5},
        {"error": 0.5, "tolerance": 1.0},
        {"tolerance": 1.1e-5},
    ],
)
def test_a_passed_test_must_show_it_by_its_numbers(fleet: Matrix, values: Raw) -> None:
    for name in ("cpu fft", "cuda fft"):
        document = change(right(variant(fleet, "sm90-avx512")), name, **values)
        judgement = judged(document, fleet, "sm90-avx512")
        assert judgement.outcome == "failed"
        assert judgement.reasons[0].startswith(f"{name}: passed with")


def test_a_test_that_this_script_lacks_is_judged_by_its_own_tolerance(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["declared"].append({"name": "cpu old", "device": "cpu", "tolerance": 0.5})
    document["tests"].append(
        {"name": "cpu old", "outcome": "passed", "error": 0.4, "tolerance": 0.5}
    )
    assert judged(document, fleet, "sm90-avx512").outcome == "passed"


@pytest.mark.parametrize(
    "values",
    [{"error": -1e-9}, {"tolerance": -1.0}, {"seconds": -0.1}, {"seconds": 1e300}],
)
def test_a_report_with_impossible_numbers_is_invalid(fleet: Matrix, values: Raw) -> None:
    document = change(right(variant(fleet, "sm90-avx512")), "cpu fft", **values)
    found = smoke_report.parse(json.dumps(document))
    assert found.report is None
    assert f".{next(iter(values))}" in found.problem


def test_a_report_with_two_results_of_one_test_is_invalid(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["tests"].insert(0, {"name": "cpu fft", "outcome": "failed"})
    assert "two tests of one name" in smoke_report.parse(json.dumps(document)).problem


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5000, '"\\ud800"', "", "1e999", "NaN"])
def test_what_is_no_report_is_a_problem_and_no_exception(text: str) -> None:
    assert smoke_report.parse(text).problem.startswith("its output is not a report: ")


def test_names_of_tests_are_escaped(fleet: Matrix) -> None:
    document = right(variant(fleet, "sm90-avx512"))
    document["tests"].append({"name": "cuda \x1b[2J", "outcome": "passed"})
    out = io.StringIO()
    here = variant(fleet, "sm90-avx512")
    ran = smoke_report.parse(json.dumps(document))
    assert ran.report
    show(Screen(out), SmokeCase(package=here, judgement=judge(ran.report, here), ran=ran))
    assert "\x1b" not in out.getvalue()
