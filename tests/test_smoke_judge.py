"""Judging a smoke report: what is evidence for a package, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from smoke_reports import Raw, change, device, raw, report, right, shown, variant, without_gpu

from build_pytorch.matrix.model import Matrix
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import Judgement, judge
from build_pytorch.smoke.smoke_case import cpu_mismatch
from build_pytorch.tasks.command import exit_code_of

VERSIONS = {"torchvision": "0.25.0", "torchaudio": "2.10.0"}
ID = "sm90-avx512"


def judged(document: Raw, matrix: Matrix, id_: str = ID) -> Judgement:
    (package,) = [it for it in (*matrix.variants, *matrix.companions) if it.id == id_]
    return judge(report(document), package)


def verdict(judgement: Judgement) -> tuple[str, tuple[str, ...]]:
    return judgement.outcome, judgement.reasons


# --- the tests of a report ---


def test_every_variant_passes_on_the_machine_that_it_is_for_and_on_no_other_gpu(
    matrix: Matrix,
) -> None:
    for each in matrix.variants:
        assert verdict(judge(report(right(each)), each)) == ("passed", ()), each.id
        for gpu in matrix.gpus.values() if each.cpu_key in {"avx2", "armv9"} else ():
            if each.gpu and gpu.capability != each.gpu.capability:
                judgement = judge(report(right(each, gpu.capability)), each)
                assert judgement.outcome in {"skipped", "compatible"}


def test_the_script_has_a_test_of_every_library() -> None:
    both = "matmul fp32,matmul bf16,convolution,elementwise,fft,training,compile"
    gpu = "solve cusolver,solve magma,flash attention bf16,matmul fp8 rowwise,grouped matmul bf16"
    gpu += ",nvrtc,profiler,nccl all-reduce"
    wanted = {f"{where} {name}" for where in ("cpu", "cuda") for name in both.split(",")}
    wanted |= {f"cuda {name}" for name in gpu.split(",")} | {"cpu solve", "cpu complex dot"}
    assert wanted == {test.name for test in script.tests(())}


def test_each_test_must_have_passed_or_been_skipped_by_the_script(matrix: Matrix) -> None:
    """A test of a companion says nothing of other packages."""
    for test in script.tests(VERSIONS):
        name, document = test.name, right(variant(matrix, ID), **VERSIONS)
        id_ = f"{ID}+{test.companion}" if test.companion else ID
        other = f"{ID}+torchaudio" if test.companion == "torchvision" else f"{ID}+torchvision"
        change(document, name, outcome="failed", message="or so")
        why = f"{name}: or so; {test.meaning}" if test.meaning else f"{name}: or so"
        assert verdict(judged(document, matrix, id_)) == ("failed", (why,))
        assert (judged(document, matrix, other).outcome == "failed") is not bool(test.companion)
        change(document, name, outcome="not run")
        assert verdict(judged(document, matrix, id_)) == ("failed", (f"not run: {name}",))
        change(document, name, outcome="skipped")
        assert verdict(judged(document, matrix, id_)) == ("passed", ())


def test_an_older_report_needs_the_tests_that_it_declares_and_no_others(matrix: Matrix) -> None:
    document, later = raw("dgx-spark"), {"name": "cpu later", "device": "cpu"}
    for part, outcome, reasons in (
        ("torch", "passed", ()),
        ("declared", "failed", ("not run: cpu later",)),
        ("tests", "passed", ()),
    ):
        if part != "torch":
            document[part].append(later | ({"outcome": "passed"} if part == "tests" else {}))
        assert verdict(judged(document, matrix, "sm121-armv9")) == (outcome, reasons)
    with pytest.raises(ValueError, match="length >= 1"):
        report(document | {"tests": []})


# --- companions ---


def test_a_report_is_evidence_only_for_the_companion_that_was_asked_for(matrix: Matrix) -> None:
    for told, reason in (
        ({}, "has torchvision not installed, not 0.25.0"),
        ({"torchaudio": "2.10.0"}, "has torchvision not installed, not 0.25.0"),
        ({"torchvision": "0.24.1"}, "has torchvision 0.24.1, not 0.25.0"),
        ({"torchvision": "0.25.0a0+cu130"}, ""),
        (VERSIONS, ""),
    ):
        judgement = judged(right(variant(matrix, ID), **told), matrix, f"{ID}+torchvision")
        assert verdict(judgement) == (("failed", (reason,)) if reason else ("passed", ()))


def test_a_package_is_imported_from_its_result(matrix: Matrix, tmp_path: Path) -> None:
    companion = next(each for each in matrix.companions if each.id == f"{ID}+torchvision")
    built = Artefact(link=tmp_path / "result", output=tmp_path / "store")
    document = right(companion.variant, torchvision=companion.version)
    for package, place in (
        (companion.variant, document["torch"]),
        (companion, document["companions"]["torchvision"]),
    ):
        place["file"] = f"{tmp_path}/store/lib/__init__.py"
        assert judge(report(document), package, built).outcome == "passed"
        place["file"] = f"{tmp_path}/elsewhere/__init__.py"
        (reason,) = judge(report(document), package, built).reasons
        assert reason.startswith(f"imports another {package.name}, {place['file']}")


# --- what it is ---

LIBRARIES = ["/nix/store/a-torch-lib/lib", "/usr/lib"]
OTHERS: list[tuple[str, str, Raw, str]] = [
    (ID, "torch", {"cuda": "12.8"}, "is built with CUDA 12.8, not 13.0"),
    (ID, "torch", {"cuda": None}, "is built with CUDA none, not 13.0"),
    (ID, "torch", {"hip": "6.4"}, "is built for ROCm 6.4"),
    (ID, "torch", {"library_folders": LIBRARIES[:1]}, ""),
    (ID, "torch", {"library_folders": LIBRARIES},
     "loads the libraries of several PyTorchs: /nix/store/a-torch-lib/lib, /usr/lib"),
    (ID, "torch", {"arch_list": ["sm_90", "compute_90"]},
     "is built for sm_90 compute_90, not for sm_90 alone"),
    (ID, "torch", {"arch_list": []}, "is built for nothing, not for sm_90 alone"),
    (ID, "torch", {"magma": False}, "is built without MAGMA"),
    (ID, "torch", {"cpu_capability": "AVX2"}, "takes AVX2 kernels, not AVX512"),
    ("sm90-avx2", "torch", {"cpu_capability": "DEFAULT"}, "takes DEFAULT kernels, not AVX2"),
    ("sm90-avx2", "torch", {"cpu_capability": "AVX512"}, ""),
    (ID, "torch", {"version": "2.10.0+cu130"}, ""),
    (ID, "torch", {"version": "2.10.0a0+git1a2b3c4"},
     "is PyTorch 2.10.0a0+git1a2b3c4, not 2.10.0"),
    (ID, "torch", {"import_error": "undefined symbol"},
     "torch cannot be imported: undefined symbol"),
    (ID, "python", {"version": "3.1.3"}, "is for Python 3.1.3, not 3.13"),
    ("cpu-avx2", "torch", {"cuda": "13.0"}, "is built with CUDA 13.0, not none"),
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
        ("sm80-avx2", "8.9", "", "compatible",
         "is for 8.0 and is compatible with NVIDIA GPU (8.9)"),
        ("sm80-avx2", "8.9", "cuda training", "failed", f"cuda training: {lost}"),
        ("sm120-avx2", "9.0", "", "skipped", other),
        ("sm120-avx2", "9.0", "cuda training", "skipped", other),
        ("sm120-avx2", "9.0", "cpu solve", "failed", f"cpu solve: {lost}"),
    ):  # fmt: skip
        document = right(variant(matrix, id_), gpu)
        if fails:
            change(document, fails, outcome="failed", error=None, message=lost)
        assert verdict(judged(document, matrix, id_)) == (outcome, (reason,))


def test_the_gpu_that_was_tested_decides(matrix: Matrix) -> None:
    document = right(variant(matrix, "sm120-avx2"), "8.0")
    document["cuda"]["devices"] += [device("12.0", index=1, name="RTX 5090")]
    assert judged(document, matrix, "sm120-avx2").outcome == "skipped"
    document["cuda"]["device"] = 1
    assert judged(document, matrix, "sm120-avx2").outcome == "passed"


def test_without_a_usable_gpu_a_variant_is_skipped_with_the_reason(matrix: Matrix) -> None:
    for version in (None, "580.95.05"):
        document = right(variant(matrix, ID))
        without_gpu(document, "not yet initialized")["driver"]["version"] = version
        says = f"torch reaches no GPU: NVIDIA driver {version or 'none'}; not yet initialized"
        assert verdict(judged(document, matrix)) == ("skipped", (says,))


def test_a_cpu_without_the_isa_cannot_run_a_variant(matrix: Matrix) -> None:
    for id_, system, lacks, says in (
        ("cpu-avx512", "x86_64-linux", "", ""),
        ("cpu-avx512vnni", "x86_64-linux", "avx512_vnni", "this CPU lacks avx512_vnni"),
        ("sm110-avx2", "aarch64-linux", "", "is for x86_64-linux; this machine is aarch64-linux"),
        ("cpu-avx2", "x86_64-linux", "all", "this CPU lacks avx2, fma, f16c"),
    ):
        here = variant(matrix, id_)
        flags = [] if lacks == "all" else [flag for flag in here.cpu.cpuinfo if flag != lacks]
        assert cpu_mismatch(here, system, flags) == says


def test_the_exit_code_is_0_only_if_all_passed() -> None:
    for code, runs in {
        0: ["passed passed"],
        1: ["failed", "passed failed skipped"],
        3: ["", "skipped", "compatible", "passed compatible"],
    }.items():
        for outcomes in runs:
            assert exit_code_of(outcomes.split()) == code


# --- recorded runs: a CPU wheel, and an H200 ---


def test_a_recorded_wheel_is_not_a_variant_though_its_tests_passed(matrix: Matrix) -> None:
    codes = "is built for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120, not for sm_90 alone"
    for name, version, python, more in (
        ("cpu-wheel", "2.13.0+cpu", "3.11.7", "is built with CUDA none, not 13.0"),
        ("h200", "2.11.0+cu130", "3.12.3", codes),
        ("h200-nogpu", "2.11.0+cu130", "3.12.3", codes),
    ):
        wrong = (f"is PyTorch {version}, not 2.10.0", f"is for Python {python}, not 3.13", more)
        assert verdict(judged(raw(name), matrix)) == ("failed", wrong)


@pytest.mark.parametrize("name", ["h200", "h200-format-2", "h200-all-tests", "h200-companions"])
def test_a_correct_sm90_variant_would_pass_on_the_h200_and_no_other(
    matrix: Matrix, name: str
) -> None:
    document = raw(name)
    document["python"]["version"] = "3.13.9"
    for each in matrix.variants:
        if each.gpu and "arm" not in each.cpu_key:
            arch_list = [f"sm_{each.gpu.capability.replace('.', '')}"]
            document["torch"].update(version="2.10.0", arch_list=arch_list)
            judgement = judged(document, matrix, each.id)
            assert judgement.outcome == ("passed" if each.gpu_key == "sm90" else "skipped")
            assert each.gpu_key == "sm90" or "not run on NVIDIA H200 (9.0)" in judgement.reasons[0]


# --- output ---


def test_the_output_states_torch_gpu_capability_and_what_did_not_pass(matrix: Matrix) -> None:
    document, here = raw("dgx-spark"), variant(matrix, "sm121-armv9")
    lines = shown(document, here)
    assert lines[1:] == [
        "PyTorch version: 2.10.0",
        "CUDA available: True",
        "CUDA version: 13.0",
        "GPU: NVIDIA DGX Spark",
        "Compute capability: 12.1",
        "✅ SM121 (DGX Spark) detected correctly!",
        f"tests: {len(document['tests'])} passed",
        "sm121-armv9: passed",
    ]
    change(document, "cpu solve", outcome="failed", message="no LAPACK")
    change(document, "cpu training", outcome="skipped", message="not today")
    lines = shown(document, here)
    assert {"  failed   cpu solve  no LAPACK", "  skipped  cpu training  not today"} <= set(lines)
    assert f"tests: {len(document['tests']) - 2} passed, 1 skipped, 1 failed" in lines
    lines = shown(right(here, "9.0", "NVIDIA GH200"), here)
    assert "⚠️  Expected SM121, got SM90" in lines
    assert lines[-1] == "sm121-armv9: skipped: is for 12.1 and does not run on NVIDIA GH200 (9.0)"


def test_control_characters_do_not_reach_the_terminal(matrix: Matrix) -> None:
    document = right(variant(matrix, ID), name="\x1b[31mH200")
    document["tests"].append({"name": "cuda \x1b[2J", "outcome": "failed"})
    assert not any("\x1b" in line for line in shown(document, variant(matrix, ID)))
