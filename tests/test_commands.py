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
from conftest import PROJECT, Project, error_line
from invoke.parser.parser import ParseMachine, Parser

from build_pytorch.base.console import Screen
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, option_specs
from build_pytorch.cli.invoke_tasks import collection

BREAK = ('capability = "12.1"', 'capability = "sm_121"')


def test_invoke_lists_the_phases_with_a_line_each(project: Project) -> None:
    listing = project.invoke("--list").stdout
    for name in ("phase1", "phase2", "phase3", "phase4", "phase5", "all", "verify"):
        assert any(line.split()[:1] == [name] for line in listing.splitlines())


def test_invoke_keeps_bytecode_so_that_the_package_is_compiled_once(project: Project) -> None:
    compiled = project.root / "build_pytorch/cli/__pycache__"
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
    by_nox = project.nox("-s", "verify", "--", "--json")
    by_invoke = project.invoke("verify", "--json")
    assert by_nox.returncode == by_invoke.returncode == 0
    assert json.loads(by_nox.stdout) == json.loads(by_invoke.stdout)


@pytest.mark.parametrize("name", ["verify", "prefetch", "smoke", "build"])
def test_invoke_and_nox_offer_the_same_options(project: Project, name: str) -> None:
    session = "build(cpu-avx2)" if name == "build" else name
    by_nox = project.nox("-s", session, "--", "--help").stdout
    by_invoke = project.invoke("--help", name).stdout
    offered = set(re.findall(r"--[a-z][a-z-]+", by_nox.partition("options:")[2])) - {"--help"}
    assert offered == set(re.findall(r"(?m)^  (--[a-z][a-z-]+)", by_invoke)) - {"--variants"}
    assert {f"--{spec.name}" for spec in option_specs(COMMANDS[name].options)} == offered | {
        "--variants" for spec in option_specs(COMMANDS[name].options) if spec.is_positional
    }


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_names_a_function_that_takes_its_options(command: Command) -> None:
    module, name = command.place
    function = getattr(import_module(f"build_pytorch.cli.{module}"), name)
    hints = get_type_hints(getattr(function, "func", function))
    assert command.options in hints.values()


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("verify sm90-* cpu-avx2", {"variants": ["sm90-*", "cpu-avx2"]}),
        (
            "verify --only text a --only syntax b",
            {"variants": ["a", "b"], "only": ["text", "syntax"]},
        ),
        ("verify --root x a", {"variants": ["a"], "root": "x"}),
        ("verify a --json", {"variants": ["a"], "json": True}),
    ],
)
def test_a_task_takes_any_number_of_variants(words: str, given: dict[str, object]) -> None:
    """Fails if a new version of Invoke changes the parser method that invoke_tasks replaces."""
    (context,) = Parser(contexts=collection().to_contexts()).parse_argv(words.split())
    values = {argument.name: argument.value for argument in context.args.values()}
    assert {name: value for name, value in values.items() if value} == given
    assert list(inspect.signature(ParseMachine.handle).parameters) == ["machine", "token"]


def test_verify_works_on_another_root(project: Project, legacy: Path) -> None:
    done = project.nox("-s", "verify", "--", "--root", str(legacy))
    assert done.returncode == 1
    for check in ("no-magma-suffix", "retired-pin", "magma-enabled", "torch-attribute"):
        assert f"error: {check}" in done.stdout


def test_wrong_arguments_after_the_dashes_exit_with_2(project: Project) -> None:
    done = project.nox("-s", "verify", "--", "--jsn")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_missing_dependency_is_one_line(project: Project) -> None:
    (project.root / "msgspec.py").write_text("raise ModuleNotFoundError(name='msgspec')")
    for done in (project.invoke("all"), project.nox("-s", "verify")):
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

    for command in ("invoke verify", "invoke all", "nox -s verify"):
        done = piped(command)
        assert done.stdout.endswith("code 1\n"), command
        assert "Traceback" not in done.stderr
    assert project.recipe("cuda13_0-sm90-avx2").exists()


def test_colour_is_for_terminals_only(project: Project) -> None:
    assert "\x1b" not in project.invoke("all").stdout

    class Terminal:
        def isatty(self) -> bool:
            return True

    assert Screen(Terminal()).paint("x", "red") == "\x1b[31mx\x1b[0m"  # type: ignore[arg-type]


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
        (["recommend", "--for", "trainng"], 'inference, training; did you mean "training"?'),
        (["build", "cpu-avx2", "--cores", "1.5"], '--cores: found "1.5"'),
        (["prefetch", "--timeout", "x"], '--timeout: found "x"'),
        (["bump", "--timeout", "x"], '--timeout: found "x"'),
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
        ["invoke", "status", "--root", ""],
        ["nox", "-s", "smoke", "--", "--root", ""],
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
