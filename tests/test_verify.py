"""Verification: a clean tree passes, each check has a tree that trips it, and the command."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import (
    LEGACY,
    NIX,
    ONE,
    PROJECT,
    Project,
    copied_project,
    error_line,
    needs_nix,
)
from mutations import swap
from one_release import written_out
from world import Site, prepared_project

from build_pytorch.base.console import Screen
from build_pytorch.matrix import matrix_reader
from build_pytorch.nix import evaluation, store
from build_pytorch.tasks.phases import reference_pages
from build_pytorch.verify import check, reports, verification
from build_pytorch.verify.verification import VerificationResult

Edit = Callable[[str], str | bytes | None]

GPU = "cuda13_0-sm90-avx512"
GPU_RECIPE = f".flox/pkgs/pytorch-python313-{GPU}.nix"
CPU_RECIPE = ".flox/pkgs/pytorch-python313-cpu-avx2.nix"
PAGE = "docs/reference/releases.md"
MATRIX = matrix_reader.parse(ONE)

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None or os.uname().machine != "x86_64", reason="no gcc for x86-64"
)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which each test restores what it changed."""
    project = copied_project(tmp_path_factory.mktemp("clean") / "project")
    project.own_program()
    return project


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a recipe for the wrong architecture, and one that is no Nix."""
    project = copied_project(tmp_path_factory.mktemp("broken") / "project")
    project.edit(GPU_RECIPE, '"9.0"', '"8.9"')
    project.recipe("cpu-avx2").write_text('{ pkgs }: pkgs.hello "\x07%\n<&>\n')
    project.recipe("cpu-avx512").write_text('{ pkgs }: { pname = "\x1b[2Jgone"; }\n')
    return project


def verified(root: Path, *only: str) -> VerificationResult:
    return verification.verify(MATRIX, root, only=only, pages=reference_pages())


def verify(project: Project, *argv: str) -> subprocess.CompletedProcess[str]:
    return project.invoke("verify", *argv)


# --- for each check a tree that trips it ---


def gone(_: str) -> None:
    """Remove the file."""


BROKEN: list[tuple[str, str, Edit]] = [
    ("extra-recipe", ".flox/pkgs/pytorch-python313-cuda13_0-sm75-avx2.nix", lambda _: "{ }\n"),
    ("missing-recipe", GPU_RECIPE, gone),
    ("missing-recipe", GPU_RECIPE, lambda _: b"\xff\xfe"),
    ("extra-recipe", ".flox/pkgs/below/hello.nix", lambda _: "{ hello }: hello\n"),
    ("substitution-fails", GPU_RECIPE, swap("--replace-fail 'extras", "--replace-warn 'extras")),
    ("shell-files", "nix/compiler_cache.sh", lambda text: text + "if\n"),
    ("substitution-fails", GPU_RECIPE, swap("    substituteInPlace", "    sed -i s/a/b/ setup.py\n    s")),
    ("pattern-lines", GPU_RECIPE, swap("let\n", "let\n  # not cudaPackages_13 here\n")),
    ("pattern-lines", CPU_RECIPE, swap("let\n", "let\n  # final.cudaPackages_13\n")),
    ("retired-pin", GPU_RECIPE, swap("let\n", "let\n  # was fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3\n")),
    ("magma-enabled", GPU_RECIPE, swap('"-DCUDA_VERSION=13.0"', '"-DUSE_MAGMA=OFF"')),
    ("magma-enabled", GPU_RECIPE, swap("let\n", "let\n  filterMagma = x: x;\n")),
    ("gpu-arch", GPU_RECIPE, swap('gpuArchNum = "90"', 'gpuArchNum = "9.0"')),
    ("gpu-arch", GPU_RECIPE, swap('  gpuArchSM = "9.0"', '  # gpuArchSM = "9.0"')),
    ("two-stage-override", GPU_RECIPE, swap("torch.override {", "torch.overide {")),
    ("generated-recipes", GPU_RECIPE, swap("# CPU instruction set", "# The CPU")),
    ("generated-docs", "README.md", swap("**44 variants**", "**43 variants**")),
    ("generated-docs", "README.md", swap("<!-- end generated: counts -->", "")),
    ("generated-docs", PAGE, swap("44 variants", "36 variants")),
    ("generated-docs", PAGE, gone),
    ("generated-docs", "docs/reference/checks.md", swap("# The checks", "# Checks")),
    ("generated-docs", "build_pytorch/matrix/matrix.schema.json", swap('"family"', '"famly"')),
]  # fmt: skip


def put(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)


@pytest.mark.parametrize(
    ("id_", "path", "edit"), BROKEN, ids=[f"{n}-{it[0]}" for n, it in enumerate(BROKEN)]
)
def test_a_broken_tree_trips_the_check(clean: Project, id_: str, path: str, edit: Edit) -> None:
    file = clean.root / path
    before = file.read_bytes() if file.exists() else None
    after = edit((before or b"").decode())
    put(file, after.encode() if isinstance(after, str) else after)
    try:
        assert id_ in {finding.check for finding in verified(clean.root, id_).findings}
    finally:
        put(file, before)


ELSEWHERE = {
    "compiler-flags": "test_verify.py",
    "nvcc-architectures": "test_verify.py",
    "eval-release-nix": "test_release_nix.py",
    "flox-environment": "test_bump.py",
    "eval-distinct": "test_mutations.py",
}
"""Checks that other tests trip; the table of mutations names most of the rest."""


def test_every_check_has_a_case_in_which_it_fails() -> None:
    caught = json.loads((PROJECT / "tests/fixtures/mutations.json").read_text())
    tripped = {id_ for checks in caught.values() for id_ in checks} | {it[0] for it in BROKEN}
    assert check.chosen().keys() - tripped - ELSEWHERE.keys() == set()
    assert all(id_ in (PROJECT / "tests" / file).read_text() for id_, file in ELSEWHERE.items())


def test_a_clean_tree_has_no_finding_and_its_comments_count_for_the_digest_only(
    clean: Project,
) -> None:
    result = verified(clean.root)
    assert (result.findings, result.exit_code) == ([], 0)
    with clean.edited(GPU_RECIPE, "let\n", "let\n\n  # A note of our own\n"):
        found = verified(clean.root, "text", "generated").findings
    assert {finding.check for finding in found} == {"generated-recipes"}


@needs_nix
def test_after_20_recipes_that_end_nix_one_finding_stands_for_the_others(project: Project) -> None:
    for recipe in project.pkgs.glob("*.nix"):  # a missing attribute cannot be caught
        recipe.write_text(recipe.read_text().replace("\nlet\n", "\nassert builtins.no;\nlet\n"))
    findings = verified(project.root, "evaluates").findings
    *first, last = (finding.found for finding in findings)
    assert len(first) == evaluation.MOST_ERRORS
    assert all(finding.line > 10 for finding in findings[:-1])
    assert all("attribute 'no' missing" in found for found in first), first
    stopped = sum(map(int, re.findall(r"it also stops (\d+) companion", "\n".join(first))))
    number = len(MATRIX.packages) - len(first) - stopped  # release.nix needs all of them
    why = f"{len(first)} other recipes end Nix; correct these, then `invoke verify` goes on"
    assert last == f"{number} recipes not evaluated: {why}"


@needs_nix
def test_the_hand_written_canonical_recipe_builds_the_right_package(project: Project) -> None:
    name = "pytorch-python313-cuda13_0-sm120-avx512.nix"
    (project.pkgs / name).write_bytes((LEGACY / name).read_bytes())
    findings = verified(project.root).findings
    assert {f.check for f in findings if f.severity == "error"} == set()
    # Its MAX_JOBS has no effect, and its import leaves the system to the machine.
    # It has not what later builds taught: CUPTI, a stub by path, a log with the steps of Ninja,
    # a package that is not broken.
    assert {f.check for f in findings} <= {
        *("hook-jobs", "hook-files", "hook-environment", "eval-nixpkgs", "hook-ends"),
        *("eval-passthru", "eval-meta"),
    }
    project.edit(f".flox/pkgs/{name}", '"12.0"', '"9.0"')
    assert verified(project.root, "gpu-arch").findings, "kept and looked at all the same"


def test_a_tree_without_anything_is_findings_not_success(tmp_path: Path) -> None:
    result = verified(tmp_path)
    assert result.exit_code == 1
    states = {outcome.id: outcome.state for outcome in result.checks}
    assert states["missing-recipe"] == "failed"
    assert states["gpu-arch"] == states["two-stage-override"] == "skipped"
    without_recipes = {*check.chosen(["matrix", "compiler", "extra-recipe", "shell-files"])}
    assert {id_ for id_, state in states.items() if state == "passed"} <= without_recipes


def test_findings_have_file_line_found_expected_and_fix(clean: Project) -> None:
    with clean.edited(GPU_RECIPE, 'gpuArchSM = "9.0"', 'gpuArchSM = "8.9"'):
        done = verify(clean, "--json", "--only", "gpu-arch,generated-recipes")
    assert done.returncode == 1
    findings = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
    line = clean.recipe(GPU).read_text().split("gpuArchSM")[0].count("\n") + 1
    assert findings["gpu-arch"] == {
        "check": "gpu-arch",
        "severity": "error",
        "path": GPU_RECIPE,
        "line": line,
        "found": 'gpuArch: gpuArchSM = "8.9" in place of gpuArchSM = "9.0"',
        "expected": 'gpuArch: gpuArchNum = "90", gpuArchSM = "9.0"',
        "fix": "run `invoke phase2 --force`, or: use the dotted capability for gpuArchSM, "
        "its digits for gpuArchNum",
    }
    assert findings["generated-recipes"]["path"] == GPU_RECIPE
    done = verify(clean, "--only", "gpu-arch,compiler", "--json")
    assert [*checks_in(done)] == ["gpu-arch", "compiler-flags", "nvcc-architectures"]


# --- what to look at ---


@needs_nix
def test_a_selection_looks_at_those_recipes_only(broken: Project) -> None:
    assert verify(broken, "--packages", "sm120-*", "--only", "text").returncode == 0
    done = verify(broken, "--packages", "sm90-*", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    isas = ("avx2", "avx512", "avx512bf16", "avx512vnni")
    assert document["variants"] == [f"sm90-{isa}" for isa in isas]
    assert {finding["path"] for finding in document["findings"]} == {
        GPU_RECIPE,
        f"companions/.flox/pkgs/torchvision-python313-{GPU}.nix",
        f"companions/.flox/pkgs/torchaudio-python313-{GPU}.nix",
    }
    assert "missing-recipe" not in {it["id"] for it in document["checks"]}


def test_selecting_nothing_is_bad_input(clean: Project) -> None:
    for argv, message in {
        "--packages sm91-*": 'no package matches "sm91-*"',
        "--packages sm90-avx51": 'did you mean "sm90-avx512"?',
        "--only gpu-arc": 'did you mean "gpu-arch"?',
        "--packages sm90-* --only missing-recipe": "these checks need all variants",
        "--explain hoks": 'did you mean "hooks"?',
        "--only toolchain": 'no check or category "toolchain"',
        "--packages cpu-avx2 --pinned --only evaluation": "cannot be downloaded" if NIX else "Nix",
    }.items():
        done = verify(clean, *argv.split())
        assert done.returncode == 2
        assert message in error_line(done)
        assert len(error_line(done)) < 300


# --- with fewer tools ---


def only(folder: Path, *programs: str) -> dict[str, str]:
    """A PATH with these programs alone."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        (folder / program).symlink_to(shutil.which(program) or "missing")
    return {"PATH": str(folder)}


