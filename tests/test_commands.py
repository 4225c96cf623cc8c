"""The two menus: what they list, their exit codes, and that a broken matrix breaks neither."""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
from conftest import PROJECT, Project, error_line
from invoke.program import Program

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, help_text, option_specs, parsed
from build_pytorch.cli.invoke_tasks import InvokeMenu

BREAK = ('capability = "12.1"', 'capability = "sm_121"')


def test_invoke_lists_the_phases_with_a_line_each(project: Project) -> None:
    listing = project.invoke("--list").stdout
    for name in ("phase1", "phase2", "phase3", "phase4", "phase5", "all", "verify"):
        assert any(line.split()[:1] == [name] for line in listing.splitlines())


def test_invoke_keeps_bytecode_so_that_the_package_is_compiled_once(project: Project) -> None:
    compiled = project.own_program() / "cli/__pycache__"
    shutil.rmtree(compiled)
    project.run("invoke", "--list", env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert not compiled.exists()
    project.run("invoke", "--list", env={"PYTHONDONTWRITEBYTECODE": ""})
    assert list(compiled.glob("commands.*.pyc"))


@pytest.mark.parametrize("task", ["phase1", "all", "verify"])
def test_every_option_has_help(project: Project, task: str) -> None:
    shown = project.invoke("--help", task).stdout
    options = [line for line in shown.splitlines() if line.strip().startswith("--")]
    assert options
    # invoke prints help beside the option, or on the next line where the option is long
    for line in options:
        after = shown.splitlines()[shown.splitlines().index(line) + 1 :]
        assert len(line.split()) > 2 or (after and after[0].startswith("      ")), line


def test_nox_lists_its_sessions(project: Project) -> None:
    listing = project.nox("-l").stdout
    for name in ("tests", "lint", "verify", "bench"):
        assert f" {name} -> " in listing


def test_a_broken_matrix_breaks_no_listing_and_the_command_that_needs_it_says_what_is_wrong(
    project: Project,
) -> None:
    project.edit("matrix.toml", *BREAK)
    before = project.snapshot()
    assert project.nox("-l").returncode == 0
    assert project.invoke("--list").returncode == 0
    for run in (
        project.invoke("phase1"),
        project.invoke("all", "--force"),
        project.invoke("verify"),
        project.nox("-s", "verify"),
    ):
        assert run.returncode == 2
        message = error_line(run)
        assert message.startswith("matrix.toml:")
        assert 'gpu.sm121.capability: found "sm_121"' in message
    assert project.snapshot() == before


def test_verify_is_the_same_by_both_names(project: Project) -> None:
    by_nox = project.nox("-s", "verify", "--", "--json", "--only", "text")
    by_invoke = project.invoke("verify", "--json", "--only", "text")
    assert by_nox.returncode == by_invoke.returncode == 0
    assert json.loads(by_nox.stdout) == json.loads(by_invoke.stdout)


@pytest.mark.parametrize("name", ["verify", "build(cpu-avx2)"])
def test_invoke_and_nox_print_the_same_help(project: Project, name: str) -> None:
    by_nox = project.nox("-s", name, "--", "--help")
    by_invoke = project.invoke("--help", name.partition("(")[0])
    assert by_nox.returncode == by_invoke.returncode == 0
    assert by_nox.stdout == by_invoke.stdout


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_help_shows_every_option_with_its_value_in_80_columns(command: Command) -> None:
    shown = help_text(command)
    assert all(len(line) <= 80 and line == line.rstrip() for line in shown.splitlines())
    for spec in option_specs(command.options):
        if spec.is_positional:
            continue
        assert re.search(
            rf"(?m)^  (-\w, )?{re.escape(spec.usage.rpartition(', ')[2])}(  |$)", shown
        )
    names = [spec.usage for spec in option_specs(command.options) if spec.is_positional]
    assert shown.startswith(
        f"usage: invoke {command.name} {'[' + names[0] + '] ' if names else ''}["
    )


def words_of_options(*kinds: str) -> list[tuple[str, str]]:
    return [
        (command.name, f"--{spec.name}")
        for command in COMMANDS.values()
        for spec in option_specs(command.options)
        if spec.kind in kinds and not spec.is_positional
    ]


@pytest.mark.parametrize(
    ("name", "option"),
    [each for each in words_of_options("value", "values") if each != ("bump", "--nightly")],
)
def test_every_option_refuses_to_be_without_its_value(name: str, option: str) -> None:
    for words in ([option], [option, "--json"], [option, "-v"]):
        with pytest.raises(BuildPytorchError, match=f"^{option}: the value is missing; write "):
            parsed(COMMANDS[name], words)


@pytest.mark.parametrize(("name", "option"), words_of_options("flag"))
def test_every_flag_refuses_a_value(name: str, option: str) -> None:
    with pytest.raises(BuildPytorchError, match=f"^{option}: takes no value; remove it"):
        parsed(COMMANDS[name], [f"{option}=1"])


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("word", ["--nope", "-x", "--dry", "--pty", "-R", "--=", "---", "-"])
def test_every_command_refuses_an_unknown_option(name: str, word: str) -> None:
    names = [spec.field for spec in option_specs(COMMANDS[name].options) if spec.is_positional]
    if word == "-":  # is a name, such as that of standard input
        given, rest = parsed(COMMANDS[name], [word])
        assert (given, rest) == (({names[0]: ["-"]}, []) if names else ({}, ["-"]))
        return
    with pytest.raises(BuildPytorchError, match=rf"^unknown option {word.partition('=')[0]}; "):
        parsed(COMMANDS[name], [word])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["invoke", "biuld"], 'unknown command "biuld"; did you mean "build"?'),
        (["invoke", "xyzzy"], 'unknown command "xyzzy"; `invoke --list` shows all commands'),
        (["invoke", "--nope"], 'unknown option "--nope"; `invoke --list` shows all commands'),
        (["invoke", "--help", "biuld"], 'unknown command "biuld"; did you mean "build"?'),
        (["invoke", "build", "--jobs"], "--jobs: the value is missing; write --jobs N"),
        (["invoke", "build", "--all", "--gpu", "--dry-run"], "--gpu: the value is missing; write"),
        (["invoke", "verify", "--only"], "--only: the value is missing; write --only CHECK"),
        (["invoke", "all", "phase1", "--nope"], "unknown option --nope; `invoke --help phase1` "),
        (["invoke", "phase1", "foo"], 'phase1: takes no names; found "foo"'),
        (["nox", "-s", "verify", "--", "--only"], "--only: the value is missing; write --only C"),
        (["nox", "-s", "prefetch", "--", "x"], 'prefetch: takes no names; found "x"'),
        (["nox", "-s", "build(cpu-avx2)", "--", "--isa"], "--isa: the value is missing; write "),
        (["nox", "-s", "build", "--", "--nope"], "unknown option --nope"),
    ],
)
def test_wrong_words_are_one_line_and_exit_with_2(
    project: Project, argv: list[str], says: str
) -> None:
    before = project.snapshot()
    done = project.run(*argv)
    assert done.returncode == 2
    assert error_line(done).startswith(says)
    assert project.snapshot() == before


