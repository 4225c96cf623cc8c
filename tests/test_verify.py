"""The verify command: selections, strictness, reports for programs, and the pinned category."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import ONE, PROJECT, Project, copied_project, error_line, needs_nix, unfolded
from one_release import written_out

from build_pytorch.base.console import Screen
from build_pytorch.matrix import matrix_reader
from build_pytorch.nix import derivations, evaluation, quoting
from build_pytorch.tasks.reference_pages import reference_pages
from build_pytorch.verify import recipe_facts, reports, verification
from build_pytorch.verify.verification import VerificationResult

GPU = "cuda13_0-sm90-avx512"
CPU_RECIPE = ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
MATRIX = matrix_reader.parse(ONE)
LINES = ONE.splitlines()

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None or os.uname().machine != "x86_64", reason="no gcc for x86-64"
)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that no test changes."""
    return copied_project(tmp_path_factory.mktemp("clean") / "project")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a recipe for the wrong architecture, and one that is no Nix."""
    project = copied_project(tmp_path_factory.mktemp("broken") / "project")
    project.edit(f".flox/pkgs/pytorch-python313-{GPU}.nix", '"9.0"', '"8.9"')
    project.recipe("cpu-avx2").write_text('{ pkgs }: pkgs.hello "\x07%\n<&>\n')
    project.recipe("cpu-avx512").write_text('{ pkgs }: { pname = "\x1b[2Jgone"; }\n')
    return project


@pytest.fixture(scope="module")
def broken_result(broken: Project) -> VerificationResult:
    """What a verification of the broken project finds."""
    return verification.verify(MATRIX, broken.root, pages=reference_pages)


def verify(project: Project, *argv: str) -> subprocess.CompletedProcess[str]:
    return project.invoke("verify", *argv)


# --- what to look at ---


@needs_nix
def test_a_selection_looks_at_those_recipes_only(broken: Project) -> None:
    assert verify(broken, "--packages", "sm120-*", "--only", "text").returncode == 0
    done = verify(broken, "--packages", "sm90-*", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["variants"] == [
        f"sm90-{isa}" for isa in ("avx2", "avx512", "avx512bf16", "avx512vnni")
    ]
    assert {finding["path"] for finding in document["findings"]} == {
        f".flox/pkgs/pytorch-python313-{GPU}.nix",
        f"companions/.flox/pkgs/torchvision-python313-{GPU}.nix",
        f"companions/.flox/pkgs/torchaudio-python313-{GPU}.nix",
    }
    assert "missing-recipe" not in {check["id"] for check in document["checks"]}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--packages", "sm91-*"], 'no package matches "sm91-*"'),
        (["--packages", "sm90-avx51"], 'did you mean "sm90-avx512"?'),
        (["--only", "gpu-arc"], 'did you mean "gpu-arch"?'),
        (["--packages", "sm90-*", "--only", "missing-recipe"], "these checks need all variants"),
        (["--explain", "hoks"], 'did you mean "hooks"?'),
        (["--only", "toolchain"], 'no check or category "toolchain"'),
    ],
)
def test_selecting_nothing_is_bad_input(clean: Project, argv: list[str], message: str) -> None:
    done = verify(clean, *argv)
    assert done.returncode == 2
    assert message in error_line(done)


def test_only_takes_checks_and_categories(clean: Project) -> None:
    done = verify(clean, "--only", "gpu-arch,compiler", "--json")
    ids = [check["id"] for check in json.loads(done.stdout)["checks"]]
    assert ids == ["gpu-arch", "compiler-flags", "nvcc-architectures"]


# --- with fewer tools ---


def only(folder: Path, *programs: str) -> dict[str, str]:
    """A PATH with these programs alone."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        (folder / program).symlink_to(shutil.which(program) or "missing")
    return {"PATH": str(folder)}


