"""Outgrowing one machine: remote builders over SSH, CI, release.nix."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import needs_nix
from world import World

pytestmark = needs_nix


# --- remote builders ---


FEATURES = "big-parallel,gccarch-armv8.2-a,gccarch-armv9-a"


SSH = """#!/bin/sh
case " $* " in *" -O "*) exit 1 ;; *LocalCommand*) echo started ;; esac
{exports}
exec unshare -m sh -c 'mount --bind {there} {here} && exec nix-daemon --stdio'
"""
"""An SSH client whose server is a second machine for Nix: with a store of its own, which has the
same path, as on real machines; it is mounted there in a namespace of its own."""


def remote_store(world: World, folder: Path) -> Path:
    """Put an ARM machine behind SSH, and return its store."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace may be made here")
    store = folder / "store"
    store.mkdir(parents=True)
    env = {**world.site.env, "NIX_STATE_DIR": f"{folder}/state", "NIX_LOG_DIR": f"{folder}/log"}
    env["NIX_CONFIG"] += "\nsystem = aarch64-linux"
    exports = "\n".join(f"export {name}='{value}'" for name, value in env.items())
    world.program("ssh", SSH.format(exports=exports, there=store, here=world.site.store))
    return store


@pytest.mark.slow
def test_arm_variants_are_built_on_an_arm_builder_from_an_x86_machine(
    world: World, tmp_path: Path
) -> None:
    """A build that can only end badly is stopped there, and the others go on."""
    store = remote_store(world, tmp_path / "remote")
    machine = f"ssh-ng://root@127.0.0.1 aarch64-linux - 4 1 {FEATURES}"
    world.scenario("sm121-armv9", "cuda=OFF; summary; sleep 600")
    names = ("sm110-armv9", "sm121-armv9", "cpu-avx2")
    done = world.built(",".join(names), "--builders", machine)
    assert done["returncode"] == 1, done["stderr"]
    assert done["by_id"]["sm110-armv9"]["outcome"] == "built"
    assert done["by_id"]["sm121-armv9"]["cause"] == "cuda-off"
    # The result is here, linked; the builder has it as well.
    target = world.link("cuda13_0-sm110-armv9").resolve()
    assert target.exists()
    assert (store / target.name).exists()
    here = world.link("cpu-avx2").resolve()
    assert not (store / here.name).exists()
    built = [event for event in world.ledger() if event.get("outcome") == "built"]
    assert {e["variant"]: e.get("where", "") for e in built} == {
        "sm110-armv9": "ssh-ng://root@127.0.0.1",
        "cpu-avx2": "",
    }
    again = world.built("sm110-armv9", "--builders", machine)
    assert again["by_id"]["sm110-armv9"]["action"] == "up to date"


@pytest.mark.slow
def test_a_builder_that_cannot_be_reached_is_named(world: World) -> None:
    line = f"ssh://root@127.0.0.1 aarch64-linux /nowhere 1 1 {FEATURES}"
    world.env["NIX_SSHOPTS"] = "-p 1"
    done = world.built("sm121-armv9,cpu-avx2", "--builders", line)
    assert done["by_id"]["sm121-armv9"]["outcome"] == "failed"
    assert done["by_id"]["sm121-armv9"]["cause"] == "builder-unreachable"
    assert done["by_id"]["cpu-avx2"]["outcome"] == "built"  # here


# --- release.nix ---


def test_release_nix_has_the_derivations_of_the_recipes(built: World) -> None:
    shown = "builtins.mapAttrs (_: d: d.drvPath)"
    expression = f"{shown} (import {built.root}/release.nix {{ }})"
    together = json.loads(
        built.site.nix("nix-instantiate", "--eval", "--strict", "--json", "-E", expression)
    )
    assert len(together) == 3 * 44, "each variant with TorchVision and TorchAudio"
    for package in (
        "pytorch-python313-cuda13_0-sm90-avx512",
        "pytorch-python313-cuda13_0-sm121-armv9",
        "pytorch-python313-cpu-avx2",
    ):
        recipe = built.root / f".flox/pkgs/{package}.nix"
        assert built.site.nix("nix-instantiate", str(recipe)).split()[-1] == together[package]
    real = f"builtins.attrNames (import {built.root}/release.nix {{ impossibleHosts = false; }})"
    names = json.loads(
        built.site.nix("nix-instantiate", "--eval", "--strict", "--json", "-E", real)
    )
    assert len(names) == 3 * 36


def test_packages_of_release_nix_have_tests_in_the_shape_of_nixpkgs(built: World) -> None:
    release = f"(import {built.root}/release.nix {{ }})"
    shown = "builtins.mapAttrs (_: it: it.requiredSystemFeatures)"
    for name, tests in (
        ("pytorch-python313-cpu-avx2", {"smoke": []}),
        ("pytorch-python313-cuda13_0-sm90-avx2", {"smoke": [], "gpuCheck": ["cuda"]}),
        ("torchvision-python313-cuda13_0-sm90-avx2", {"smoke": [], "gpuCheck": ["cuda"]}),
    ):
        expression = f'{shown} {release}."{name}".passthru.tests'
        argv = ("nix-instantiate", "--eval", "--strict", "--json", "-E", expression)
        assert json.loads(built.site.nix(*argv)) == tests
    attribute = "pytorch-python313-cpu-avx2.tests.smoke"
    build = ("nix-build", f"{built.root}/release.nix", "--no-out-link", "-A", attribute)
    assert built.site.nix(*build).endswith("-pytorch210-python313-cpu-avx2-smoke\n")
