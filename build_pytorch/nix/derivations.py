"""The derivations of recipes and their store paths, all from one evaluation by Nix.

The recipes are evaluated unchanged, as Flox and `nix-build` do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.tables import CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import evaluation, quoting
from build_pytorch.nix.evaluation import Recipe

_FACTS: Final = Path(__file__).resolve().with_name("derivations.nix")


class Derivation(msgspec.Struct, frozen=True, rename="camel"):
    """What Nix would build for a recipe."""

    drv_path: str
    outputs: dict[str, str]
    system: str

    @property
    def output(self) -> str:
        """Return the store path that a result link points to."""
        return self.outputs["out"] if "out" in self.outputs else next(iter(self.outputs.values()))


def evaluate(
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
    facts = f"facts = import (/. + {quoting.literal(str(_FACTS))});"
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
