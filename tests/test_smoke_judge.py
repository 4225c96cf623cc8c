"""Judging a smoke report: what is evidence for a variant, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from smoke_reports import (
    Raw,
    change,
    device,
    raw,
    report,
    right,
    shown,
    variant,
    without_gpu,
)

from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import script, smoke_tests
from build_pytorch.smoke.judge import Judgement, SmokeRun, cpu_mismatch, judge, parse
from build_pytorch.smoke.smoke_case import judge_run
from build_pytorch.tasks.command import exit_code_of

VERSIONS = {"torchvision": "0.25.0", "torchaudio": "2.10.0", "torchcodec": "0.10.0"}
ID = "sm90-avx512"


def judged(document: Raw, matrix: Matrix, id_: str = ID, **companions: str) -> Judgement:
    return judge(report(document), variant(matrix, id_), companions)


def verdict(judgement: Judgement) -> tuple[str, tuple[str, ...]]:
    return judgement.outcome, judgement.reasons


# --- the tests of a report ---


def test_every_variant_passes_on_the_machine_that_it_is_for_and_on_no_other_gpu(
    matrix: Matrix,
) -> None:
    for each in matrix.variants:
        judgement = judge(report(right(each)), each)
        assert verdict(judgement) == ("passed", ()), each.id
        for gpu in matrix.gpus.values() if each.cpu_key in {"avx2", "armv9"} else ():
            if each.gpu and gpu.capability != each.gpu.capability:
                judgement = judge(report(right(each, gpu.capability)), each)
                assert judgement.outcome in {"skipped", "compatible"}


def test_the_script_has_a_test_of_every_library() -> None:
    both = "matmul fp32,matmul bf16,convolution,elementwise,fft,training,compile"
    gpu = "solve cusolver,solve magma,flash attention bf16,matmul fp8 rowwise,grouped matmul bf16"
    gpu += ",nvrtc,profiler,nccl all-reduce"
    wanted = {f"{where} {name}" for where in ("cpu", "cuda") for name in both.split(",")}
    wanted |= {f"cuda {name}" for name in gpu.split(",")} | {"cpu solve"}
    assert wanted == {test.name for test in script.tests(())}


@pytest.mark.parametrize("test", script.tests(smoke_tests.COMPANIONS), ids=lambda test: test.name)
def test_each_test_must_have_passed(matrix: Matrix, test: Any) -> None:
    """Failed, missing and skipped tests fail the package; an optional part may be missing."""
    name, here = test.name, variant(matrix, ID)
    wanted = {test.companion: VERSIONS[test.companion]} if test.companion else {}

    def changed(**values: object) -> Raw:
        return change(right(here, **VERSIONS), name, **values)

    document = changed(outcome="failed", message="or so")
    why = f"{name}: or so; {test.meaning}" if test.meaning else f"{name}: or so"
    assert verdict(judged(document, matrix, ID, **wanted)) == ("failed", (why,))
    # It says nothing about other packages.
    others = {name: version for name, version in VERSIONS.items() if name not in wanted}
    assert (judged(document, matrix, ID, **others).outcome == "failed") is not bool(test.companion)

    missing = changed(outcome="not run")
    not_run = ("failed", (f"not run: {name}",))
    assert verdict(judged(missing, matrix, ID, **wanted)) == not_run
    missing["tests"] = [result for result in missing["tests"] if result["name"] != name]
    assert verdict(judged(missing, matrix, ID, **wanted)) == not_run

    judgement = judged(changed(outcome="skipped", message="gone"), matrix, ID, **wanted)
    is_optional = bool(test.optional)
    assert judgement.outcome == ("passed" if is_optional else "failed")
    assert (f"{name} was skipped: gone" in judgement.notes) is is_optional


def test_a_report_needs_the_tests_that_it_declares_and_no_others(matrix: Matrix) -> None:
    document = raw("dgx-spark")  # of the tests of its time
    assert judged(document, matrix, "sm121-armv9").outcome == "passed"
    document["declared"].append({"name": "cpu later", "device": "cpu"})
    assert judged(document, matrix, "sm121-armv9").reasons == ("not run: cpu later",)
    document["tests"].append({"name": "cpu later", "outcome": "passed"})
    assert judged(document, matrix, "sm121-armv9").outcome == "passed"
    document["tests"] = document["tests"][1:]
    assert judged(document, matrix, "sm121-armv9").reasons[0].startswith("not run: cpu ")


SKIPS = [
    ("sm86-avx2", "matmul fp8 rowwise", {}, False),
    ("sm89-avx2", "matmul fp8 rowwise", {}, True),
    (ID, "grouped matmul bf16", {"version": "2.8.0"}, False),
    (ID, "grouped matmul bf16", {"version": "2.10.0a0+git1"}, True),
    (ID, "solve magma", {"magma": False}, False),
    (ID, "solve magma", {"magma": True}, True),
]


def test_a_test_may_be_skipped_where_the_facts_allow_it(matrix: Matrix) -> None:
    for id_, test, torch, is_bad in SKIPS:
        document = change(right(variant(matrix, id_)), f"cuda {test}", outcome="skipped")
        document["torch"].update(torch)
        reasons = judged(document, matrix, id_).reasons
        assert any(r.startswith(f"cuda {test}: ") for r in reasons) is is_bad, (test, torch)


# --- companions ---


@pytest.mark.parametrize(
    ("told", "reasons"),
    [
        ({}, ("the script was not told to test torchvision",)),
        ({"torchaudio": "2.10.0"}, ("the script was not told to test torchvision",)),
        ({"torchvision": "0.24.1"}, ("has torchvision 0.24.1, not 0.25.0",)),
        ({"torchvision": ""}, ("has torchvision not installed, not 0.25.0",)),
        ({"torchvision": "0.25.0a0+cu130"}, ()),
        (VERSIONS, ()),
    ],
)
def test_a_report_is_evidence_only_for_the_companion_that_was_asked_for(
    matrix: Matrix, told: dict[str, str], reasons: tuple[str, ...]
) -> None:
    judgement = judged(right(variant(matrix, ID), **told), matrix, ID, torchvision="0.25.0")
    assert verdict(judgement) == ("failed" if reasons else "passed", reasons)


def test_a_companion_is_imported_from_its_result_and_shown_where_it_was_asked_for(
    matrix: Matrix, tmp_path: Path
) -> None:
    package = next(each for each in matrix.companions if each.id == f"{ID}+torchvision")
    built = Artefact(link=tmp_path / "result", output=tmp_path / "store")
    document = right(package.variant, torchvision=package.version)
    for folder, outcome in (("store/lib", "passed"), ("elsewhere", "failed")):
        file = tmp_path / folder / "torchvision/__init__.py"
        document["companions"]["torchvision"]["file"] = str(file)
        judgement = judge_run(SmokeRun(report=report(document)), package, built)
        assert judgement.outcome == outcome
    assert judgement.reasons[0].startswith("imports another torchvision, ")
    change(document, "cpu torchvision nms", outcome="skipped", message="not today")
    assert "cpu torchvision nms  not today" in "\n".join(shown(document, package))


# --- what it is ---

LIBRARIES = ["/nix/store/a-torch-lib/lib", "/usr/lib"]
OTHERS: list[tuple[str, str, Raw, str]] = [
    (ID, "torch", {"cuda": "12.8"}, "is built with CUDA 12.8, not 13.0"),
    (ID, "torch", {"cuda": None}, "is a CPU-only PyTorch: it was built without CUDA"),
    (ID, "torch", {"hip": "6.4"}, "is built for ROCm 6.4"),
    (ID, "torch", {"library_folders": LIBRARIES[:1]}, ""),
    (ID, "torch", {"library_folders": LIBRARIES},
     "loads the libraries of several PyTorchs: /nix/store/a-torch-lib/lib, /usr/lib"),
    (ID, "torch", {"arch_list": ["sm_90", "compute_90"]},
     "is built for sm_90 compute_90, not for sm_90 alone"),
    (ID, "torch", {"arch_list": ["sm_100"]}, "is built for sm_100, not for sm_90 alone"),
    (ID, "torch", {"arch_list": []}, "is built for nothing, not for sm_90 alone"),
    (ID, "torch", {"magma": False}, "is built without MAGMA"),
    (ID, "torch", {"cpu_capability": "AVX2"}, "takes AVX2 kernels, not AVX512"),
    ("sm90-avx2", "torch", {"cpu_capability": "DEFAULT"}, "takes DEFAULT kernels, not AVX2"),
    (ID, "torch", {"version": "2.10.0+cu130"}, ""),
    (ID, "torch", {"version": "2.10.0a0+git1a2b3c4"},
     "is PyTorch 2.10.0a0+git1a2b3c4, not 2.10.0"),
    (ID, "torch", {"version": "2.10.1"}, "is PyTorch 2.10.1, not 2.10.0"),
    (ID, "torch", {"import_error": "undefined symbol"},
     "torch cannot be imported: undefined symbol"),
    (ID, "python", {"version": "3.1.3"}, "is for Python 3.1.3, not 3.13"),
    ("cpu-avx2", "torch", {"cuda": "13.0"},
     "is built with CUDA 13.0, and the variant is CPU-only"),
    ("sm121-armv9", "torch", {"cpu_capability": "SVE256"}, ""),
    (ID, "cuda", {"available": False, "crashed": True, "reason": "ended by SIGSEGV"},
     "CUDA does not start: ended by SIGSEGV"),
]  # fmt: skip


def test_another_torch_fails_even_if_all_its_tests_pass(matrix: Matrix) -> None:
    for id_, part, facts, says in OTHERS:
        document = right(variant(matrix, id_))
        document[part].update(facts)
        judgement = judged(document, matrix, id_)
        assert verdict(judgement) == (("failed", (says,)) if says else ("passed", ())), facts


# --- the GPU and the CPU that are there ---


def test_on_another_gpu_a_variant_never_passes(matrix: Matrix) -> None:
    lost, other = "no kernel image is available", "is for 12.0 and does not run on NVIDIA GPU (9.0)"
    for id_, gpu, fails, outcome, reason in (
        ("sm80-avx2", "8.9", "", "compatible", "ran on NVIDIA GPU (8.9); it is for 8.0"),
        ("sm80-avx2", "8.9", "cuda training", "failed", f"cuda training: {lost}"),
        ("sm120-avx2", "9.0", "", "skipped", other),
        ("sm120-avx2", "9.0", "cuda training", "skipped", other),
        ("sm120-avx2", "9.0", "cpu solve", "failed", f"cpu solve: {lost}"),
    ):
        document = right(variant(matrix, id_), gpu)
        if fails:
            change(document, fails, outcome="failed", error=None, message=lost)
        assert verdict(judged(document, matrix, id_)) == (outcome, (reason,))


def test_the_gpu_that_device_names_decides(matrix: Matrix) -> None:
    document = right(variant(matrix, "sm120-avx2"), "8.0")
    document["cuda"]["devices"] += [device("12.0", index=1, name="RTX 5090")]
    judgement = judged(document, matrix, "sm120-avx2")
    assert judgement.outcome == "skipped"
    assert judgement.notes == ("--device 1, RTX 5090 (12.0), fits",)
    document["cuda"]["device"] = 1
    assert judged(document, matrix, "sm120-avx2").outcome == "passed"


def test_without_a_usable_gpu_a_variant_is_skipped_with_the_reason(matrix: Matrix) -> None:
    new = {"version": "580.95.05"}
    lost, why = "libcuda.so.1: cannot open shared object file", "system not yet initialized"
    table: dict[str, Raw] = {
        "no NVIDIA GPU here, so CUDA was not tested": {},
        "CUDA_VISIBLE_DEVICES hides the GPUs": {**new, "visible_devices": ""},
        "driver 570.26 is older than 580.65.06, which CUDA 13.0 needs": {"version": "570.26"},
        f"driver 580.95.05; torch reaches no GPU: {lost}; {why}": new,
        f"driver 580.95.05; torch reaches no GPU: {why}": {**new, "libcuda_problem": ""},
    }
    for says, driver in table.items():
        document = right(variant(matrix, ID))
        without_gpu(document, why)["driver"].update(driver)
        judgement = judged(document, matrix)
        assert verdict(judgement) == ("skipped", (says,))
        assert judgement.notes == ()


def test_a_cpu_without_the_isa_cannot_run_a_variant(matrix: Matrix) -> None:
    for id_, machine, lacks, says in (
        ("cpu-avx512", "x86_64", "", ""),
        ("cpu-avx512vnni", "x86_64", "avx512_vnni", "this CPU lacks avx512_vnni"),
        ("sm110-avx2", "aarch64", "", "is for x86_64; this machine is aarch64"),
        ("cpu-avx2", "x86_64", "all", "the CPU's flags are unknown"),
    ):
        here = variant(matrix, id_)
        flags = [] if lacks == "all" else [flag for flag in here.cpu.cpuinfo if flag != lacks]
        assert cpu_mismatch(here, machine, flags) == says


def test_the_exit_code_is_0_only_if_all_passed() -> None:
    for code, runs in {
        0: ["passed passed"],
        1: ["failed", "passed failed skipped"],
        3: ["", "skipped", "compatible", "passed compatible"],
    }.items():
        for outcomes in runs:
            assert exit_code_of(outcomes.split()) == code


# --- recorded runs: a CPU wheel, and an H200 ---


def as_variant(document: Raw, each: Variant) -> Raw:
    """The recorded run with the torch of a variant; GPU, CPU and test results are unchanged."""
    document["python"]["version"] = "3.13.9"
    arch_list = [f"sm_{each.gpu.capability.replace('.', '')}"] if each.gpu else []
    document["torch"].update(version="2.10.0", arch_list=arch_list)
    return document


ALL = "is built for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120, not for sm_90 alone"


def test_a_recorded_wheel_is_not_a_variant_though_its_tests_passed(matrix: Matrix) -> None:
    only = "is a CPU-only PyTorch: it was built without CUDA"
    for name, id_, version, python, more in (
        ("cpu-wheel", ID, "2.13.0+cpu", "3.11.7", [only]),
        ("h200", ID, "2.11.0+cu130", "3.12.3", [ALL]),
        ("h200-nogpu", ID, "2.11.0+cu130", "3.12.3", [ALL]),
    ):
        judgement = judged(raw(name), matrix, id_)
        wrong = [f"is PyTorch {version}, not 2.10.0", f"is for Python {python}, not 3.13"]
        assert verdict(judgement) == ("failed", (*wrong, *more))


@pytest.mark.parametrize("name", ["h200", "h200-format-2", "h200-all-tests", "h200-companions"])
def test_a_correct_sm90_variant_would_pass_on_the_h200_and_no_other(
    matrix: Matrix, name: str
) -> None:
    for each in matrix.variants:
        if each.gpu and "arm" not in each.cpu_key:
            judgement = judged(as_variant(raw(name), each), matrix, each.id)
            assert judgement.outcome == ("passed" if each.gpu_key == "sm90" else "skipped")
            assert each.gpu_key == "sm90" or "not run on NVIDIA H200 (9.0)" in judgement.reasons[0]


# --- output ---


def test_the_output_states_torch_gpu_capability_and_what_did_not_pass(matrix: Matrix) -> None:
    document, here = raw("dgx-spark"), variant(matrix, "sm121-armv9")
    lines = shown(document, here)
    assert lines[1:7] == [
        "PyTorch version: 2.10.0",
        "CUDA available: True",
        "CUDA version: 13.0",
        "GPU: NVIDIA DGX Spark",
        "Compute capability: 12.1",
        "✅ SM121 (DGX Spark) detected correctly!",
    ]
    assert lines[-2:] == [f"tests: {len(document['tests'])} passed", "sm121-armv9: passed"]
    assert len(lines) <= 15
    change(document, "cpu solve", outcome="failed", message="no LAPACK")
    lines = shown(document, here)
    assert "  failed   cpu solve  no LAPACK" in lines
    assert f"tests: {len(document['tests']) - 1} passed, 1 failed" in lines
    lines = shown(right(here, "9.0", "NVIDIA GH200"), here)
    assert "⚠️  Expected SM121, got SM90" in lines
    assert lines[-1] == "sm121-armv9: skipped: is for 12.1 and does not run on NVIDIA GH200 (9.0)"


def test_control_characters_do_not_reach_the_terminal(matrix: Matrix) -> None:
    document = right(variant(matrix, ID), name="\x1b[31mH200")
    document["tests"].append({"name": "cuda \x1b[2J", "outcome": "passed"})
    assert not any("\x1b" in line for line in shown(document, variant(matrix, ID)))


# --- reports by others ---

WRONG: list[tuple[tuple[str | int, ...], object, str]] = [
    (("cuda", "devices", 0, "capability"), "x", "$.cuda.devices[0].capability"),
    (("declared", 0, "capability"), "sm_89", "$.declared[0].capability"),
    (("tests", 0, "outcome"), "fine", "$.tests[0].outcome"),
]


def test_a_wrong_report_is_refused_with_its_place(matrix: Matrix) -> None:
    for (*way, last), value, says in WRONG:
        document: Any = right(variant(matrix, ID))
        parent = document
        for step in way:
            parent = parent[step]
        parent[last] = value
        found = parse(json.dumps(document))
        assert found.report is None
        assert says in found.problem
    for text in ("[" * 100_000, '{"a":' * 5000, '"\\ud800"', "", "1e999", "NaN"):
        assert parse(text).problem.startswith("its output is not a report: ")
