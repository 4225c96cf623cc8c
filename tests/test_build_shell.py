"""`invoke shell`: the environment of a build, and the kept folder of a failed one."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Project, error_line, needs_nix
from world import World

FAILING = """
phases
mkdir "$NIX_BUILD_TOP/source"
touch "$NIX_BUILD_TOP/source/setup.py"
FROM_THE_BUILD=yes
export FROM_THE_BUILD
export >"$NIX_BUILD_TOP/env-vars"
echo "FAILED: a.o"
exit 1
"""
"""A build that fails in its build phase, and leaves what stdenv leaves."""


def typed(world: World, *argv: str, text: str) -> tuple[int, str]:
    """Run a command on a terminal at which somebody types. Return exit code and screen."""
    world.project.own_program()
    here, there = pty.openpty()
    env = {**os.environ, **world.env, "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", *argv],
        cwd=world.root, env=env, stdin=there, stdout=there, stderr=there, start_new_session=True,
    )  # fmt: skip
    os.close(there)
    os.write(here, text.encode())
    screen = b""
    while True:
        try:
            screen += os.read(here, 65536)
        except OSError:  # the last program that had the terminal has ended
            break
    os.close(here)
    return process.wait(60), screen.decode(errors="replace")


@needs_nix
def test_the_folder_of_a_failed_build(world: World) -> None:
    """It opens in the sources, with the variables of the phase that failed and its log."""
    world.scenario("cpu-avx2", FAILING)
    done = world.build("cpu-avx2", "--backend", "nix", "--keep-failed")
    assert done.returncode == 1
    log = next((world.root / ".build-pytorch/logs").rglob("*.log"))
    text = 'echo "in=$PWD variable=$FROM_THE_BUILD top=$NIX_BUILD_TOP"; exit 7\n'
    code, screen = typed(world, "invoke", "shell", "cpu-avx2", "--failed", text=text)
    assert code == 7, screen
    assert "phase build." in screen
    assert str(log.relative_to(world.root)) in screen
    line = next(line for line in screen.splitlines() if line.startswith("in="))
    facts = dict(word.split("=", 1) for word in line.split())
    folder = Path(facts["top"])
    assert (facts["in"], facts["variable"]) == (f"{folder}/source", "yes")
    shutil.rmtree(folder)
    gone = world.project.run("invoke", "shell", "cpu-avx2", "--failed", env=world.env)
    assert gone.returncode == 2
    assert f"{folder}: not there any more" in error_line(gone)


@needs_nix
def test_the_environment_of_a_build(reader: World) -> None:
    """Nothing is built, and the variables are those of the recipe."""
    text = 'echo "name=$name"; exit 0\n'
    code, screen = typed(reader, "invoke", "shell", "cpu-avx2", text=text)
    assert code == 0, screen
    assert "name=python3.13-pytorch210-python313-cpu-avx2-2.10.0" in screen
    assert "genericBuild" in screen
    assert "nixpkgs" not in screen  # nix-shell complains if it has to look for bash there


@needs_nix
def test_a_build_whose_folder_was_not_kept(world: World) -> None:
    argv = ("shell", "cpu-avx2", "--failed")
    none = world.project.run("invoke", *argv, env=world.env)
    assert (none.returncode, "the ledger has no build of it" in none.stderr) == (2, True)
    world.scenario("cpu-avx2", FAILING)
    world.build("cpu-avx2", "--backend", "nix")
    done = world.project.run("invoke", *argv, env=world.env)
    assert done.returncode == 2
    assert "names no kept folder; run `invoke build cpu-avx2 " in error_line(done)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "name a variant"),
        (("cpu-*",), "found 4 variants; name one of them"),
        pytest.param(("cpu-avx2",), "stdin is no terminal", marks=needs_nix),
    ],
)
def test_what_opens_no_shell(still: Project, argv: tuple[str, ...], says: str) -> None:
    done = still.run_process("invoke", "shell", *argv, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 2
    assert says in " ".join(error_line(done).split())
