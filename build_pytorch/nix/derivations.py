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
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES, CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import nix_evaluation, quoting
from build_pytorch.nix.nix_evaluation import RecipeSource, message_of, wait_with_progress

_FUNCTION: Final = Path(__file__).resolve().with_name("derivations.nix")

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
    by_path = {package.path: package.attribute for package in packages}
    variants = {package.path: package.variant.path for package in packages}
    recipes = [
        RecipeSource(
            path, str(root.resolve() / path), files.read_text_below(root, path), needs=variant
        )
        for path, variant in variants.items()
    ]
    if not recipes:
        return DerivationSet({}, {})
    run = nix_evaluation.run_recipes(
        recipes,
        lambda rest, share: nix_evaluation.start(_expression(rest, share=share)),
        lambda running, total: wait_with_progress(running, "evaluating recipes", total),
    )
    failures = {by_path[path]: message_of(result.stderr) for path, result in run.failed.items()}
    if run.result.code and run.recipes:
        raise ToolError(f"Nix cannot evaluate the recipes: {message_of(run.result.stderr)}")
    if run.result.code:
        return DerivationSet({}, failures)
    decoded = msgspec.json.decode(run.result.stdout.encode(), type=dict[str, Derivation])
    return DerivationSet({by_path[path]: found for path, found in decoded.items()}, failures)


def _expression(recipes: Sequence[RecipeSource], *, share: bool) -> str:
    imports, items = nix_evaluation.recipe_list(recipes, share=share)
    function = quoting.literal(str(_FUNCTION))
    arguments = f"recipes = {items}; imports = {{ {imports} }};"
    return f"import (/. + {function}) {{ {arguments} }}"


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
