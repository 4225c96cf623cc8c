"""`invoke smoke`: what runs, what is evidence for a package, what is recorded."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from built_files import small_project
from conftest import Project, error_line, needs_nix, unfolded
from smoke_reports import (
    Raw,
    change,
    device,
    raw,
    remember,
    report,
    result_in_store,
    right,
    shown,
    variant,
    without_gpu,
)
from world import Site

from build_pytorch.base.console import WIDTH
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Matrix
from build_pytorch.results.ledger import Event, read
from build_pytorch.smoke import script, upstream
from build_pytorch.smoke.judge import Judgement, SmokeReport, judge
from build_pytorch.smoke.smoke_case import SmokeCase, cpu_mismatch, python_answer, smoke_test
from build_pytorch.smoke.upstream import UpstreamFile, judge_files
from build_pytorch.tasks.command import exit_code_of

VERSIONS = {"torchvision": "0.25.0", "torchaudio": "2.10.0"}
H200 = "sm90-avx512"


def judged(document: Raw, matrix: Matrix, id_: str = H200) -> Judgement:
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


def test_each_test_must_have_passed_or_been_skipped_by_the_script(matrix: Matrix) -> None:
    """A test of a companion says nothing of other packages."""
    for test in script.tests(VERSIONS):
        name, document = test.name, right(variant(matrix, H200), **VERSIONS)
        id_ = f"{H200}+{test.companion}" if test.companion else H200
        other = f"{H200}+torchaudio" if test.companion == "torchvision" else f"{H200}+torchvision"
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
        judgement = judged(right(variant(matrix, H200), **told), matrix, f"{H200}+torchvision")
        assert verdict(judgement) == (("failed", (reason,)) if reason else ("passed", ()))


def test_a_package_is_imported_from_its_result(matrix: Matrix, tmp_path: Path) -> None:
    companion = next(each for each in matrix.companions if each.id == f"{H200}+torchvision")
    built = tmp_path / "store"
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
WRONG: list[tuple[str, Raw, str]] = [
    ("torch", {"cuda": "12.8"}, "is built with CUDA 12.8, not 13.0"),
    ("torch", {"cuda": None}, "is built with CUDA none, not 13.0"),
    ("torch", {"hip": "6.4"}, "is built for ROCm 6.4"),
    ("torch", {"library_folders": LIBRARIES[:1]}, ""),
    ("torch", {"library_folders": LIBRARIES},
     "loads the libraries of several PyTorchs: /nix/store/a-torch-lib/lib, /usr/lib"),
    ("torch", {"arch_list": ["sm_90", "compute_90"]},
     "is built for sm_90 compute_90, not for sm_90 alone"),
    ("torch", {"arch_list": []}, "is built for nothing, not for sm_90 alone"),
    ("torch", {"magma": False}, "is built without MAGMA"),
    ("torch", {"cpu_capability": "AVX2"}, "takes AVX2 kernels, not AVX512"),
    ("torch", {"version": "2.10.0+cu130"}, ""),
    ("torch", {"version": "2.10.0a0+git1"}, "is PyTorch 2.10.0a0+git1, not 2.10.0"),
    ("torch", {"import_error": "no symbol"}, "torch cannot be imported: no symbol"),
    ("python", {"version": "3.1.3"}, "is for Python 3.1.3, not 3.13"),
    ("cuda", {"available": False, "crashed": True, "reason": "so"}, "CUDA does not start: so"),
    ("sm90-avx2", {"cpu_capability": "DEFAULT"}, "takes DEFAULT kernels, not AVX2"),
    ("sm90-avx2", {"cpu_capability": "AVX512"}, ""),
    ("cpu-avx2", {"cuda": "13.0"}, "is built with CUDA 13.0, not none"),
    ("sm121-armv9", {"cpu_capability": "SVE256"}, ""),
]  # fmt: skip
"""The part of a report, or another variant of which it is the part torch; facts; the reason."""


def test_another_torch_fails_even_if_all_its_tests_pass(matrix: Matrix) -> None:
    for place, facts, says in WRONG:
        id_, part = (place, "torch") if "-" in place else (H200, place)
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
    document["cuda"]["devices"] += [device("12.0", index=1)]
    for number, outcome in enumerate(("skipped", "passed")):
        document["cuda"]["device"] = number
        assert judged(document, matrix, "sm120-avx2").outcome == outcome


def test_without_a_usable_gpu_a_variant_is_skipped_with_the_reason(matrix: Matrix) -> None:
    for version in (None, "580.95.05"):
        document = right(variant(matrix, H200))
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
    codes = {"passed passed": 0, "passed failed skipped": 1, "": 3, "skipped": 3}
    for outcomes, code in {**codes, "passed compatible": 3, "failed": 1}.items():
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
    document = right(here, name="\x1b[31mSpark")
    document["tests"].append({"name": "cuda \x1b[2J", "outcome": "failed"})
    assert not any("\x1b" in line for line in shown(document, here))


# --- the command ---

ID = "cpu-avx2"
PACKAGE = "pytorch-python313-cpu-avx2"
LINK = f"result-{PACKAGE}"

needs_avx2 = pytest.mark.skipif(
    platform.machine() != "x86_64" or " avx2 " not in Path("/proc/cpuinfo").read_text(),
    reason="this machine is none of cpu-avx2",
)


def stand_in(path: Path, code: str) -> Path:
    """A program that stands in for a Python: it does this, whatever it is asked."""
    path.write_text(f"#!{sys.executable}\nimport json, os, signal, sys, time\n{code}\n")
    path.chmod(0o755)
    return path


def printing(path: Path, document: Raw) -> Path:
    path.with_suffix(".json").write_text(json.dumps(document))
    return stand_in(path, f"print(open({str(path.with_suffix('.json'))!r}).read())")


def smoke(project: Project, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "smoke", *argv, env=env)


def records(project: Project) -> list[Event]:
    return [event for event in read(project.root).events if event.event == "tested"]


# --- a Python that a person names ---


@needs_avx2
def test_a_run_with_another_python_is_judged_kept_and_never_recorded(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    document = right(variant(matrix, ID), torchvision="0.25.0")
    python = str(printing(tmp_path / "python", document))
    done = smoke(project, f"{ID},sm90-avx2,{ID}+torchvision", "--python", python, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"]) == (1, 1), done.stderr
    cases = {case["variant"]: case for case in found["variants"]}
    outcomes = {name: case["outcome"] for name, case in cases.items()}
    assert outcomes == {ID: "passed", "sm90-avx2": "failed", f"{ID}+torchvision": "passed"}
    first = cases[ID]
    assert first.keys() == {
        "release", "variant", "package", "outcome", "reasons",
        "python", "output", "recorded", "report", "script", "counts",
    }  # fmt: skip
    assert (first["recorded"], first["output"]) == (False, "")
    assert first["report"].startswith(f".build-pytorch/reports/smoke-{PACKAGE}-")
    kept = json.loads((project.root / first["report"]).read_text())
    assert (kept["script"], kept["outcome"]) == (document, "passed")
    other = cases[f"{ID}+torchvision"]["report"]
    assert other.startswith(".build-pytorch/reports/smoke-torchvision-python313-cpu-avx2-")
    assert "torchvision version: 0.25.0" in done.stderr
    assert "not recorded: this is not the built package" in done.stderr
    assert records(project) == []


@needs_avx2
def test_the_script_is_told_the_gpu_the_companion_and_the_time(
    project: Project, tmp_path: Path, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")  # the user's own setting would slow it
    code = "sys.exit(' '.join([*sys.argv[2:], os.environ.get('ATEN_CPU_CAPABILITY', 'unset')]))"
    (companion,) = [it for it in matrix.companions if it.id == "sm90-avx2+torchvision"]
    case, _ = smoke_test(project.root, companion, stand_in(tmp_path / "python", code), 7)
    told = "--limit 7 --capability 9.0 --companion torchvision unset"
    assert case.reasons == (f"Python ended with exit code 1: {told}",)
    assert case.outcome == "failed"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Python ended by SIGSEGV: no error output"),
        ("sys.exit(7)", "Python ended with exit code 7: no error output"),
        ("print('{\"schema\": 1}')", "its output is not a report: Invalid enum value 1"),
        ("print('[1]')", "its output is not a report: "),
        ("print('[' * 100_000)", "its output is not a report: nested too deeply"),
        ("print(' ' * (17 << 20))", "its output is not a report: larger than"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe')", "its output is not a report"),
        ("print(json.dumps({'error': 'no torch'}))", "torch does not work: no torch"),
        ("time.sleep(1000)", "no answer after 1 s; it was killed"),
    ],
)
def test_a_python_that_gives_no_report_is_named_with_its_reason(
    tmp_path: Path, code: str, says: str
) -> None:
    pids = tmp_path / "pids"
    code = f"open({str(pids)!r}, 'w').write(str(os.getpid()))\n{code}"
    argv = [str(stand_in(tmp_path / "python", code))]
    with pytest.raises(BuildPytorchError, match=f"^{re.escape(says)}"):
        python_answer(argv, {}, 1 if "sleep" in code else 60, SmokeReport)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


def test_what_cannot_be_started_is_not_run(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    package, link = variant(matrix, ID), project.root / LINK
    for target in (LINK, "/etc", "/nix/store/gone"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        case, _ = smoke_test(project.root, package, None, 60)
        why = f"{LINK} does not lead into the Nix store; run `invoke build {ID}`"
        assert (case.outcome, case.reasons) == ("not run", (why,))
    # code for another CPU would end with SIGILL
    foreign = "sm90-avx2" if platform.machine() == "aarch64" else "sm110-armv9"
    python = stand_in(tmp_path / "python", f"open({str(tmp_path / 'started')!r}, 'w')")
    case, _ = smoke_test(project.root, variant(matrix, foreign), python, 60)
    assert (case.outcome, case.reasons[0].partition(" ")[0]) == ("skipped", "is")
    assert not (tmp_path / "started").exists()
    python.write_text("no program")
    if foreign != "sm90-avx2":
        with pytest.raises(ToolError, match="cannot be run"):
            smoke_test(project.root, package, python, 60)
    assert records(project) == []


def test_variants_that_were_not_built_are_not_run_with_the_command_that_builds_them(
    project: Project, matrix: Matrix
) -> None:
    done = smoke(project, "all", "--json")
    outcomes = {v["package"]: v["outcome"] for v in json.loads(done.stdout)["variants"]}
    assert outcomes == {v.package: "not run" for v in matrix.variants}
    assert (done.returncode, max(map(len, done.stderr.splitlines())) <= WIDTH) == (3, True)
    name, package, said = matrix.variants[0].id, matrix.variants[0].package, unfolded(done.stderr)
    assert f"{name}: not run: result-{package} does not exist; run `invoke build {name}`" in said
    assert f"not run: {len(outcomes) - 4} more variants" in said


# --- the Python of a built variant ---

# What stands in for the built Python: it finds torch as a real one would, through PYTHONPATH,
# and prints a report with the place of torch as it is.
PYTHON = """
assert os.environ["PYTHONNOUSERSITE"] == "1"
import mpmath, sympy, torch
document = json.load(open(os.environ["REPORT"]))
document["torch"]["file"] = torch.__file__
document["search"] = os.environ["PYTHONPATH"].split(":")
print(json.dumps(document))
"""


@needs_avx2
def test_the_python_of_a_result_is_found_through_its_closure_and_imports_it(
    project: Project, tmp_path: Path, matrix: Matrix
) -> None:
    """As of torch, whose list of what it needs is in its output `dev`: Nix knows the closure."""
    env, output, python = result_in_store(tmp_path, project)
    (output / "nix-support/propagated-build-inputs").unlink()
    modules = {output: "torch"}
    modules |= {output.with_name(f"{it * 32}-python3.13-{it}"): it for it in ("sympy", "mpmath")}
    folders = [path / "lib/python3.13/site-packages" for path in modules]
    for folder, name in zip(folders, modules.values(), strict=True):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    other = output.with_name(f"{'c' * 32}-python3-3.12.9") / "bin/python3.12"
    for path in (other.parent, tmp_path / "bin"):
        path.mkdir(parents=True)
    stand_in(other, "sys.exit(9)")
    stand_in(python, PYTHON)
    closure = "\n".join(map(str, [*modules, other.parents[1], python.parents[1]]))
    stand_in(tmp_path / "bin/nix-store", f"print({closure!r})")
    (tmp_path / "report.json").write_text(json.dumps(right(variant(matrix, ID))))
    env |= {"PATH": f"{tmp_path}/bin:{env['PATH']}", "REPORT": str(tmp_path / "report.json")}
    done = smoke(project, ID, "--json", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)["variants"]
    assert (found["outcome"], found["output"], found["recorded"]) == ("passed", str(output), False)
    assert found["python"] == str(python)
    search = found["script"]["search"]
    assert (search[0], set(search)) == (str(folders[0]), set(map(str, folders)))
    assert f"the ledger has no recipe for this result; run `invoke build {ID}`" in done.stderr
    assert records(project) == []


@needs_avx2
def test_evidence_is_recorded_with_its_recipe_its_store_path_and_its_report(
    project: Project, tmp_path: Path, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, output, python = result_in_store(tmp_path, project)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    package, document = variant(matrix, ID), right(variant(matrix, ID))
    document["torch"]["file"] = f"{output}/torch/__init__.py"

    def tested(**torch: Any) -> SmokeCase:
        document["torch"].update(torch)
        printing(python, document)
        return smoke_test(project.root, package, None, 60)[0]

    case, _ = smoke_test(project.root, package, None, 60)
    why = f"{output}: its closure has no Python 3.13; is it a Python package?"
    assert (case.outcome, case.reasons) == ("not run", (why,))
    older = ["sha256:" + digit * 64 for digit in "12"]
    remember(project, package, output, older[0])
    assert tested().recorded
    current = remember(project, package, output)
    remember(project, package, output, older[1])  # the same result of another recipe
    second = tested()
    tested(version="2.9.1")
    case = tested(version="2.10.0", file="/usr/lib/torch/__init__.py")
    assert case.reasons[0].startswith("imports another torch, /usr/lib/torch/__init__.py, and not")
    events = records(project)
    assert [(event.digest, event.outcome, event.reason) for event in events[:3]] == [
        (older[0], "passed", ""),
        (current, "passed", ""),
        (current, "failed", "is PyTorch 2.9.1, not 2.10.0"),
    ]
    event = events[1]
    assert (event.subject, event.by) == (("cuda13_0", ID), "smoke")
    assert (event.output, event.report) == (second.output, second.report) != ("", "")
    kept = json.loads((project.root / event.report).read_text())
    assert (kept["digest"], kept["recorded"]) == (current, True)
    reports = project.root / ".build-pytorch/reports"
    reports.rename(reports.with_name("elsewhere"))
    reports.write_text("a file where the folder should be")
    with pytest.raises(BuildPytorchError, match="cannot be written"):
        tested()
    assert len(records(project)) == len(events)


# --- PyTorch's own tests ---


@pytest.mark.parametrize(
    ("tests", "problem", "outcome", "says"),
    [
        ("a PASSED", "", "passed", ""),
        ("a PASSED, b FAILED", "", "failed", "test_nn.py::Test::b: so"),
        ("a PASSED, b ERROR", "", "failed", "test_nn.py::Test::b: so"),
        ("a PASSED, known FAILED", "", "passed", ""),
        ("a PASSED, known PASSED", "", "passed",
         "test_nn.py::Test::known passes: remove it from upstream_skips.toml"),
        ("a SKIPPED", "", "skipped", "test_nn: no test passed"),
        ("a PASSED", "stopped at the limit", "skipped", "test_nn: stopped at the limit"),
        ("a PASSED", "crashed in x", "failed", "test_nn: crashed in x"),
    ],
)  # fmt: skip
def test_a_failure_that_is_not_known_fails_the_run(
    tests: str, problem: str, outcome: str, says: str
) -> None:
    pairs = dict(f"test_nn.py::Test::{test}".split() for test in tests.split(", "))
    reasons = dict.fromkeys(pairs, "so")
    file = UpstreamFile(file="test_nn", tests=pairs, reasons=reasons, problem=problem)
    found = judge_files([file], ["test_nn.py::*::known"])
    assert (found.outcome, found.reasons) == (outcome, (says,) if says else ())


FILE = """
import pytest