def script(folder: Path, name: str, text: str) -> dict[str, str]:
    """A PATH with a program of our own in front."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def checks_in(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {it["id"]: it for it in json.loads(done.stdout)["checks"]}


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


def test_an_nvcc_is_asked_for_the_architectures_of_its_own_cuda(
    clean: Project, tmp_path: Path
) -> None:
    for said, reason, lacking in (
        ("release 12.4, V12.4.131", "nvcc is 12.4, not that of the release", []),
        ("release 13.0, V13.0.88", "", ["sm_103", "sm_110", "sm_120", "sm_121"]),
    ):
        env = script(tmp_path, "nvcc", f'echo "{said}"; echo sm_80 sm_86 sm_89 sm_90 sm_100')
        done = clean.run("invoke", "verify", "--only", "nvcc-architectures", "--json", env=env)
        (found,) = checks_in(done).values()
        assert (found["state"], found["reason"]) == ("skipped" if reason else "failed", reason)
        findings = json.loads(done.stdout)["findings"]
        assert sorted(f["expected"].split()[0] for f in findings) == lacking


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


# --- reports ---


def test_github_gets_annotations_and_a_terminal_no_control_characters(broken: Project) -> None:
    result = verified(broken.root)
    reports.print_annotations(result, stream := io.StringIO())
    lines = stream.getvalue().splitlines()
    errors = [line for line in lines if line.startswith("::error file=")]
    assert any(f"file={GPU_RECIPE},line=" in line for line in errors)
    assert all("\x07" not in line for line in lines)
    line = ONE.splitlines().index("[pin.early_2026]") + 1
    assert lines[-1].startswith(f"::notice::matrix.toml:{line}: pin.early_2026")
    words = ("invoke", "verify", "--only", "gpu-arch")
    assert "::error" not in broken.run(*words).stdout
    assert "::error" in broken.run(*words, env={"GITHUB_ACTIONS": "true"}).stdout
    reports.show(result, Screen(stream := io.StringIO()))
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


# --- what Nix says ---


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
    assert (states["evaluates"]["state"], states["eval-names"]["state"]) == ("failed", "skipped")
    assert {it["reason"] for it in states.values()} == {"3 recipes not evaluated"}


NIX_2_8: Final = """warning: the group 'nixbld' does not exist
trace: evaluation warning: torch is old
trace: facts {"id":"a.nix","facts":{}}
error: attribute 'nosuch' missing

       at /checkout/a.nix:2:16:

            1| { a =

       … while evaluating the attribute 'a'
(use '--show-trace' to show detailed location information)
"""
NIX_2_34: Final = """warning: the group 'nixbld' does not exist
evaluation warning: torch is old
trace: facts {"id":"a.nix","facts":{}}
error:
       … while evaluating list element at index 0
         at /checkout/a.nix:1:3:
            1| { a =

       error: attribute 'nosuch'
       missing
       at /checkout/a.nix:2:16:
"""
OF_A_FUNCTION: Final = """error: anonymous function at /m/torch.nix:4:1 called with unexpected argument 'newer'

       at /m/python.nix:31:34:
"""
"""As Nix 2.8 said it of the torch of `nox -s whole`."""


def test_errors_and_warnings_of_old_and_new_nix_are_read() -> None:
    for said in (NIX_2_8, NIX_2_34):
        assert evaluation.message_of(said) == "attribute 'nosuch' missing"
        assert evaluation.printed(said)["a.nix"].warnings == ["torch is old"]
    wanted = "anonymous function called with unexpected argument 'newer'"
    assert evaluation.message_of(OF_A_FUNCTION) == wanted


# --- against the pinned nixpkgs, in whose place the store has the model ---


@pytest.fixture
def pinned(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name, value in site.env.items():
        monkeypatch.setenv(name, value)
    return prepared_project(tmp_path / "project")


@needs_nix
def test_pinned_fetches_for_real_and_finds_what_is_wrong(pinned: Project) -> None:
    words = ("--pinned", "--json", "--only", "evaluation,hooks")
    done = verify(pinned, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["findings"] == []
    skipped = {id_ for id_, it in checks_in(done).items() if it["state"] != "passed"}
    assert skipped == {"eval-pin", "eval-nixpkgs"}, "only the model records them"
    pinned.edit(GPU_RECIPE, "gpuTargets = [ gpuArchSM ]", 'gpuTargets = [ "sm_90" ]')
    warning = '  patches = builtins.trace "warning: this is old" [];\n\n  # Only'
    pinned.edit(CPU_RECIPE, "  patches = [];\n\n  # Only", warning)
    done = verify(pinned, *words)
    found = {(f["check"], f["severity"]) for f in json.loads(done.stdout)["findings"]}
    assert found == {("hook-environment", "error"), ("eval-warnings", "warning")}


@needs_nix
def test_an_undefined_name_in_an_import_fails_its_own_recipe_only(pinned: Project) -> None:
    """Recipes share imports of nixpkgs; a broken one does not stop the evaluation of the others."""
    variants = [v for v in matrix_reader.load(pinned.root).variants if v.gpu is None]
    pinned.edit(CPU_RECIPE, '    system = "x86_64-linux";', "    system = nosuch;")
    found, failures = store.evaluated_derivations(pinned.root, variants)
    assert list(failures) == [Path(CPU_RECIPE).stem]
    assert "undefined variable 'nosuch'" in failures[Path(CPU_RECIPE).stem]
    assert len(found) == len(variants) - 1


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("exit 1", "Nix printed no message"),
        ("echo hello", "Nix printed no message"),
        ("echo 'error: cannot connect' >&2; exit 1", "cannot connect"),
        ("exec yes >&2", "stopped, as it wrote more than 32 MiB"),
    ],
)
def test_a_nix_that_does_not_work_is_an_error(
    clean: Project, tmp_path: Path, said: str, says: str
) -> None:
    done = clean.run("invoke", "verify", env=script(tmp_path, "nix-instantiate", said))
    assert done.returncode == 2
    assert re.search(rf"nix-instantiate evaluates none of \d+ recipes: .*{says}", error_line(done))


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
