"""The menus: what they list, their exit codes, and that bad input is one line."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from conftest import PROJECT, Project, error_line, run_in_process
from invoke.tasks import Task

from build_pytorch.matrix import matrix_reader
from build_pytorch.tasks.command import HELP, TASKS

BREAK = ("max_jobs = 32", "max_jobs = 0")
ENDED = "error: {}; every file is whole, run again to go on\n"


# --- the menus, in processes of their own ---


def test_nox_lists_sessions_and_builds_with_their_tags() -> None:
    project, matrix = Project(PROJECT), matrix_reader.load(PROJECT)
    listing = project.nox("-l").stdout
    for name in ("tests", "lint", "verify", "build(cuda13_0/sm120-avx512)"):
        assert f" {name} " in listing
    rows = json.loads(project.nox("-l", "--json", "-s", "build").stdout)
    by_id = {row["call_spec"]["variant"]: set(row["tags"]) for row in rows}
    assert by_id.keys() == {variant.id for variant in matrix.variants}
    tags = {"sm120", "avx2", "cuda13_0", "x86_64-linux", "gpu", "buildable"}
    assert by_id["cuda13_0/sm120-avx2"] == tags
    assert by_id["cuda13_0/cpu-avx2"] == tags - {"sm120", "gpu"} | {"cpu-only"}
    assert "buildable" not in by_id["cuda13_0/sm110-avx2"]
    aliases = {variant.id for variant in matrix.variants if variant.alias_of}
    assert aliases == {id_ for id_, tags in by_id.items() if "alias" in tags}


def test_nox_runs_the_same_command_from_a_subfolder(still: Project) -> None:
    words = ["verify", "--json", "--only", "text"]
    still.own_program()
    argv = [sys.executable, "-m", "nox", "-f", "../noxfile.py", "-s", words[0], "--", *words[1:]]
    done = subprocess.run(
        argv, cwd=still.root / "docs", capture_output=True, text=True, check=False
    )
    assert (done.returncode, "uv binary" in done.stderr) == (0, False), done.stderr
    assert json.loads(done.stdout) == json.loads(still.invoke(*words).stdout)


def test_a_session_of_nox_fails_with_its_command_and_skips_what_cannot_be_built(
    still: Project,
) -> None:
    done = still.nox("-s", "build(cpu-avx2)", "--", "--jobs", "x")
    assert done.returncode == 1
    assert '--jobs: found "x"; allowed: a whole number from 1 to 1024' in done.stdout
    skipped = still.nox("-s", "build(sm110-avx2)")
    assert skipped.returncode == 0
    assert "`invoke show sm110-avx2` says why it cannot be built" in skipped.stderr


def test_tasks_py_and_the_program_have_the_same_tasks(
    still: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    tasks = import_module("tasks")
    monkeypatch.undo()
    named = {value.name for value in vars(tasks).values() if isinstance(value, Task)}
    assert named == set(TASKS)
    listed = still.invoke("--list").stdout
    for name, task in TASKS.items():
        assert re.search(rf"(?m)^  {name} +{re.escape(str(task.__doc__).splitlines()[0])}$", listed)


def test_a_broken_matrix_breaks_no_listing_and_the_command_that_needs_it_says_what_is_wrong(
    project: Project,
) -> None:
    project.edit("matrix.toml", *BREAK)
    before = project.snapshot()
    assert project.nox("-l").returncode == 0
    assert project.invoke("--list").returncode == 0
    for argv in (["phase1"], ["all", "--force"], ["verify"]):
        run = project.invoke(*argv)
        assert run.returncode == 2
        message = error_line(run)
        assert message.startswith("matrix.toml:")
        assert "release.cuda13_0.build.max_jobs: found 0" in message
    assert project.snapshot() == before
    project.edit("matrix.toml", "disk = 60", "disk = 0")
    said = project.invoke("verify").stderr.splitlines()
    assert [line.partition(":")[0] for line in said] == ["error", "error"]


KILL = "import os, signal, time\nos.kill(os.getpid(), signal.{})\ntime.sleep(60)\n"


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        ("SIGINT", 130, "interrupted"),
        ("SIGTERM", 143, "terminated"),
        ("SIGHUP", 129, "the terminal was closed"),
    ],
)
def test_a_signal_is_one_line_also_while_modules_are_imported(
    project: Project, number: str, code: int, says: str
) -> None:
    (project.own_program() / "generate/recipes.py").write_text(KILL.format(number))
    done = project.run_process("invoke", "all")
    assert (done.returncode, done.stderr) == (code, ENDED.format(says))


def test_invoke_keeps_bytecode_so_that_the_package_is_compiled_once(project: Project) -> None:
    compiled = project.own_program() / "matrix/__pycache__"
    shutil.rmtree(compiled)
    project.run_process("invoke", "status", env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert not compiled.exists()
    project.run_process("invoke", "status", env={"PYTHONDONTWRITEBYTECODE": ""})
    assert list(compiled.glob("matrix_reader.*.pyc"))


def test_ctrl_c_while_the_program_is_imported_prints_no_traceback(project: Project) -> None:
    (project.own_program() / "tasks/menu.py").write_text(KILL.format("SIGINT"))
    argv = [sys.executable, "-c", "from build_pytorch.tasks.script import main; main()"]
    done = subprocess.run(argv, cwd=project.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# --- words and options ---


def test_an_option_has_one_text_and_one_kind() -> None:
    kinds: dict[str, set[bool]] = {}
    for task in TASKS.values():
        for argument in task.get_arguments(ignore_unknown_help=True):
            assert argument.kind in {str, bool}, "an int ends Invoke with a traceback"
            kinds.setdefault(str(argument.name), set()).add(argument.kind is bool)
    assert {name for name, several in kinds.items() if len(several) > 1} == set()
    assert set(HELP) <= set(kinds), "a text of no option"


def test_commands_run_one_after_the_other_until_one_fails(project: Project) -> None:
    done = project.invoke("phase2", "--check", "phase4", "--dry-run")
    assert (done.returncode, done.stdout.count("Total: ")) == (0, 2)
    assert "\x1b" not in done.stdout  # colours are for terminals
    project.recipe("cuda13_0-sm90-avx2").unlink()
    done = project.invoke("phase2", "--check", "phase4", "--dry-run")
    assert (done.returncode, done.stdout.count("Total: ")) == (1, 1)


BAD_INPUT = """
    build cpu-avx2 --jobs x        | --jobs: found "x"; allowed: a whole number from 1 to 1024
    build cpu-avx2 --cores 1.5     | --cores: found "1.5"; allowed: a whole number
    build cpu-avx2 --backend guix  | --backend: no backend "guix"; there are flox and nix
    build cpu-avx2 --builders ssh://x --backend flox | --builders works only with Nix
    build cpu-avx2,sm91-*          | no package matches "sm91-*"
    build --nope                   | no package matches "--nope"
    build cpu-avx3                 | no package matches "cpu-avx3"; did you mean "cpu-avx2"?
    build cpu-avx2 --with audio    | no selected variant has a companion "audio"
    smoke cpu-avx2 --timeout nan   | --timeout: found "nan"; allowed: a number from 0.01
    smoke cpu-avx2 --python /none  | --python /none: no such program; name a Python that has torch
    smoke cpu-avx2 --python=       | --python: found an empty value, as from a variable that is not
    compare cpu-avx2 --minutes 0   | --minutes: found "0"; allowed: a number from 0.001
    compare cpu-avx2 --device gpu  | --device gpu: allowed: cpu, or the number of a GPU
    compare cpu-avx2 --threads 0   | --threads: found "0"; allowed: a whole number from 1
    status --packages cuda13_1     | did you mean "cuda13_0"?
    publish cpu-avx2 --system arm64 | found "arm64"; allowed: x86_64-linux or aarch64
    status --packages ,            | found "," for packages
    verify --only gpu-arc          | no check or category "gpu-arc"; did you mean "gpu-arch"?
    verify --against HEAD --pinned | --against: runs no checks; leave --only and --pinned out
    show sm90-*                    | found 4 packages; name one of them: sm90-avx2
    inspect cpu-avx2 --path none   | no libtorch_cpu.so in it
    inspect cpu-* --path .flox     | the files of one variant
    log cpu-avx2                   | cpu-avx2: the ledger has no build of it
    diagnose none.log              | none.log: no such file; as an id: no package matches "none.log"
    diagnose /dev/zero             | /dev/zero: cannot be read: not a regular file
    diagnose .                     | .: cannot be read: Is a directory
    diagnose matrix.toml --variant sm9    | no package matches "sm9"
    diagnose matrix.toml --variant sm90-* | name one of them: sm90-avx2,
    init .                         | a project already: it has matrix.toml
    recommend --cpu avx3           | --cpu: found "avx3"; did you mean "avx
    recommend --gpu rtx4095        | found "rtx4095"; did you mean
    recommend --driver v550        | --driver: found "v550"; allowed: a driver version such as
    prefetch --only torhc          | no source "torhc"; did you mean "torch"?
    bump                           | nothing to do; give --torch VERSION
    doctor --python /none          | /none: no such program; name the Python that has torch