def test_passes(): pass

def test_fails(): assert 1 == 2, "wrong"

@pytest.mark.skip("no GPU")
def test_skips(): pass

def test_last(): open("in the working folder", "w")
"""


@pytest.mark.parametrize(
    ("share", "counts"),
    [(1, {"passed": 2, "failed": 1, "skipped": 1}), (2, {"passed": 1, "skipped": 1})],
)
def test_every_nth_test_of_a_read_only_file_runs(
    tmp_path: Path, share: int, counts: dict[str, int]
) -> None:
    file = tmp_path / "source/test_x.py"
    file.parent.mkdir()
    file.write_text(FILE)
    found = upstream.run_file(Path(sys.executable), {}, file, share, 300)
    assert (found.counts, found.problem) == (counts, "")
    why = {"test_x.py::test_fails": "AssertionError: wrong"}
    assert found.reasons == (why if share == 1 else {})
    assert list(file.parent.iterdir()) == [file]


BEGAN = """#!/bin/sh
echo '../source/test_x.py::test_a PASSED   [ 50%]'
echo -n '../source/test_x.py::test_b '
"""


@pytest.mark.parametrize(
    ("end", "seconds", "problem"),
    [
        ("exit 0", 300, ""),
        ("exit 1", 300, ""),  # a test failed
        ("kill -SEGV $$", 300, "crashed in test_x.py::test_b: ended by SIGSEGV"),
        ("exec sleep 99", 2, "stopped at the limit of 2 s in test_x.py::test_b"),
        ("echo; echo ImportError: x; exit 2", 300, "pytest ended with exit code 2: ImportError: x"),
    ],
)
def test_what_ran_before_the_end_of_a_file_counts(
    tmp_path: Path, end: str, seconds: float, problem: str
) -> None:
    python = tmp_path / "python"
    python.write_text(BEGAN + end)
    python.chmod(0o755)
    found = upstream.run_file(python, {}, tmp_path / "test_x.py", 1, seconds)
    assert found.problem == problem
    assert found.counts == {"passed": 1}


def test_the_known_failures_are_those_of_a_version() -> None:
    assert "test_jit.py::TestBackends*" in upstream.known_failures("2.6.0")
    assert "test_jit.py::TestBackends*" not in upstream.known_failures("2.7.0")
    for row in tomllib.loads(upstream.SKIPS.read_text())["skip"]:
        assert row.keys() == {"torch", "test", "reason", "source", "checked"}


SOURCE = """
{ }: {
  pytorch-python313-cpu-avx2.src = derivation {
    name = "source";
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-ec" "/bin/mkdir -p $out/test; echo '${file}' > $out/test/test_x.py" ];
  };
}
"""


@needs_nix
def test_the_tests_are_those_of_the_source_of_the_derivation(site: Site, tmp_path: Path) -> None:
    project = small_project(tmp_path / "project")
    file = 'def test_a(): assert __file__.startswith("/")\ndef test_b(): assert 0'
    nix = SOURCE.replace("${file}", file.replace('"', r"\"").replace("\n", r"\n"))
    (project.root / "release.nix").write_text(nix)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"  # the tools are there
    (project.root / ".build-pytorch/upstream" / version / "pytest").mkdir(parents=True)
    argv = ["invoke", "smoke", "cpu-avx2", "--python", sys.executable]
    done = project.run(*argv, "--upstream=test_x", "--json", env=site.env)
    (found,) = json.loads(done.stdout)["variants"]
    assert done.returncode == 1
    assert found["counts"]["test_x"]["passed"] == 1
    assert (found["outcome"], found["recorded"]) == ("failed", False)
    assert found["reasons"] == ["test_x.py::test_b: assert 0"]
    assert "test_x: 1 passed, 1 failed, " in done.stderr
    done = project.run(*argv, "--upstream=test_y", env=site.env)
    assert done.returncode == 2
    assert "--upstream test_y: no such file in " in error_line(done)
