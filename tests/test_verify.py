"""The verify command: selections, strictness, reports for programs, and the pinned category."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, TextIO
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
from conftest import ONE, PROJECT, Project, copied_project, error_line, needs_nix
from sarif_pydantic import Sarif

from build_pytorch.cli.commands import VerifyOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.nix import derivations, nix_evaluation
from build_pytorch.verify import recipe_evaluation, registry, reports, verification
from build_pytorch.verify.verification import VerificationResult

GPU = "cuda13_0-sm90-avx512"


@pytest.fixture
def broken(project: Project) -> Project:
    """A project with one recipe for the wrong architecture, and one that is no Nix."""
    project.edit(f".flox/pkgs/pytorch-python313-{GPU}.nix", '"9.0"', '"8.9"')
    project.recipe("cpu-avx2").write_text('{ pkgs }: pkgs.hello "\x07%\n<&>\n')
    return project


def verify(project: Project, *argv: str) -> subprocess.CompletedProcess[str]:
    return project.invoke("verify", *argv)


# --- what to look at ---


@needs_nix
def test_a_selection_looks_at_those_recipes_only(broken: Project) -> None:
    assert verify(broken, "sm120-*", "--only", "text").returncode == 0
    done = verify(broken, "sm90-*", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["variants"] == [
        f"sm90-{isa}" for isa in ("avx2", "avx512", "avx512bf16", "avx512vnni")
    ]
    assert {finding["file"] for finding in document["findings"]} == {
        f".flox/pkgs/pytorch-python313-{GPU}.nix",
        f"companions/.flox/pkgs/torchvision-python313-{GPU}.nix",
        f"companions/.flox/pkgs/torchaudio-python313-{GPU}.nix",
    }
    assert "gpu-count" not in {check["id"] for check in document["checks"]}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sm91-*"], 'no variant matches "sm91-*"'),
        (["sm90-avx51"], 'did you mean "sm90-avx512"?'),
        (["--only", "gpu-arc"], 'did you mean "gpu-arch"?'),
        (["sm90-*", "--only", "missing-recipe"], "these checks need all variants"),
        (["--explain", "syntx"], 'did you mean "syntax"?'),
        (["--only", "toolchain"], 'no check or category "toolchain"'),
        (["--only", "inventory"], 'no check or category "inventory"'),
        (["--only", "compilers"], 'did you mean "compiler"?'),
        (["--root", "none"], "no such folder"),
        (["--sarif", "none/x.sarif", "--only", "gpu-arch"], "none/x.sarif: cannot be written"),
    ],
)
def test_selecting_nothing_is_bad_input(project: Project, argv: list[str], message: str) -> None:
    done = verify(project, *argv)
    assert done.returncode == 2
    assert message in error_line(done)


def test_only_takes_checks_and_categories(project: Project) -> None:
    done = verify(project, "--only", "gpu-arch", "--only", "compiler", "--json")
    ids = [check["id"] for check in json.loads(done.stdout)["checks"]]
    assert ids == ["gpu-arch", "compiler-flags", "nvcc-architectures"]
    by_invoke = project.invoke("verify", "sm90-*", "--only", "gpu-arch", "--json")
    assert [check["id"] for check in json.loads(by_invoke.stdout)["checks"]] == ["gpu-arch"]


def test_list_and_explain_need_no_matrix(project: Project) -> None:
    (project.root / "matrix.toml").write_text("broken")
    listing = verify(project, "--list").stdout
    assert "two-stage-override  " in listing
    explained = verify(project, "--explain", "hook-files").stdout
    for word in ("Why: ", "Fix: "):
        assert word in explained


# --- with fewer tools ---


def without(project: Project, *programs: str) -> str:
    """A PATH on which some programs are missing."""
    tools = project.root.parent / "tools"
    tools.mkdir(exist_ok=True)
    for folder in os.environ["PATH"].split(":"):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            link = tools / program.name
            # A PATH may hold links that lead nowhere, and one folder under two names.
            if not any(name in program.name for name in programs) and not os.path.lexists(link):
                link.symlink_to(program)
    return str(tools)


def test_without_tools_their_checks_are_skipped_and_strict_fails(project: Project) -> None:
    env = {"PATH": without(project, "nix", "gcc", "nvcc")}
    done = project.run("invoke", "verify", "--json", env=env)
    assert done.returncode == 0, done.stdout
    states = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert states["nix-syntax"]["state"] == "passed", "tree-sitter answers"
    assert states["hook-files"]["state"] == "skipped"
    assert states["hook-files"]["reason"] == "Nix is not installed"
    assert states["compiler-flags"]["skipped"] == 6
    assert states["nvcc-architectures"]["reason"] == "no nvcc"
    strict = project.run("invoke", "verify", "--strict", env=env)
    assert strict.returncode == 1


def test_without_nix_tree_sitter_finds_the_missing_brace(broken: Project) -> None:
    env = {"PATH": without(broken, "nix")}
    done = broken.run("invoke", "verify", "--only", "syntax", "--json", env=env)
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["check"], finding["file"], finding["line"]) == (
        "nix-syntax",
        ".flox/pkgs/pytorch-python313-cpu-avx2.nix",
        1,
    )


def script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_an_nvcc_of_another_cuda_skips_the_check(project: Project) -> None:
    tools = project.root.parent / "tools"
    script(tools, "nvcc", 'echo "Cuda compilation tools, release 12.4, V12.4.131"; echo sm_90')
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = project.run("invoke", "verify", "--only", "compiler", "--json", env=env)
    states = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert states["nvcc-architectures"]["state"] == "skipped"
    assert states["nvcc-architectures"]["reason"] == "nvcc is 12.4, not that of the release"


def test_an_nvcc_that_lacks_an_architecture_is_a_finding(project: Project) -> None:
    tools = project.root.parent / "tools"
    script(tools, "nvcc", 'echo "release 13.0, V13.0.88"; echo sm_80 sm_86 sm_89 sm_90 sm_100')
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = project.run("invoke", "verify", "--only", "compiler", "--json", env=env)
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    assert [finding["expected"].split()[0] for finding in findings] == [
        "sm_103",
        "sm_110",
        "sm_120",
        "sm_121",
    ]
    matrix = (project.root / "matrix.toml").read_text().splitlines()
    assert [matrix[finding["line"] - 1] for finding in findings] == [
        "[gpu.sm103]",
        "[gpu.sm110]",
        "[gpu.sm120]",
        "[gpu.sm121]",
    ]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_compiler_without_a_temporary_folder_is_skipped_with_its_reason(project: Project) -> None:
    argv = ("invoke", "verify", "--json", "--only", "nvcc-architectures")
    done = project.run(*argv, env={"TMPDIR": str(project.root / "nowhere")})
    assert done.returncode == 0
    (check,) = json.loads(done.stdout)["checks"]
    assert (check["state"], check["skipped"], check["failed"]) == ("skipped", 9, 0)
    assert check["reason"].startswith("nvcc --list-gpu-code failed: nvcc fatal")
    assert "nowhere" in check["reason"]


needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None or os.uname().machine != "x86_64", reason="no gcc for x86-64"
)


@needs_gcc
def test_flags_that_gcc_refuses_or_that_promise_too_much_are_findings(project: Project) -> None:
    project.edit("matrix.toml", '"-mavx512bf16", "-mfma"]', '"-mavx512bf17", "-mfma"]')
    project.edit("matrix.toml", '["__AVX2__", ', '["__AVX2__", "__AVX512F__", ')
    done = verify(project, "--only", "compiler-flags", "--json")
    assert done.returncode == 1
    found = {f["line"]: f["found"] for f in json.loads(done.stdout)["findings"]}
    matrix = (project.root / "matrix.toml").read_text().splitlines()
    by_table = {matrix[line - 1]: text for line, text in found.items()}
    assert by_table["[cpu.avx2]"] == "__AVX512F__ not predefined"
    assert "-mavx512bf17" in by_table["[cpu.avx512bf16]"]


# --- for programs ---


def test_sarif_is_the_standards(broken: Project) -> None:
    done = verify(broken, "--sarif", "out.sarif")
    assert done.returncode == 1
    text = (broken.root / "out.sarif").read_text()
    Sarif.model_validate_json(text)
    if schema := os.environ.get("SARIF_SCHEMA"):  # the schema of OASIS, where one is at hand
        jsonschema.validate(json.loads(text), json.loads(Path(schema).read_text()))
    (run,) = json.loads(text)["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    uris = set()
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        location = result["locations"][0]["physicalLocation"]
        assert location["region"]["startLine"] >= 1
        uris.add(location["artifactLocation"]["uri"])
    assert f".flox/pkgs/pytorch-python313-{GPU}.nix" in uris


@needs_nix
def test_junit_has_a_case_for_every_recipe_a_check_saw(broken: Project) -> None:
    verify(broken, "--junit", "out.xml")
    root = ET.parse(broken.root / "out.xml").getroot()  # noqa: S314 - our own file
    suites = {suite.get("name"): suite for suite in root}
    stages = suites["two-stage-override"]
    assert (stages.get("tests"), stages.get("failures")) == (str(44), "1")
    failure = stages.find("testcase/failure")
    assert failure is not None
    assert "cpu-avx2.nix:1: found no (python3Packages.torch" in (failure.text or "")
    (failure,) = suites["nix-syntax"].findall("testcase/failure")
    assert "cpu-avx2.nix:" in (failure.text or "")
    skipped = suites["eval-jobs"].findall("testcase/skipped")
    assert [case.get("message") for case in skipped] == ["does not evaluate"]


@pytest.mark.parametrize("option", ["sarif", "junit"])
@pytest.mark.parametrize("name", ["matrix.toml", "README.md", "other", "link", "pipe", ".", ".."])
def test_a_report_replaces_no_file_but_a_report(project: Project, option: str, name: str) -> None:
    other = {"sarif": "junit", "junit": "sarif"}[option]
    assert verify(project, f"--{other}", "other", "--only", "gpu-arch").returncode == 0
    assert verify(project, f"--{option}", "report", "--only", "gpu-arch").returncode == 0
    (project.root / "link").symlink_to("report")
    os.mkfifo(project.root / "pipe")
    before = {p: p.read_bytes() for p in project.root.iterdir() if p.is_file()}
    done = verify(project, f"--{option}", name, "--only", "gpu-arch")
    assert done.returncode == 2
    assert f"{name}: " in error_line(done)
    assert "name a file" in error_line(done) or "name another file" in error_line(done)
    assert {p: p.read_bytes() for p in project.root.iterdir() if p.is_file()} == before


def test_both_reports_in_one_file_are_refused_before_anything_is_written(project: Project) -> None:
    done = verify(project, "--sarif", "x", "--junit", "./x", "--only", "gpu-arch")
    assert done.returncode == 2
    assert error_line(done) == "--sarif and --junit name one file; name two"
    assert not (project.root / "x").exists()


def test_reports_replace_earlier_ones_and_go_to_stdout(project: Project) -> None:
    for option in ("sarif", "junit"):
        for _ in range(2):
            assert verify(project, f"--{option}", option, "--only", "gpu-arch").returncode == 0
        (project.root / option).chmod(0o640)
    argv = ("--junit", "/dev/stdout", "--sarif", os.devnull, "--only", "gpu-arch")
    done = project.invoke_process("verify", *argv)
    assert done.returncode == 0
    assert "<testsuites" in done.stdout
    with (project.root / "log").open("w+") as log:
        log.write("before\n")
        log.flush()
        command = ["invoke", "verify", "--sarif", "/dev/stdout", "--only", "gpu-arch"]
        subprocess.run([sys.executable, "-m", *command], cwd=project.root, stdout=log, check=True)
        log.seek(0)
        assert log.read().startswith("before\n")


@needs_gcc
def test_a_gcc_that_compiles_nothing_is_skipped(project: Project, tmp_path: Path) -> None:
    gcc = tmp_path / "bin/gcc"
    gcc.parent.mkdir()
    gcc.write_text("#!/bin/sh\necho 'gcc: fatal error: cannot execute cc1' >&2\nexit 1\n")
    gcc.chmod(0o755)
    env = {"PATH": f"{gcc.parent}:{without(project, 'gcc')}"}
    done = project.run("invoke", "verify", "--only", "compiler-flags", "-v", env=env)
    assert done.returncode == 0, done.stdout
    assert "gcc cannot compile an empty program: gcc: fatal error" in " ".join(done.stdout.split())


@needs_nix
@pytest.mark.parametrize(("broken", "reason"), [("folder", "cannot be read"), ("", "is missing")])
def test_release_nix_names_the_recipe_that_it_lacks(
    project: Project, broken: str, reason: str
) -> None:
    recipe = project.recipe("cpu-avx2")
    recipe.unlink()
    if broken:
        os.mkfifo(recipe)
    done = verify(project, "--only", "eval-release-nix", "--json")
    (check,) = json.loads(done.stdout)["checks"]
    assert (check["state"], check["reason"]) == (
        "skipped",
        f"a recipe {reason}: .flox/pkgs/{recipe.name}",
    )


# --- another checkout ---


def test_a_checkout_with_the_same_matrix_is_verified(project: Project, tmp_path: Path) -> None:
    other = copied_project(tmp_path / "other")
    done = project.invoke("verify", "--root", str(other.root), "--only", "gpu-arch")
    assert done.returncode == 0, done.stderr


@needs_gcc
def test_junit_names_the_findings_of_a_compiler(project: Project) -> None:
    project.edit("matrix.toml", '["__AVX2__", ', '["__AVX2__", "__AVX512F__", ')
    verify(project, "--only", "compiler-flags", "--junit", "out.xml")
    root = ET.parse(project.root / "out.xml").getroot()  # noqa: S314 - our own file
    (failure,) = root.findall("testsuite/testcase/failure")
    assert "__AVX512F__ not predefined" in (failure.text or "")


def test_a_format_is_a_function_in_the_table_of_formats(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(result: VerificationResult, stream: TextIO) -> None:
        stream.write(f"{len(result.outcomes)} checks\n")

    monkeypatch.setitem(reports.FORMATS, "junit", write)
    result = verification.verify(matrix_reader.parse(ONE), project.root, only=["text"])
    reports.write_file("junit", result, project.root / "out.txt")
    assert (project.root / "out.txt").read_text() == f"{len(registry.checks_of('text'))} checks\n"


def test_every_format_has_its_option() -> None:
    options = {field.name for field in msgspec.structs.fields(VerifyOptions)}
    assert set(reports.FORMATS) <= options


def test_github_gets_annotations(broken: Project) -> None:
    done = broken.run("invoke", "verify", env={"GITHUB_ACTIONS": "true"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("::")]
    errors = [line for line in lines if line.startswith("::error file=")]
    assert any(f"file=.flox/pkgs/pytorch-python313-{GPU}.nix,line=" in line for line in errors)
    assert all("\x07" not in line for line in lines)
    matrix = (broken.root / "matrix.toml").read_text().splitlines()
    line = matrix.index("[pin.early_2026]") + 1
    assert lines[-1].startswith(f"::notice::matrix.toml:{line}: pin.early_2026")
    assert "::error" not in verify(broken).stdout
    assert "::error" in verify(broken, "--github").stdout


def test_control_characters_of_a_file_do_not_reach_the_terminal(broken: Project) -> None:
    broken.recipe("cpu-avx512").write_text('{ pkgs }: { pname = "\x1b[2Jgone"; }\n')
    assert "\x1b" not in verify(broken).stdout


def test_an_unknown_tarball_hash_is_a_note_once_and_does_not_make_strict_fail(
    project: Project,
) -> None:
    done = verify(project, "--only", "text", "--strict")
    assert done.returncode == 0
    assert "has no sha256" not in done.stdout
    shown = " ".join(verify(project, "--only", "text", "--strict", "-v").stdout.split())
    assert shown.count("pin.early_2026 has no sha256") == 1
    assert "`invoke prefetch --only nixpkgs` adds the hash" in shown


@pytest.mark.slow
def test_only_what_matters_is_shown_and_all_of_it_fits_80_columns(project: Project) -> None:
    tools = project.root.parent / "tools"
    tools.mkdir()
    for name in ("git", "env"):
        (tools / name).symlink_to(shutil.which(name) or "")
    without_nix = {"PATH": str(tools)}
    done = project.run("invoke", "verify", env=without_nix)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "Verification"
    assert lines[-2].startswith("44 of 44 recipes, ")
    assert [line for line in lines if line.startswith("skipped: ") and "Nix" in line]
    assert len(lines) < 12
    project.recipe("cuda13_0-sm120-avx512vnni").write_text("{ }: builtins.fetchGit ./.\n" * 9)
    for options in ([], ["-v"], ["--list"], ["--explain", "gpu-arch"]):
        for line in project.run("invoke", "verify", *options).stdout.splitlines():
            assert line == line.rstrip()
            assert len(line) <= 80 or " " not in line.strip(), line


@needs_nix
def test_a_nix_that_fails_is_a_failure_and_no_skip(project: Project) -> None:
    tools = project.root.parent / "tools"
    script(tools, "nix-instantiate", "echo error: the store is locked >&2; exit 1")
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = project.run("invoke", "verify", "cpu-*", "--only", "evaluation", env=env)
    assert done.returncode == 1
    assert "the store is locked" in done.stdout


@needs_nix
def test_a_recipe_cannot_hide_behind_a_false_announcement(project: Project) -> None:
    project.edit(
        ".flox/pkgs/pytorch-python313-cpu-avx2.nix",
        "  cudaSupport = false;",
        '  cudaSupport = builtins.trace "evaluating nobody" nixpkgs_pinned.nosuch;',
    )
    done = verify(project, "--only", "evaluation", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    (finding,) = document["findings"]
    assert finding["file"] == ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
    assert finding["found"] == "attribute 'nosuch' missing; it also stops 2 companions"
    states = {check["id"]: check["passed"] for check in document["checks"]}
    assert states["evaluates"] == 3 * 43


@needs_nix
def test_strict_fails_on_a_warning(project: Project) -> None:
    project.edit(".flox/pkgs/pytorch-python313-cpu-avx2.nix", '    system = "x86_64-linux";\n', "")
    assert verify(project, "--only", "evaluation").returncode == 0
    done = verify(project, "--only", "evaluation", "--strict")
    assert done.returncode == 1
    last = "No errors, but --strict also fails on 1 warning and 0 skipped checks."
    assert done.stdout.splitlines()[-1] == last
    project.recipe("cuda13_0-sm90-avx2").write_text("{ }")
    done = verify(project, "--only", "evaluation", "--strict")
    assert "--strict" not in done.stdout.splitlines()[-1]


# --- against the pinned nixpkgs ---


@needs_nix
def test_without_network_and_store_pinned_is_one_line(project: Project) -> None:
    done = verify(project, "cpu-avx2", "--pinned", "--only", "evaluation")
    assert done.returncode == 2
    assert "cannot be downloaded" in error_line(done)
    assert len(error_line(done)) < 300


@pytest.fixture
def pinned(project: Project) -> tuple[Project, dict[str, str]]:
    """A project whose pin lies in a store of its own: the model, in the place of nixpkgs."""
    store = {"NIX_REMOTE": f"local?root={project.root.parent}/store"}
    source = project.root.parent / "source"
    shutil.copytree(recipe_evaluation.MODEL, source)

    def nix(*argv: str) -> str:
        done = subprocess.run(
            argv, env={**os.environ, **store}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    nix("nix-store", "--add-fixed", "--recursive", "sha256", str(source))
    digest = nix("nix-hash", "--type", "sha256", "--base32", str(source))
    sri = nix("nix", "--extra-experimental-features", "nix-command", "hash", "to-sri",
              "--type", "sha256", digest)  # fmt: skip
    project.edit("matrix.toml", 'sha256 = ""', f'sha256 = "{sri}"')
    rev = "6a030d535719c5190187c4cec156f335e95e3211"
    project.edit("matrix.toml", 'sha256_of = ""', f'sha256_of = "{rev}"')
    assert project.invoke("all").returncode == 0
    return project, store


@needs_nix
def test_pinned_fetches_for_real_and_gives_derivations(
    pinned: tuple[Project, dict[str, str]],
) -> None:
    project, store = pinned
    done = project.run("invoke", "verify", "--pinned", "--json", env=store)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["findings"] == []
    derivations = document["derivations"]
    assert len(set(derivations.values())) == len(derivations) == 44
    assert all(path.endswith("-2.10.0.drv") for path in derivations.values())


NIX_2_8: Final = """warning: the group 'nixbld' does not exist
trace: evaluating a.nix
trace: evaluation warning: torch is old
error: attribute 'nosuch' missing

       at /checkout/a.nix:2:16:

            1| { a =

       … while evaluating the attribute 'a'

       at /checkout/a.nix:1:3:
(use '--show-trace' to show detailed location information)
"""
NIX_2_34: Final = """warning: the group 'nixbld' does not exist
trace: evaluating a.nix
evaluation warning: torch is old
error:
       … while evaluating list element at index 0
         at /checkout/a.nix:1:3:
            1| { a =
             |   ^

       error: attribute 'nosuch'
       missing
       at /checkout/a.nix:2:16:
            1| { a =
             |                ^
"""


@pytest.mark.parametrize("said", [NIX_2_8, NIX_2_34], ids=["2.8", "2.34"])
def test_errors_and_warnings_of_old_and_new_nix_are_read(said: str) -> None:
    assert nix_evaluation.message_of(said) == "attribute 'nosuch' missing"
    assert recipe_evaluation.warnings_of(said, ["a.nix"]) == {"a.nix": ["torch is old"]}


@pytest.mark.slow
@needs_nix
def test_pinned_finds_what_is_wrong_and_what_nix_warns_of(
    pinned: tuple[Project, dict[str, str]],
) -> None:
    project, store = pinned
    gpu = f".flox/pkgs/pytorch-python313-{GPU}.nix"
    project.edit(gpu, "gpuTargets = [ gpuArchSM ]", 'gpuTargets = [ "sm_90" ]')
    project.edit(
        ".flox/pkgs/pytorch-python313-cpu-avx2.nix",
        "  patches = [];\n\n  # Only",
        '  patches = builtins.trace "warning: this is old" [];\n\n  # Only',
    )
    done = project.run(
        *("invoke", "verify", "--pinned", "--json"),
        *("--only", "evaluation", "--only", "hooks"),
        env=store,
    )
    assert done.returncode == 1
    found = {(f["check"], f["severity"]) for f in json.loads(done.stdout)["findings"]}
    assert found == {("hook-environment", "error"), ("eval-warnings", "warning")}


@needs_nix
def test_an_undefined_name_in_an_import_fails_its_own_recipe_only(
    pinned: tuple[Project, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipes share imports of nixpkgs; a broken one does not stop the evaluation of the others."""
    project, store = pinned
    monkeypatch.setenv("NIX_REMOTE", store["NIX_REMOTE"])
    recipe = ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
    project.edit(recipe, '    system = "x86_64-linux";', "    system = nosuch;")
    variants = matrix_reader.load(project.root).variants
    found = derivations.evaluate(project.root, variants)
    assert list(found.failures) == [Path(recipe).stem]
    assert "undefined variable 'nosuch'" in found.failures[Path(recipe).stem]
    assert len(found.derivations) == 43


# --- for others' pipelines ---


@pytest.mark.slow
def test_the_example_workflow_runs_commands_that_exist(project: Project) -> None:
    text = (PROJECT / "examples/github-actions.yml").read_text()
    commands = re.findall(r"(?m)^\s+run: ((?:invoke|nox) .*)$", text)
    assert commands == [
        "invoke all --check",
        "nox -s verify -- --sarif verify.sarif --junit verify.xml",
    ]
    for command in commands:
        assert project.run(*command.split()).returncode == 0
    assert (project.root / "verify.sarif").exists()


@pytest.mark.slow
def test_the_hooks_run_commands_that_exist(project: Project) -> None:
    text = (PROJECT / ".pre-commit-hooks.yaml").read_text()
    entries = re.findall(r"(?m)^  entry: (.*)$", text)
    assert entries == ["invoke all --check", "nox -s verify"]
    for entry in entries:
        assert project.run(*entry.split()).returncode == 0
    for pattern in re.findall(r"(?m)^  files: (.*)$", text):
        for folder in ("", "companions/", "releases/cuda12_8/"):
            assert re.search(pattern, f"{folder}.flox/pkgs/pytorch-python313-cpu-avx2.nix")
        assert not re.search(pattern, "tests/conftest.py")
