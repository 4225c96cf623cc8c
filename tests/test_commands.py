"""The two menus: what they list, their exit codes, and that a broken matrix breaks neither."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
from conftest import PROJECT, Project, error_line, run_in_process
from invoke.program import Program

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.build_backend import BuildSettings
from build_pytorch.cli import commands, entry
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, help_text, option_specs, parsed
from build_pytorch.cli.invoke_tasks import InvokeMenu
from build_pytorch.matrix.selection import Selection

BREAK = ('capability = "12.1"', 'capability = "sm_121"')


# --- the menus, in processes of their own ---


def test_nox_lists_sessions_and_builds_with_their_tags(still: Project) -> None:
    listing = still.nox("-l").stdout
    for name in ("tests", "lint", "verify", "bench", "build(sm120-avx512)"):
        assert f" {name} " in listing
    rows = json.loads(still.nox("-l", "--json", "-s", "build").stdout)
    by_id = {row["call_spec"]["variant"]: row["tags"] for row in rows}
    assert len(by_id) == 44
    assert by_id["cpu-avx2"] == ["avx2", "cuda13_0", "x86_64-linux", "cpu-only", "buildable"]
    assert "buildable" not in by_id["sm110-avx2"]


def test_nox_runs_the_same_command_from_a_subfolder(still: Project) -> None:
    argv = ["-f", "../noxfile.py", "-s", "verify", "--", "--json", "--only", "text"]
    still.own_program()
    done = subprocess.run(
        [sys.executable, "-m", "nox", *argv],
        cwd=still.root / "docs",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "uv binary" not in done.stderr
    by_invoke = still.invoke("verify", "--json", "--only", "text")
    assert json.loads(done.stdout) == json.loads(by_invoke.stdout)


@pytest.mark.parametrize(
    ("option", "code", "says"),
    [
        ("--help", 0, help_text(COMMANDS["build"])),
        ("--nope", 2, "error: unknown option --nope; `invoke --help build` lists all\n"),
    ],
)
def test_a_session_of_a_variant_has_the_options_of_build(
    still: Project, option: str, code: int, says: str
) -> None:
    done = still.nox("-s", "build(cpu-avx2)", "--", option)
    assert done.returncode == code
    assert says in done.stdout + done.stderr


def test_invoke_lists_the_commands(still: Project) -> None:
    done = still.invoke()
    assert done.returncode == 0
    assert done.stdout == still.invoke("--list").stdout
    for command in COMMANDS.values():
        assert f"  {command.summary}\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_shells_complete_commands_and_options(still: Project) -> None:
    assert "--complete" in still.invoke("--print-completion-script", "bash").stdout
    done = still.invoke("--complete", "--", "invoke", "bu")
    assert "build" in done.stdout.split()
    done = still.invoke("--complete", "--", "invoke", "build", "--")
    assert {"--dry-run", "--jobs"} <= set(done.stdout.split())
    assert "--variants" not in done.stdout


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
        assert 'gpu.sm121.capability: found "sm_121"' in message
    assert project.snapshot() == before
    project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 0")
    said = project.invoke("verify").stderr.splitlines()
    assert [line.partition(":")[0] for line in said] == ["error", "error"]


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        ("SIGINT", 130, "interrupted"),
        ("SIGTERM", 143, "terminated"),
        ("SIGHUP", 129, "the terminal was closed"),
    ],
)
def test_a_signal_while_modules_are_imported_is_one_line(
    project: Project, number: str, code: int, says: str
) -> None:
    kill = f"import os, signal, time\nos.kill(os.getpid(), signal.{number})\ntime.sleep(60)\n"
    (project.root / "msgspec.py").write_text(kill)
    done = project.invoke_process("all")
    assert done.returncode == code
    assert done.stderr == f"error: {says}; every file is whole, run again to go on\n"


def test_ctrl_c_while_a_command_is_imported_is_one_line(project: Project) -> None:
    path = project.own_program() / "generate/recipes.py"
    kill = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    path.write_text(path.read_text().replace("from __future__ import annotations\n", kill, 1))
    done = project.invoke_process("all")
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; every file is whole, run again to go on\n"


def test_ctrl_c_before_the_script_has_its_handlers_prints_no_traceback(project: Project) -> None:
    path = project.own_program() / "base/errors.py"
    path.write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    done = project.run_process("build_pytorch.cli.script", "status")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_invoke_keeps_bytecode_so_that_the_package_is_compiled_once(project: Project) -> None:
    compiled = project.own_program() / "cli/__pycache__"
    shutil.rmtree(compiled)
    project.run("invoke", "--list", env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert not compiled.exists()
    project.run("invoke", "--list", env={"PYTHONDONTWRITEBYTECODE": ""})
    assert list(compiled.glob("commands.*.pyc"))


# --- words, options and help ---


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_help_shows_every_option_with_its_value_in_80_columns(command: Command) -> None:
    shown = help_text(command)
    assert all(len(line) <= 80 and line == line.rstrip() for line in shown.splitlines())
    for spec in option_specs(command.options):
        if spec.is_positional:
            continue
        written = f"--{spec.name}" + ("" if spec.kind == "flag" else f" {spec.metavar}")
        assert re.search(rf"(?m)^  (-\w, )?{re.escape(written)}(  |$)", shown)
    names = [f"{spec.metavar} ..." for spec in option_specs(command.options) if spec.is_positional]
    assert shown.startswith(
        f"usage: invoke {command.name} {'[' + names[0] + '] ' if names else ''}["
    )


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_refuses_options_that_are_wrong(command: Command) -> None:
    for spec in option_specs(command.options):
        if spec.is_positional or spec.metavar.startswith("["):
            continue
        option = f"--{spec.name}"
        wrong = {(option,), (option, "--json"), (option, "-v")}
        says = f"{option}: the value is missing; write "
        if spec.kind == "flag":
            wrong, says = {(f"{option}=1",)}, f"{option}: takes no value; remove it"
        for words in wrong:
            with pytest.raises(BuildPytorchError, match=f"^{says}"):
                parsed(command, words)
    for word in ("--nope", "-x", "--dry", "--pty", "-R", "--=", "---"):
        with pytest.raises(BuildPytorchError, match=rf"^unknown option {word.partition('=')[0]}; "):
            parsed(command, [word])
    # A dash alone is a name, such as that of standard input.
    names = [spec.field for spec in option_specs(command.options) if spec.is_positional]
    assert parsed(command, ["-"]) == (({names[0]: ["-"]}, []) if names else ({}, ["-"]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("biuld", 'unknown command "biuld"; did you mean "build"?'),
        ("xyzzy", 'unknown command "xyzzy"; `invoke --list` shows all commands'),
        ("--nope", 'unknown option "--nope"; `invoke --list` shows all commands'),
        ("build --jobs", "--jobs: the value is missing; write --jobs N"),
        ("build --all --gpu --dry-run", "--gpu: the value is missing; write"),
        ("verify --only", "--only: the value is missing; write --only CHECK"),
        ("all phase1 --nope", "unknown option --nope; `invoke --help phase1` "),
        ("phase1 foo", 'phase1: takes no names; found "foo"'),
    ],
)
def test_wrong_words_name_what_is_wrong(words: str, says: str) -> None:
    with pytest.raises(BuildPytorchError, match=f"^{re.escape(says)}"):
        entry.read_calls(words.split())


def test_a_session_of_nox_runs_one_command() -> None:
    with pytest.raises(BuildPytorchError, match='prefetch: takes no names; found "status"'):
        entry.read_calls(["prefetch", "status"], is_session=True)


def test_wrong_words_of_invoke_are_one_line_and_exit_with_2(still: Project) -> None:
    for words in (["--nope"], ["--help", "biuld"]):
        done = still.invoke(*words)
        assert done.returncode == 2
        assert error_line(done).startswith(f"unknown {'option' if len(words) == 1 else 'command'}")


def test_commands_run_one_after_the_other_until_one_fails(project: Project) -> None:
    done = project.invoke("phase2", "--check", "phase4", "--dry-run")
    assert (done.returncode, done.stdout.count("Total: ")) == (0, 2)
    assert "\x1b" not in done.stdout  # colours are for terminals
    project.recipe("cuda13_0-sm90-avx2").unlink()
    done = project.invoke("phase2", "--check", "phase4", "--dry-run")
    assert (done.returncode, done.stdout.count("Total: ")) == (1, 1)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_names_a_function_that_takes_its_options(command: Command) -> None:
    run = import_module(f"build_pytorch.cli.{command.module}").run
    taken = get_type_hints(run, localns=vars(commands))["options"]  # some import it for types only
    assert issubclass(command.options, taken)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("verify sm90-* cpu-avx2", {"variants": ["sm90-*", "cpu-avx2"]}),
        (
            "verify --only text a --only=syntax b",
            {"variants": ["a", "b"], "only": ["text", "syntax"]},
        ),
        ("verify a --json -v", {"variants": ["a"], "json": True, "verbose": True}),
        ("recommend --machine -", {"machine": "-"}),
        ("recommend --gpu=1 --gpu A100", {"gpu": ["1", "A100"]}),
        ("smoke --device -1", {"device": "-1"}),
        ("publish --org= a", {"variants": ["a"], "org": ""}),
        ("verify -h", {"help": True}),
        ("verify a --json b", {"variants": ["a", "b"], "json": True}),
    ],
)
def test_words_become_arguments(words: str, given: dict[str, object]) -> None:
    name, *rest = words.split()
    assert parsed(COMMANDS[name], rest) == (given, [])


def test_invoke_still_has_the_methods_that_the_menu_replaces() -> None:
    """Fails if a new version of Invoke changes what InvokeMenu relies on."""
    for method in ("parse_tasks", "execute", "print_task_help", "list_tasks", "no_tasks_given"):
        ours, theirs = getattr(InvokeMenu, method), getattr(Program, method)
        assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]
        assert ours is not theirs


def test_verify_works_on_the_recipes_of_another_folder(legacy: Path) -> None:
    done = run_in_process(legacy, ["verify"], {})
    assert done.returncode == 1
    for check in ("no-magma-suffix", "retired-pin", "magma-enabled", "two-stage-override"):
        assert f"error: {check}" in done.stdout


def test_a_missing_dependency_is_one_line(project: Project) -> None:
    (project.root / "msgspec.py").write_text("raise ModuleNotFoundError(name='msgspec')")
    for done in (project.invoke_process("all"), project.nox("-s", "verify")):
        assert done.returncode == 2
        assert "msgspec is missing; run `pip install -e .`" in error_line(done)


def test_a_missing_or_unreadable_template_is_one_line(project: Project) -> None:
    template = project.root / "templates/gpu.nix.j2"
    template.unlink()
    done = project.invoke("phase2")
    assert done.returncode == 2
    assert "templates/gpu.nix.j2: missing; restore it from Git" in error_line(done)
    template.mkdir()
    done = project.invoke("phase2")
    assert done.returncode == 2
    assert "templates/gpu.nix.j2: cannot be read: Is a directory" in error_line(done)


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_ends_neither_the_work_nor_the_verdict(
    project: Project,
) -> None:
    project.recipe("cpu-avx2").write_text("{ }")
    project.recipe("cuda13_0-sm90-avx2").unlink()

    def piped(command: str) -> subprocess.CompletedProcess[str]:
        script = f"{sys.executable} -m {command} | head -n 1; echo code ${{PIPESTATUS[0]}}"
        return subprocess.run(
            ["bash", "-c", script], cwd=project.root, capture_output=True, text=True, check=False
        )

    for command in ("invoke --list", "invoke", "invoke --help build", "nox -l", "invoke status"):
        done = piped(command)
        assert "Traceback" not in done.stderr, command
        assert "Broken" not in done.stderr, command
    for command in ("invoke verify --only text", "invoke all", "nox -s verify -- --only text"):
        done = piped(command)
        assert done.stdout.endswith("code 1\n"), command
        assert "Traceback" not in done.stderr
    assert project.recipe("cuda13_0-sm90-avx2").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_after_the_work_is_done_changes_nothing(project: Project, number: str) -> None:
    late = f"import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.{number})\n"
    (project.root / "tasks.py").write_text((project.root / "tasks.py").read_text() + late)
    done = project.invoke_process("all", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "44 of 44 recipes" in done.stdout.splitlines()[-2]
    assert done.stdout.endswith("warnings\n")


def test_the_menus_hold_no_logic() -> None:
    for menu in ("tasks.py", "noxfile.py"):
        for node in ast.walk(ast.parse((PROJECT / menu).read_text())):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                body = (node.end_lineno or 0) - node.body[0].lineno + 1
                assert body <= 20, f"{menu}: {node.name} has {body} lines"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["smoke", "--device", "x"], '--device: found "x"; allowed: a whole number'),
        (["smoke", "--timeout", "x"], '--timeout: found "x"; allowed: a number'),
        (["build", "cpu-avx2", "--jobs", "x"], '--jobs: found "x"; allowed: a whole number'),
        (["build", "cpu-avx2", "--jobs", "0"], 'found "0"; allowed: a whole number from 1 to 1024'),
        (["build", "cpu-avx2", "--cores", "1.5"], '--cores: found "1.5"'),
        (["prefetch", "--timeout", "x"], '--timeout: found "x"'),
        (["bump", "--timeout", "x"], '--timeout: found "x"'),
    ],
)
def test_a_value_that_an_option_cannot_have_is_one_line(
    still: Project, argv: list[str], says: str
) -> None:
    done = still.invoke(*argv)
    assert done.returncode == 2
    assert says in error_line(done)


@pytest.mark.parametrize(
    "argv",
    [
        ["smoke", "--python", ""],
        ["inspect", "cpu-avx2", "--path", ""],
        ["publish", "cpu-avx2", "--org", ""],
    ],
)
def test_an_empty_option_is_a_variable_that_was_not_set(still: Project, argv: list[str]) -> None:
    done = run_in_process(still.root, argv, {})
    assert done.returncode == 2
    option = argv[-2]
    assert f"{option}: found an empty value, as from a variable that is not set" in error_line(done)


def test_error_messages_show_control_characters_escaped(still: Project) -> None:
    done = still.invoke("verify", "\x1b[31mx\u009b2J\u202e")
    assert done.returncode == 2
    assert r"\u001b[31mx\x9b2J\u202e" in error_line(done)
    assert not {"\x1b", "\u009b", "\u202e"} & set(done.stderr)


# --- options ---


def used_names(module: str, seen: set[str]) -> set[str]:
    """The attributes and texts in a module of cli/ and in those that it imports from there."""
    if module in seen | {"commands", "declaration"}:
        return set()
    seen.add(module)
    nodes = list(ast.walk(ast.parse((PROJECT / f"build_pytorch/cli/{module}.py").read_text())))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("build_pytorch.cli."):
            names |= used_names(str(node.module).rpartition(".")[2], seen)
    return names


def unused_options(command: Command) -> set[str]:
    """The options that neither the modules of a command nor a property of its options reads."""
    names = used_names(command.module, set())
    if "selection" in names:
        names |= set(Selection.__struct_fields__)
    if "BuildSettings" in names:
        names |= set(BuildSettings.__struct_fields__)
    for base in command.options.__mro__:
        for member in vars(base).values():
            if isinstance(member, property):
                names |= set(re.findall(r"self\.(\w+)", inspect.getsource(member.fget)))  # type: ignore[arg-type]
    return {spec.field for spec in option_specs(command.options)} - {"root"} - names


def test_a_command_has_no_option_that_it_does_not_use() -> None:
    unused = {name: unused_options(command) for name, command in COMMANDS.items()}
    assert {name: fields for name, fields in unused.items() if fields} == {}
    borrowed = Command("describe-machine", "", COMMANDS["build"].options)
    assert "fail_fast" in unused_options(borrowed), "the test sees one that is not used"
    assert "release" not in {spec.name for spec in option_specs(COMMANDS["phase5"].options)}


def test_one_name_means_one_thing_and_one_thing_has_one_name() -> None:
    specs = [spec for command in COMMANDS.values() for spec in option_specs(command.options)]
    kinds = {(spec.name, spec.kind == "flag") for spec in specs if not spec.is_positional}
    assert len(kinds) == len({name for name, _ in kinds}), "a flag everywhere or nowhere"
    names: dict[str, set[str]] = {}
    for spec in specs:
        names.setdefault(spec.help, set()).add(spec.name)
    assert [found for found in names.values() if len(found) > 1] == []
    assert len({spec.help for spec in specs if spec.name == "verbose"}) == 1, "declared once"
