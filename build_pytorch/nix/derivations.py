"""The derivations of recipes and their store paths, all from one evaluation by Nix.

The recipes are evaluated unchanged, as Flox and `nix-build` do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES, CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import quoting
from build_pytorch.nix.evaluation import Evaluation, Recipe, Scope

_FACTS: Final = Path(__file__).resolve().with_name("derivations.nix")

CHECKOUT_FOLDER = ".flox/pkgs"
"""The folder of the files in the repository and in a checkout of it."""


class Derivation(msgspec.Struct, frozen=True, rename="camel"):
    """What Nix would build for a recipe."""

    drv_path: str
    outputs: dict[str, str]
    system: str
    features: tuple[str, ...]
    broken: bool = False
    """meta.broken, which `flox publish` copies into the catalogue."""

    @property
    def output(self) -> str:
        """Return the store path that a result link points to."""
        return self.outputs["out"] if "out" in self.outputs else next(iter(self.outputs.values()))


class DerivationSet(msgspec.Struct, frozen=True):
    """Derivations by attribute, and the error message of each package without one."""

    derivations: dict[str, Derivation]
    failures: dict[str, str]


def evaluate(root: Path, packages: Sequence[Package]) -> DerivationSet:
    """Return the derivations of packages, from one Nix process if all recipes evaluate.

    Raises ToolError if Nix is missing or nixpkgs cannot be downloaded.
    """
    if not packages:
        return DerivationSet({}, {})
    top = root.resolve()
    names = {package.path: package.attribute for package in packages}
    recipes = [
        Recipe(
            package.path,
            f"{top}/{package.path}",
            files.read_text_below(root, package.path),
            variant="" if package.variant is package else f"{top}/{package.variant.path}",
        )
        for package in packages
    ]
    scope = Scope(f"facts = import (/. + {quoting.literal(str(_FACTS))});")
    results = Evaluation(recipes, scope, "evaluating recipes").finish()
    found = {
        names[path]: msgspec.convert(result.facts, Derivation)
        for path, result in results.items()
        if result.facts
    }
    failures = {
        names[path]: (results[result.needs] if result.needs else result).error
        for path, result in results.items()
        if not result.facts
    }
    return DerivationSet(found, failures)


def local_checkout(variant: Variant) -> str:
    """Return the checkout that a build of the variant reads now; empty for none."""
    packages = variant.packages_from
    is_read = packages is not None and not packages.is_copied
    return os.environ.get(CUDA_PACKAGES_VARIABLE, "") if is_read else ""


def missing_files(folder: Path, variant: Variant) -> list[str]:
    """Return the names of the files of packages that a folder does not have."""
    cuda = variant.cuda
    names = [cuda.package_file(package) for package in CUDA_PACKAGES] if cuda else []
    return [name for name in names if not (folder / name).is_file()]


def unreadable_checkouts(variants: Sequence[Variant]) -> Iterator[str]:
    """Yield why the checkout that builds of variants would read cannot be read."""
    for variant in variants:
        path = local_checkout(variant)
        if path and not Path(path).is_absolute():
            yield f'{CUDA_PACKAGES_VARIABLE}: found "{path}"; allowed: an absolute path'
            return
        if path and (missing := missing_files(Path(path, CHECKOUT_FOLDER), variant)):
            what = f"{path}/{CHECKOUT_FOLDER} has no {', '.join(missing)}"
            fix = "name a checkout that has them, or unset the variable"
            yield f"{CUDA_PACKAGES_VARIABLE}: {what}; {fix}"
            return
