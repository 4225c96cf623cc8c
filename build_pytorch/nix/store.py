"""Derivations of recipes, queries of the store, and the command lines of Nix."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import files, process
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.tables import CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import evaluation, quoting
from build_pytorch.nix.evaluation import Recipe, message_of

_DERIVATIONS: Final = Path(__file__).resolve().with_name("derivations.nix")

# Programs of Nix, for `process.which`.
NIX: Final = "nix"
NIX_BUILD: Final = "nix-build"
NIX_INSTANTIATE: Final = "nix-instantiate"
NIX_STORE: Final = "nix-store"


class Derivation(msgspec.Struct, frozen=True, rename="camel"):
    """What Nix would build for a recipe."""

    drv_path: str
    outputs: dict[str, str]
    system: str

    @property
    def output(self) -> str:
        """Return the store path that a result link points to."""
        return self.outputs["out"] if "out" in self.outputs else next(iter(self.outputs.values()))


def evaluated_derivations(
    root: Path, packages: Sequence[Package]
) -> tuple[dict[str, Derivation], dict[str, str]]:
    """Return the derivations of packages by attribute, and the errors of those without one.

    One Nix process evaluates all recipes without an error. Raises ToolError if Nix is missing or
    nixpkgs cannot be downloaded.
    """
    if not packages:
        return {}, {}
    top = root.resolve()
    recipes = [
        Recipe(
            package.path,
            f"{top}/{package.path}",
            files.read_below(root, package.path).decode(errors="replace"),
            variant="" if package.variant is package else f"{top}/{package.variant.path}",
        )
        for package in packages
    ]
    facts = f"facts = import (/. + {quoting.literal(str(_DERIVATIONS))});"
    results = evaluation.evaluate(recipes, facts, "evaluating recipes")
    found: dict[str, Derivation] = {}
    failures: dict[str, str] = {}
    for package in packages:
        result = results.get(package.path)
        if result and result.facts:
            found[package.attribute] = msgspec.convert(result.facts, Derivation)
        elif result:
            failed = results[result.needs] if result.needs else result
            failures[package.attribute] = failed.error
    return found, failures


def local_checkout(variant: Variant) -> str:
    """Return the checkout that a build of the variant reads now; empty for none."""
    packages = variant.packages_from
    is_read = packages is not None and not packages.folder
    return os.environ.get(CUDA_PACKAGES_VARIABLE, "") if is_read else ""


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


def missing_paths(derivations: Sequence[str]) -> list[str]:
    """Return the derivations that Nix would build for some and the paths that it would fetch.

    Empty if it does not say.
    """
    answer = process.run([NIX_STORE, "--realise", "--dry-run", *derivations])
    lines = [] if answer.code else map(str.strip, answer.stderr.splitlines())
    return [line for line in lines if line.startswith(f"{folder()}/")]


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