def test_invoke_without_words_shows_the_commands(project: Project) -> None:
    done = project.invoke()
    assert done.returncode == 0
    assert done.stdout == project.invoke("--list").stdout
    for command in COMMANDS.values():
        assert f"  {command.summary}\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_tasks_run_one_after_the_other_until_one_fails(project: Project) -> None:
    done = project.invoke("phase2", "--check", "phase4", "--dry-run")
    assert (done.returncode, done.stdout.count("Total: ")) == (0, 2)
    project.recipe("cuda13_0-sm90-avx2").unlink()
    done = project.invoke("phase2", "--check", "phase4", "--dry-run")
    assert (done.returncode, done.stdout.count("Total: ")) == (1, 1)


def test_nox_lists_a_short_line_for_each_variant_and_prints_nothing_of_uv(
    project: Project,
) -> None:
    listing = project.nox("-l").stdout
    assert "- build(sm120-avx512vnni) [sm120,avx512vnni,cuda13_0,gpu] -> SM120, AVX-512 " in listing
    described = [line.partition(" -> ")[2] for line in listing.splitlines() if " -> " in line]
    assert len(set(described)) == len(described) > 44
    done = project.nox("-s", "verify", "--", "--only", "text")
    assert "uv binary" not in done.stdout + done.stderr


def test_nox_works_from_a_subfolder(project: Project) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "nox",
            "-f",
            "../noxfile.py",
            "-s",
            "verify",
            "--",
            "--only",
            "text",
        ],
        cwd=project.root / "docs",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "44 of 44 recipes" in done.stdout


def test_shells_complete_commands_and_options(project: Project) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "--complete" in project.invoke("--print-completion-script", shell).stdout
    done = project.invoke("--complete", "--", "invoke", "bu")
    assert "build" in done.stdout.split()
    done = project.invoke("--complete", "--", "invoke", "build", "--")
    assert {"--dry-run", "--jobs"} <= set(done.stdout.split())
    assert "--variants" not in done.stdout


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_names_a_function_that_takes_its_options(command: Command) -> None:
    function = import_module(f"build_pytorch.cli.{command.module}").run
    assert command.options in get_type_hints(function).values()


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("verify sm90-* cpu-avx2", {"variants": ["sm90-*", "cpu-avx2"]}),
        (
            "verify --only text a --only=syntax b",
            {"variants": ["a", "b"], "only": ["text", "syntax"]},
        ),
        ("verify --root x a", {"variants": ["a"], "root": "x"}),
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


