"""`invoke smoke`: which Python runs, what is judged, what is recorded."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from built_files import small_project
from conftest import Project, unfolded
from smoke_reports import Raw, remember, result_in_store, right, variant

from build_pytorch.base.console import WIDTH
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Matrix
from build_pytorch.results.ledger import Event, read
from build_pytorch.smoke.judge import SmokeReport
from build_pytorch.smoke.smoke_case import SmokeCase, python_answer, smoke_test

ID = "cpu-avx2"
PACKAGE = "pytorch-python313-cpu-avx2"
LINK = f"result-{PACKAGE}"

needs_avx2 = pytest.mark.skipif(
    platform.machine() != "x86_64" or " avx2 " not in Path("/proc/cpuinfo").read_text(),
    reason="this machine is none of cpu-avx2",
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path / "project", ID)


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
    why = f"{LINK}: its closure has no Python 3.13; is {output} a Python package?"
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