"""


@pytest.mark.parametrize("line", BAD_INPUT.strip().splitlines(), ids=lambda it: it.split("|")[0])
def test_bad_input_is_one_line_and_changes_nothing(still: Project, line: str) -> None:
    words, _, says = line.partition("|")
    before = still.snapshot()
    done = still.invoke(*words.split())
    assert done.returncode == 2, done.stdout
    assert says.strip() in error_line(done)
    assert still.snapshot() == before


def test_words_that_invoke_refuses_exit_with_1(still: Project) -> None:
    for words in (["biuld"], ["phase1", "--nope"], ["verify", "--only"], ["show"]):
        done = still.invoke(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Traceback" not in done.stderr


def test_verify_works_on_the_recipes_of_another_folder(legacy: Path) -> None:
    done = run_in_process(legacy, ["verify"], {})
    assert done.returncode == 1
    for check in ("extra-recipe", "retired-pin", "magma-enabled", "two-stage-override"):
        assert f"error: {check}" in done.stdout
    (extra,) = re.findall(r"(?m)^\S+: error: extra-recipe\n(?: .*\n)+", done.stdout)
    others = ["sm120-avx", "sm120-avx512-magma", "sm121-armv9-nightly"]
    assert re.findall(r"-(sm\S+)\.nix:1", extra) == others


def test_a_command_works_in_a_subfolder_of_its_project(still: Project) -> None:
    assert run_in_process(still.root / "docs", ["phase4", "--check"], {}).returncode == 0


def test_a_missing_dependency_is_one_line(project: Project) -> None:
    (project.root / "msgspec.py").write_text("raise ModuleNotFoundError(name='msgspec')")
    done = project.run_process("invoke", "all")
    assert done.returncode == 2
    assert "msgspec is missing; run `pip install -e .`" in error_line(done)
    assert error_line(done) in project.nox("-s", "verify").stdout


def test_a_missing_or_unreadable_template_is_one_line(project: Project) -> None:
    name = "templates/gpu.nix.j2"
    (project.root / name).unlink()
    for says in ("missing; restore it from Git", "cannot be read: Is a directory"):
        done = project.invoke("phase2")
        assert (done.returncode, f"{name}: {says}" in error_line(done)) == (2, True)
        (project.root / name).mkdir(exist_ok=True)


@pytest.mark.parametrize("command", ["init", "build"])
def test_help_after_the_name_is_no_folder_and_no_package(project: Project, command: str) -> None:
    done = project.invoke(command, "--help")
    assert done.returncode == 2
    assert error_line(done) == f"--help: write it before the name: `invoke --help {command}`"
    assert not (project.root / "--help").exists()
