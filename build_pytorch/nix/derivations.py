"""The derivations of recipes and their store paths, all from one evaluation by Nix.

The recipes are evaluated unchanged, as Flox and `nix-build` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Variant
from build_pytorch.nix import nix_evaluation
from build_pytorch.nix.nix_evaluation import RecipeSource, message_of


class Derivation(msgspec.Struct, frozen=True, rename="camel"):
    """What Nix would build for a recipe."""

    drv_path: str
    outputs: dict[str, str]
    system: str
    features: tuple[str, ...]

    @property
    def output(self) -> str:
        """Return the store path that a result link points to."""
        return self.outputs["out"] if "out" in self.outputs else next(iter(self.outputs.values()))


class DerivationSet(msgspec.Struct, frozen=True):
    """Derivations by package name, and the error message of each package without one."""

    derivations: dict[str, Derivation]
    failures: dict[str, str]


def evaluate(root: Path, variants: Sequence[Variant], *, write: bool = False) -> DerivationSet:
    """Return the derivations of variants, from one Nix process if all recipes evaluate.

    With `write` the derivations are put into the store and can be built without another
    evaluation. Raises ToolError if Nix is missing or nixpkgs cannot be downloaded.
    """
    failures: dict[str, str] = {}
    by_path = {variant.path: variant for variant in variants}
    rest = [
        RecipeSource(path, str(file), file.read_text(encoding="utf-8", errors="replace"))
        for path in by_path
        for file in [(root / path).resolve()]
    ]
    while rest:
        running = nix_evaluation.start(_expression(rest), write=write)
        answer = nix_evaluation.wait_with_progress(running, "evaluating recipes", len(rest))
        if answer.code == 0:
            decoded = msgspec.json.decode(answer.stdout.encode(), type=dict[str, Derivation])
            found = {by_path[recipe.id].package: decoded[recipe.id] for recipe in rest}
            return DerivationSet(found, failures)
        nix_evaluation.require_network(answer.stderr)
        message = nix_evaluation.message_of(answer.stderr)
        culprit = nix_evaluation.culprit(answer.stderr, rest)
        if culprit is None:
            raise ToolError(f"Nix cannot evaluate the recipes: {message}")
        failures[by_path[culprit.id].package] = message
        rest.remove(culprit)
    return DerivationSet({}, failures)


def _expression(recipes: Sequence[RecipeSource]) -> str:
    imports, items = nix_evaluation.recipe_list(recipes)
    return f"""let
  imports = {{ {imports} }};
  described = {{ id, path, nixpkgs ? null }}: {{
    name = id;
    value = builtins.trace "evaluating ${{id}}" (
      let
        recipe = import (/. + path);
        arguments = if nixpkgs == null then {{ }} else {{ nixpkgs_pinned = imports.${{nixpkgs}}; }};
        d = if builtins.isFunction recipe then recipe arguments else recipe;
      in {{
        inherit (d) drvPath system;
        outputs = builtins.listToAttrs
          (map (name: {{ inherit name; value = d.${{name}}.outPath; }}) d.outputs);
        features = d.requiredSystemFeatures or [ ];
      }});
  }};
in builtins.listToAttrs (map described {items})"""


def valid(paths: Sequence[str]) -> set[str]:
    """Those of the store paths that the store really has. Without Nix: those that exist."""
    present = [path for path in dict.fromkeys(paths) if path and Path(path).exists()]
    if not present or not process.which("nix-store"):
        return set(present)
    answer = process.capture(
        ["nix-store", "--check-validity", "--print-invalid", *present], check=False
    )
    if answer.code:
        raise ToolError(f"the Nix store cannot be asked: {message_of(answer.stderr)}")
    return set(present) - set(answer.stdout.split())


class Settings(msgspec.Struct, frozen=True):
    """What Nix is set to here: what it can build itself, and how."""

    systems: tuple[str, ...]
    features: tuple[str, ...] | None
    """None where nobody could be asked."""


def settings() -> Settings:
    """Ask Nix; where it is not installed (Flox brings its own), go by the machine.

    Raises ToolError where Nix does not answer.
    """
    if not process.which("nix"):
        import platform

        return Settings((f"{platform.machine()}-{platform.system().lower()}",), None)
    nix_command = ["nix", "--extra-experimental-features", "nix-command"]
    answer = process.capture([*nix_command, "config", "show", "--json"], check=False)
    if answer.code:  # Nix before 2.20
        answer = process.capture([*nix_command, "show-config", "--json"])
    try:
        found = msgspec.json.decode(answer.stdout, type=dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        raise ToolError("nix show-config: answers something else than JSON") from None

    def listed(name: str) -> list[str]:
        value = found.get(name, {}).get("value")
        return [str(item) for item in value] if isinstance(value, list) else []

    system = str(found.get("system", {}).get("value"))
    return Settings((system, *listed("extra-platforms")), tuple(listed("system-features")))