def script(folder: Path, name: str, text: str) -> dict[str, str]:
    """A PATH with a program of our own in front."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def checks_in(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def test_without_tools_their_checks_are_skipped_and_strict_fails(
    clean: Project, tmp_path: Path
) -> None:
    env = only(tmp_path / "tools", "git", "env")
    done = clean.run("invoke", "verify", "--json", "--strict", env=env)
    assert done.returncode == 1, done.stdout
    assert json.loads(done.stdout)["findings"] == []
    states = checks_in(done)
    for name in ("evaluates", "hook-files"):
        assert states[name]["state"] == "skipped"
        assert states[name]["reason"] == "Nix is not installed (Debian: nix-bin)"
    assert states["compiler-flags"]["reason"].startswith("no gcc for ")
    assert states["nvcc-architectures"]["reason"] == "no nvcc"


def test_an_nvcc_of_another_cuda_skips_the_check(clean: Project, tmp_path: Path) -> None:
    said = 'echo "Cuda compilation tools, release 12.4, V12.4.131"; echo sm_90'
    argv = ("invoke", "verify", "--only", "nvcc-architectures", "--json")
    (check,) = checks_in(clean.run(*argv, env=script(tmp_path, "nvcc", said))).values()
    assert check["state"] == "skipped"
    assert check["reason"] == "nvcc is 12.4, not that of the release"


def test_an_nvcc_that_lacks_an_architecture_is_a_finding(clean: Project, tmp_path: Path) -> None:
    said = 'echo "release 13.0, V13.0.88"; echo sm_80 sm_86 sm_89 sm_90 sm_100'
    argv = ("invoke", "verify", "--only", "nvcc-architectures", "--json")
    done = clean.run(*argv, env=script(tmp_path, "nvcc", said))
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    found = sorted(f["expected"].split()[0] for f in findings)
    assert found == [f"sm_{code}" for code in (103, 110, 120, 121)]


@needs_gcc
def test_flags_that_gcc_refuses_or_that_promise_too_much_are_findings(clean: Project) -> None:
    text = written_out(ONE).replace('"-mavx512bf16", "-mfma"]', '"-mavx512bf17", "-mfma"]')
    text = text.replace('["__AVX2__", ', '["__AVX2__", "__AVX512F__", ', 1)
    matrix = matrix_reader.parse(text)
    result = verification.verify(matrix, clean.root, only=["compiler-flags"])
    assert result.exit_code == 1
    by_table = {text.splitlines()[f.line - 1]: f.found for f in result.findings}
    assert by_table["[cpu.avx2]"] == "__AVX512F__ not predefined"
    assert "-mavx512bf17" in by_table["[cpu.avx512bf16]"]


# --- for programs ---


def test_github_gets_annotations(broken_result: VerificationResult) -> None:
    stream = io.StringIO()
    reports.print_annotations(broken_result, stream)
    lines = stream.getvalue().splitlines()
    errors = [line for line in lines if line.startswith("::error file=")]
    assert any(f"file=.flox/pkgs/pytorch-python313-{GPU}.nix,line=" in line for line in errors)
    assert all("\x07" not in line for line in lines)
    line = LINES.index("[pin.early_2026]") + 1
    assert lines[-1].startswith(f"::notice::matrix.toml:{line}: pin.early_2026")


def test_github_is_known_by_its_environment(broken: Project) -> None:
    words = ("invoke", "verify", "--only", "gpu-arch")
    assert "::error" not in broken.run(*words).stdout
    assert "::error" in broken.run(*words, env={"GITHUB_ACTIONS": "true"}).stdout


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    broken_result: VerificationResult,
) -> None:
    stream = io.StringIO()
    reports.show(broken_result, Screen(stream))
    assert "cpu-avx512.nix" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_an_unknown_tarball_hash_is_a_note_once_and_does_not_make_strict_fail(
    clean: Project,
) -> None:
    done = verify(clean, "--only", "text", "--strict")
    assert done.returncode == 0
    assert "has no sha256" not in done.stdout
    shown = " ".join(verify(clean, "--only", "text", "--strict", "-v").stdout.split())
    assert shown.count("pin.early_2026 has no sha256") == 1
    assert "`invoke prefetch --only nixpkgs` adds the hash" in shown


@pytest.mark.slow
def test_only_what_matters_is_shown_and_all_of_it_fits_80_columns(project: Project) -> None:
    env = only(project.root.parent / "tools", "git", "env")
    done = project.run("invoke", "verify", env=env)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert any(line.startswith("44 of 44 recipes, ") for line in lines)
    assert "Nix is not installed (Debian: nix-bin)" in unfolded(done.stdout)
    assert len(lines) < 6
    project.recipe("cuda13_0-sm120-avx512vnni").write_text("{ }: builtins.fetchGit ./.\n" * 9)
    for options in ([], ["-v"], ["--explain", "gpu-arch"]):
        for line in project.run("invoke", "verify", *options).stdout.splitlines():
            assert line == line.rstrip()
            assert len(line) <= 80 or " " not in line.strip(), line


@needs_nix
def test_a_nix_that_fails_is_a_failure_and_no_skip(clean: Project, tmp_path: Path) -> None:
    env = script(tmp_path, "nix-instantiate", "echo error: the store is locked >&2; exit 1")
    done = clean.run("invoke", "verify", "--packages", "cpu-avx2", "--only", "evaluation", env=env)
    assert done.returncode == 1
    assert "the store is locked" in done.stdout


@needs_nix
def test_a_recipe_cannot_hide_behind_a_false_announcement(clean: Project) -> None:
    trace = 'cudaSupport = builtins.trace "facts nobody" nixpkgs_pinned.nosuch;'
    with clean.edited(CPU_RECIPE, "cudaSupport = false;", trace):
        done = verify(clean, "--packages", "cpu-*", "--only", "evaluation", "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["path"] == CPU_RECIPE
    assert finding["found"] == "attribute 'nosuch' missing; it also stops 2 companions"
    states = checks_in(done)
    assert states["evaluates"]["state"] == "failed"
    assert states["eval-names"]["state"] == "skipped"
    assert {check["reason"] for check in states.values()} == {"3 recipes not evaluated"}


@needs_nix
def test_strict_fails_on_a_warning(clean: Project) -> None:
    words = ("--packages", "cpu-avx2", "--only", "evaluation")
    with clean.edited(CPU_RECIPE, '    system = "x86_64-linux";\n', ""):
        assert verify(clean, *words).returncode == 0
        done = verify(clean, *words, "--strict")
    assert done.returncode == 1
    assert unfolded(done.stdout).endswith("; --strict fails on 1 warning")


# --- against the pinned nixpkgs ---


@needs_nix
def test_without_network_and_store_pinned_is_one_line(clean: Project) -> None:
    done = verify(clean, "--packages", "cpu-avx2", "--pinned", "--only", "evaluation")
    assert done.returncode == 2
    assert "cannot be downloaded" in error_line(done)
    assert len(error_line(done)) < 300


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, str]]:
    """A project whose pin lies in a store of its own: the model, in the place of nixpkgs."""
    project = copied_project(tmp_path_factory.mktemp("pinned") / "project")
    store = {"NIX_REMOTE": f"local?root={project.root.parent}/store"}
    source = project.root.parent / "source"
    shutil.copytree(recipe_facts.MODEL, source)

    def nix(*argv: str) -> str:
        env = {**os.environ, **store}
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout

    nix("nix-store", "--add-fixed", "--recursive", "sha256", str(source))
    digest = nix("nix-hash", "--type", "sha256", "--base32", str(source))
    rev = 'rev = "6a030d535719c5190187c4cec156f335e95e3211"\n'
    hash_ = f'sha256 = "{quoting.to_sri(digest)}"\nsha256_of{rev.removeprefix("rev")}'
    project.edit("matrix.toml", rev, f"{rev}{hash_}")
    for phase in ("phase2", "phase3", "phase4", "phase5"):
        assert project.invoke(phase).returncode == 0
    return project, store


@needs_nix
def test_pinned_fetches_for_real_and_gives_derivations(
    pinned: tuple[Project, dict[str, str]],
) -> None:
    project, store = pinned
    words = ("invoke", "verify", "--pinned", "--json", "--only", "evaluation,hooks")
    done = project.run(*words, env=store)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["findings"] == []
    skipped = {check["id"] for check in document["checks"] if check["state"] != "passed"}
    assert skipped == {"eval-pin", "eval-nixpkgs"}, "only the model records them"


NIX_2_8: Final = """warning: the group 'nixbld' does not exist
trace: evaluation warning: torch is old
trace: facts {"id":"a.nix","facts":{}}
error: attribute 'nosuch' missing

       at /checkout/a.nix:2:16:

            1| { a =

       … while evaluating the attribute 'a'

       at /checkout/a.nix:1:3:
(use '--show-trace' to show detailed location information)
"""
NIX_2_34: Final = """warning: the group 'nixbld' does not exist
evaluation warning: torch is old
trace: facts {"id":"a.nix","facts":{}}
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


def test_the_place_of_a_function_hides_no_argument() -> None:
    """As Nix 2.8 said it of the torch of `nox -s whole`."""
    said = """error: anonymous function at /nix/store/m-source/torch.nix:4:1 called with unexpected argument 'newer'

       at /nix/store/m-source/python.nix:31:34:

           30|       # The attribute is torch: the set has no `pytorch`.
(use '--show-trace' to show detailed location information)
"""  # noqa: E501
    wanted = "anonymous function called with unexpected argument 'newer'"
    assert evaluation.message_of(said) == wanted


@pytest.mark.parametrize("said", [NIX_2_8, NIX_2_34], ids=["2.8", "2.34"])
def test_errors_and_warnings_of_old_and_new_nix_are_read(said: str) -> None:
    assert evaluation.message_of(said) == "attribute 'nosuch' missing"
    assert evaluation.printed(said)["a.nix"].warnings == ["torch is old"]


@pytest.mark.slow
@needs_nix
def test_pinned_finds_what_is_wrong_and_what_nix_warns_of(
    pinned: tuple[Project, dict[str, str]],
) -> None:
    project, store = pinned
    gpu = f".flox/pkgs/pytorch-python313-{GPU}.nix"
    warning = '  patches = builtins.trace "warning: this is old" [];\n\n  # Only'
    words = ("invoke", "verify", "--pinned", "--json", "--only", "evaluation,hooks")
    with (
        project.edited(gpu, "gpuTargets = [ gpuArchSM ]", 'gpuTargets = [ "sm_90" ]'),
        project.edited(CPU_RECIPE, "  patches = [];\n\n  # Only", warning),
    ):
        done = project.run(*words, env=store)
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
    variants = [v for v in matrix_reader.load(project.root).variants if v.gpu is None]
    with project.edited(CPU_RECIPE, '    system = "x86_64-linux";', "    system = nosuch;"):
        found, failures = derivations.evaluate(project.root, variants)
    assert list(failures) == [Path(CPU_RECIPE).stem]
    assert "undefined variable 'nosuch'" in failures[Path(CPU_RECIPE).stem]
    assert len(found) == len(variants) - 1


# --- for others' pipelines ---


@pytest.mark.slow
def test_the_example_workflow_runs_commands_that_exist(project: Project) -> None:
    text = (PROJECT / "examples/github.yml").read_text()
    commands = re.findall(r"(?m)^\s+run: \.venv/bin/((?:invoke|nox) .*)$", text)
    assert commands == [
        "invoke all --check",
        'invoke verify --against "origin/$BASE"',
        "nox -s verify",
        'nox -s "build($VARIANT)" -- --backend nix',
    ]
    project.commit()
    for command in commands[:-1]:
        words = command.replace('"origin/$BASE"', "HEAD").split()
        assert project.run(*words).returncode == 0
