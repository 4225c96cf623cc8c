"""The folder of a failed build that is kept, and the commands that go on in it."""

from __future__ import annotations

import re
import subprocess

from conftest import needs_nix
from world import World

FAILING = """
phases
mkdir "$NIX_BUILD_TOP/source"
FROM_THE_BUILD=yes
export FROM_THE_BUILD
NIX_BUILD_TOP=/build TMPDIR=/build bash -c export >"$NIX_BUILD_TOP/env-vars"
echo "FAILED: a.o"
exit 1
"""
"""Fails in its build phase and leaves what stdenv leaves in a sandbox."""


@needs_nix
def test_the_printed_commands_go_on_in_the_kept_folder(world: World) -> None:
    world.scenario("cpu-avx2", FAILING)
    done = world.build("cpu-avx2", "--backend", "nix", "--keep-failed")
    assert done.returncode == 1
    lines = re.search(r"its folder is kept.*:\n +nix-shell (\S+)\n +(\. .*)\n", done.stdout)
    assert lines, done.stdout
    probe = 'echo "name=$name variable=$FROM_THE_BUILD"; ls -d source; touch "$(mktemp)"; pwd'
    shell = subprocess.run(
        ["nix-shell", lines[1], "--run", f"{lines[2]}; {probe}"],
        cwd=world.root, env=world.site.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    name, source, folder = shell.stdout.splitlines()
    assert name == "name=python3.13-pytorch210-python313-cpu-avx2-2.10.0 variable=yes"
    assert (source, folder in lines[2]) == ("source", True)


@needs_nix
def test_a_folder_that_is_not_kept_is_not_named(world: World) -> None:
    world.scenario("cpu-avx2", FAILING)
    assert "its folder is kept" not in world.build("cpu-avx2", "--backend", "nix").stdout
