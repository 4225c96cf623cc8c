"""Nix commands other than evaluation: argument lists, and queries of the store."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.nix.evaluation import message_of

# Programs of Nix, for `process.which`.
NIX: Final = "nix"
NIX_BUILD: Final = "nix-build"
NIX_INSTANTIATE: Final = "nix-instantiate"
NIX_STORE: Final = "nix-store"


def folder() -> Path:
    """Return the folder of the Nix store. Nix manual, "Common Environment Variables"."""
    return Path(os.environ.get("NIX_STORE_DIR", "/nix/store"))


def this_system() -> str:
    """Return the platform of this machine, such as `x86_64-linux`."""
    return f"{platform.machine()}-{platform.system().lower()}"


class NixSettings(msgspec.Struct, frozen=True):
    """Settings of the Nix installed here: what this machine can build."""

    systems: tuple[str, ...]
    sandbox_paths: tuple[str, ...] = ()


def settings() -> NixSettings:
    """Return the settings of Nix; without Nix (Flox brings its own), those of the machine.

    Raises ToolError if Nix fails.
    """
    if not process.which(NIX):
        return NixSettings((this_system(),))
    # The name of `config show` before Nix 2.20, which newer ones know as well.
    options = ("--extra-experimental-features", "nix-command", "show-config", "--json")
    answer = process.output_of([NIX, *options])
    try:
        found = msgspec.json.decode(answer, type=dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        raise ToolError("nix show-config: the output is not JSON") from None
    names = ("system", "extra-platforms", "sandbox-paths")
    system, platforms, mounted = (found.get(name, {}).get("value") or () for name in names)
    return NixSettings((str(system), *map(str, platforms)), tuple(map(str, mounted)))


def valid_paths(paths: Sequence[str]) -> set[str]:
    """Return the store paths that are valid; without Nix, those that exist.

    Paths of another store, as other machines may record them, are not. Raises ToolError if the
    store cannot be read.
    """
    present = [path for path in dict.fromkeys(paths) if path and Path(path).exists()]
    if not present or not process.which(NIX_STORE):
        return set(present)
    present = [path for path in present if Path(path).parent == folder()]
    argv = [NIX_STORE, "--check-validity", "--print-invalid", *present]
    answer = process.run(argv)
    if answer.code:
        raise ToolError(f"the Nix store cannot be read: {message_of(answer.stderr)}")
    return set(present) - set(answer.stdout.split())


def requisites(output: str) -> list[str]:
    """Return the runtime closure of a store path, itself included. Raises ToolError."""
    return process.output_of([NIX_STORE, "--query", "--requisites", output]).split()


def sizes(paths: Sequence[str]) -> list[int]:
    """Return the size of each store path in bytes. Raises ToolError."""
    return list(map(int, process.output_of([NIX_STORE, "--query", "--size", *paths]).split()))


class MissingPaths(msgspec.Struct, frozen=True):
    """What Nix would do: the derivations that it builds, and how many paths it fetches."""

    built: tuple[str, ...]
    fetched: int


def missing_paths(derivations: Sequence[str]) -> MissingPaths | None:
    """Return what Nix would build and fetch for derivations, or None if it does not say."""
    argv = [NIX_STORE, "--realise", "--dry-run", *derivations]
    answer = process.run(argv)
    lines = [line.strip() for line in answer.stderr.splitlines()]
    paths = [line for line in lines if line.startswith(f"{folder()}/")]
    built = tuple(path for path in paths if path.endswith(".drv"))
    return None if answer.code else MissingPaths(built, len(paths) - len(built))


def build_argv(recipe: str, link: str, cores: int) -> list[str]:
    """Return the command that builds a recipe, with the log that `NixLogReader` reads.

    Both paths are relative to its folder.
    """
    argv = [NIX_BUILD, recipe, "--out-link", link, "--cores", str(cores)]
    return [*argv, "--log-format", "internal-json"]


def evaluate_argv(expression: str) -> list[str]:
    """Return the command that prints the value of an expression as JSON."""
    return [NIX_INSTANTIATE, "--eval", "--strict", "--json", "-E", expression]


def build_expression_argv(expression: str) -> list[str]:
    """Return the command that builds an expression without a result link."""
    return [NIX_BUILD, "--no-out-link", "-E", expression]


def prefetch_tarball_argv(url: str) -> list[str]:
    """Return the command that prints the SHA-256 hash of an unpacked tarball."""
    return ["nix-prefetch-url", "--unpack", "--type", "sha256", url]


def shell_commands(recipe: str, folder: str) -> tuple[str, str]:
    """Return the commands, for messages, that go on in the kept folder of a failed build.

    A sandbox shows it to the build as /build; env-vars has that path, which does not exist here.
    """
    here = shlex.quote(folder)
    names = " ".join(f"{name}=$PWD" for name in ("NIX_BUILD_TOP", "TMPDIR", "TEMP", "TMP"))
    return f"nix-shell {shlex.quote(recipe)}", f". {here}/env-vars; cd {here}; export {names}"


def delete_command(output: str) -> str:
    """Return the command, for messages, that deletes a store path."""
    return f"{NIX_STORE} --delete {output}"
