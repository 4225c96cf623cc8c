"""Outgrowing one machine: remote builders over SSH, CI, release.nix."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import needs_nix
from world import Site, World

pytestmark = needs_nix


# --- remote builders ---


FEATURES = "big-parallel,gccarch-armv8.2-a,gccarch-armv9-a"


class Remote:
    """A second machine for Nix: an SSH server on loopback with a store of its own.

    Both stores have the same path, as on real machines; the server's is mounted there in a
    namespace of its own. The path of `sockets` has to be short: a socket's has 107 bytes at most.
    """

    def __init__(self, folder: Path, site: Site, sockets: str) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.store.mkdir(parents=True)
        key = self._key("client")
        self._serve_script(site)
        (folder / "authorized_keys").write_text(
            f'command="{folder}/serve" {(folder / "client.pub").read_text()}'
        )
        host = self._key("host")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        (folder / "sshd_config").write_text(
            textwrap.dedent(
                f"""
                ListenAddress 127.0.0.1
                Port {self.port}
                HostKey {host}
                PidFile none
                AuthorizedKeysFile {folder}/authorized_keys
                PasswordAuthentication no
                PermitRootLogin yes
                StrictModes no
                UsePAM no
                """
            )
        )
        self.key = key
        known = f"[127.0.0.1]:{self.port} {(folder / 'host.pub').read_text()}"
        (folder / "known_hosts").write_text(known)
        self.options = (
            f"-p {self.port} -o UserKnownHostsFile={folder}/known_hosts -o ControlMaster=auto "
            f"-o ControlPath={sockets}/master -o ControlPersist=60"
        )

    def _key(self, name: str) -> Path:
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path

    def _serve_script(self, site: Site) -> None:
        script = self.folder / "serve"
        env = {
            **site.env,
            "NIX_STATE_DIR": f"{self.folder}/state",
            "NIX_LOG_DIR": f"{self.folder}/log",
            "NIX_CONFIG": site.env["NIX_CONFIG"] + "\nsystem = aarch64-linux",
        }
        exports = "\n".join(f"export {name}='{value}'" for name, value in env.items())
        script.write_text(
            f"#!/bin/sh\n{exports}\nexec unshare -m sh -c '"
            f"mount --bind {self.store} {site.store} && exec nix-daemon --stdio'\n"
        )
        script.chmod(0o755)

    def machines(self) -> str:
        return f"ssh-ng://root@127.0.0.1 aarch64-linux {self.key} 4 1 {FEATURES}"


def _lacking() -> str:
    for name in ("sshd", "ssh-keygen", "unshare"):
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            return f"{name} is not installed"
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "no mount namespace may be made here" if probe.returncode else ""


def build_dependencies(world: World) -> None:
    """Build most dependencies of ARM variants here: a remote build takes an SSH connection."""
    nix = world.site.nix
    (drv,) = nix("nix-instantiate", str(world.project.recipe("cuda13_0-sm121-armv9"))).split()
    references = nix("nix-store", "--query", "--references", drv).split()
    inputs = [path for path in references if path.endswith(".drv") and "-which-" not in path]
    config = world.site.env["NIX_CONFIG"] + "\nextra-platforms = aarch64-linux"
    nix("nix-store", "--realise", *inputs, env={"NIX_CONFIG": config})


@pytest.fixture
def remote(world: World, tmp_path: Path) -> Iterator[Remote]:
    if reason := _lacking():
        pytest.skip(reason)
    sockets = tempfile.TemporaryDirectory(dir="/tmp")
    machine = Remote(tmp_path / "remote", world.site, sockets.name)
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    server = subprocess.Popen([str(sshd), "-D", "-e", "-f", f"{machine.folder}/sshd_config"])
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", machine.port)) == 0:
                break
        time.sleep(0.05)
    world.env["NIX_SSHOPTS"] = machine.options
    build_dependencies(world)
    yield machine
    server.terminate()
    server.wait()
    sockets.cleanup()


@pytest.mark.slow
def test_arm_variants_are_built_on_an_arm_builder_from_an_x86_machine(
    world: World, remote: Remote
) -> None:
    """A build that can only end badly is stopped there, and the others go on."""
    world.scenario("sm121-armv9", "cuda=OFF; summary; sleep 600")
    names = ("sm110-armv9", "sm121-armv9", "cpu-avx2")
    done = world.built(",".join(names), "--builders", remote.machines())
    assert done["returncode"] == 1, done["stderr"]
    assert done["by_id"]["sm110-armv9"]["outcome"] == "built"
    assert done["by_id"]["sm121-armv9"]["cause"] == "cuda-off"
    # The result is here, linked; the builder has it as well.
    target = world.link("cuda13_0-sm110-armv9").resolve()
    assert target.exists()
    assert (remote.store / target.name).exists()
    here = world.link("cpu-avx2").resolve()
    assert not (remote.store / here.name).exists()
    built = [event for event in world.ledger() if event.get("outcome") == "built"]
    assert {e["variant"]: e.get("where", "") for e in built} == {
        "sm110-armv9": "ssh-ng://root@127.0.0.1",
        "cpu-avx2": "",
    }
    again = world.built("sm110-armv9", "--builders", remote.machines())
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