def test_verify_works_on_another_root(project: Project, legacy: Path) -> None:
    done = project.nox("-s", "verify", "--", "--root", str(legacy))
    assert done.returncode == 1
    for check in ("no-magma-suffix", "retired-pin", "magma-enabled", "two-stage-override"):
        assert f"error: {check}" in done.stdout


def test_wrong_arguments_after_the_dashes_exit_with_2(project: Project) -> None:
    done = project.nox("-s", "verify", "--", "--jsn")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


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


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_other_signals_then_are_one_line_as_well(project: Project, number: str, code: int) -> None:
    kill = f"import os, signal, time\nos.kill(os.getpid(), signal.{number})\ntime.sleep(60)\n"
    (project.root / "msgspec.py").write_text(kill)
    done = project.invoke_process("all")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert done.stderr.endswith("every file is whole, run again to go on\n")


def test_ctrl_c_while_modules_are_imported_is_one_line(project: Project) -> None:
    kill = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    (project.root / "msgspec.py").write_text(kill)
    done = project.invoke_process("all")
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; every file is whole, run again to go on\n"
    (project.root / "msgspec.py").unlink()
    for module in ("cli/phases.py", "generate/rendering.py"):
        path = project.own_program() / module
        text = path.read_text()
        path.write_text(text.replace("from __future__ import annotations\n", kill, 1))
        done = project.invoke_process("all")
        assert (done.returncode, done.stderr.count("interrupted"), done.stderr.count("\n")) == (
            130,
            1,
            1,
        )
        path.write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_after_the_work_is_done_changes_nothing(project: Project, number: str) -> None:
    late = f"import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.{number})\n"
    (project.root / "tasks.py").write_text((project.root / "tasks.py").read_text() + late)
    done = project.invoke_process("all", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "44 of 44 recipes" in done.stdout.splitlines()[-2]
    assert done.stdout.endswith("warnings\n")


def test_each_of_several_errors_is_marked_as_one(project: Project) -> None:
    project.edit("matrix.toml", *BREAK)
    project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 0")
    done = project.invoke("verify")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "error"]


def test_ci_matrix_is_readable_on_a_terminal_and_one_line_in_a_pipe(project: Project) -> None:
    piped = project.invoke("ci-matrix", "cpu-*").stdout
    assert piped.count("\n") == 1
    main, worker = pty.openpty()
    command = [sys.executable, "-m", "invoke", "ci-matrix", "cpu-*"]
    subprocess.run(command, cwd=project.root, stdout=worker, check=True)
    shown = os.read(main, 1 << 16).decode()
    assert shown.startswith('{\r\n  "include": [')
    assert json.loads(shown) == json.loads(piped)


def test_colour_is_for_terminals_only(project: Project) -> None:
    assert "\x1b" not in project.invoke("all").stdout

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen(Terminal())
    screen.line(screen.paint("x", "red"))
    assert screen.stream.getvalue() == "\x1b[31mx\x1b[0m\n"  # type: ignore[attr-defined]


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
        (["ci-matrix", "--runner", "x86_64-linux="], "use PLATFORM=LABEL"),
        (["ci-matrix", "--size", "9" * 5000], f'--size: found "{"9" * 37}..."'),
    ],
)
def test_a_value_that_an_option_cannot_have_is_one_line(
    project: Project, argv: list[str], says: str
) -> None:
    done = project.invoke(*argv)
    assert done.returncode == 2
    assert says in error_line(done)


@pytest.mark.parametrize(
    "argv",
    [
        ["invoke", "smoke", "--python", ""],
        ["invoke", "inspect", "cpu-avx2", "--path", ""],
        ["invoke", "publish", "cpu-avx2", "--org", ""],
        ["nox", "-s", "smoke", "--", "--python", ""],
        ["nox", "-s", "verify", "--", "--root", ""],
    ],
)
def test_an_empty_option_is_a_variable_that_was_not_set(project: Project, argv: list[str]) -> None:
    done = project.run(*argv)
    assert done.returncode == 2
    option = argv[-2]
    assert f"{option}: found an empty value, as from a variable that is not set" in error_line(done)


def test_error_messages_show_control_characters_escaped(project: Project) -> None:
    done = project.invoke("verify", "\x1b[31mx\u009b2J\u202e")
    assert done.returncode == 2
    assert r"\x1b[31mx\x9b2J\u202e" in error_line(done)
    assert not {"\x1b", "\u009b", "\u202e"} & set(done.stderr)
