"""`invoke show`: everything about one package."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from invoke.context import Context

from build_pytorch.base.console import Screen, print_json
from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.file_plan import Change
    from build_pytorch.matrix.model import Matrix, Package
    from build_pytorch.results.package_state import PackageState

# Properties that are keys of the JSON.
_OF_PACKAGE: Final = ("id", "package", "version", "untaken_hashes")
_OF_VARIANT: Final = ("release_name", "status", "impossible", "driver", "gpu", "cpu", "pin")
_OF_STATE: Final = ("steps", "output", "missing_evidence", "events", "log")


@command
def show(c: Context, package: str, verbose: bool = False, json: bool = False) -> None:
    """Show everything about one variant; `known`: the GPUs, ISAs."""
    from build_pytorch.generate import recipes
    from build_pytorch.generate.phase_plan import plan_recipe
    from build_pytorch.generate.text_plan import Tree
    from build_pytorch.results.package_state import chosen_package, package_states

    matrix, screen = load(), Screen(sys.stdout)
    if package == "known":
        _show_known(matrix, screen, json=json)
        return
    chosen = chosen_package(matrix, package)
    state = package_states(matrix.root, [chosen])[chosen.id]
    recipe = plan_recipe(matrix, Tree(matrix.root), chosen, recipes.render(matrix)[chosen.path])
    if json:
        document = {
            "torch": chosen.variant.id,
            "companions": _companions(matrix, chosen.variant),
            "rules": chosen.variant.effects.rules,
            "recipe": {"path": recipe.path, "action": recipe.action, "reason": recipe.reason},
            "state": state.overall,
        }
        subjects = {_OF_PACKAGE: chosen, _OF_VARIANT: chosen.variant, _OF_STATE: state}
        for names, subject in subjects.items():
            document |= {name: getattr(subject, name) for name in names}
        print_json(document, sys.stdout)
        return
    screen.line(screen.paint(chosen.id, "bold"))
    for name, text in (*_facts(matrix, chosen, verbose=verbose), *_results(state, recipe)):
        screen.fold(f"  {name:<11}", text, indent=13)


def _companions(matrix: Matrix, variant: Package) -> list[str]:
    return [it.id for it in matrix.companions if it.variant.path == variant.path]


def _facts(matrix: Matrix, package: Package, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield what a package is, each fact with its name; one without continues the one above."""
    variant, release, cuda, gpu = package.variant, package.release, package.cuda, package.gpu
    yield "status", ": ".join(filter(None, (variant.status, variant.impossible)))
    yield "package", package.package
    if package.companion:
        yield "companion", f"{package.name} {package.version} for the PyTorch of {variant.id}"
    if twin := variant.same_build_as:
        yield "same files", f"the same build as {twin.id}"
    if package.alias_of:
        yield "alias", f"of {package.alias_of}; {package.cpu.evidence}"
    needs = f", CUDA {cuda.version}, driver {variant.driver}" if cuda else ""
    torch = f"PyTorch {release.torch.version}, Python {release.python.version}{needs}"
    yield "release", f"{variant.release_name}: {torch}"
    yield "support", release.support
    if gpu:
        yield "gpu", f"{gpu.capability}: {', '.join(variant.products)}"
    yield "cpu", f"{variant.cpu.title} ({variant.platform}): {' '.join(variant.cpu.flags)}"
    if package is variant and (companions := _companions(matrix, variant)):
        yield "companions", ", ".join(companions)
    rules = variant.effects.rules
    if not verbose:
        yield "rules", ", ".join(rule.id for rule in rules) or "none"
        return
    yield "nixpkgs", f"{variant.pin.rev} (pin {release.nixpkgs.pin}) {variant.pin.doubts or ''}"
    for rule in rules:
        yield "rule", f"{rule.id}: {rule.effect.words}"
        doubt = f"; not confirmed: {rule.unconfirmed}" if rule.unconfirmed else ""
        yield "", f"{rule.reason} ({rule.source}, checked {rule.checked}){doubt}"


def _results(state: PackageState, recipe: Change) -> Iterator[tuple[str, str]]:
    """Yield what is known of the recipe, the result, its evidence and the last build."""
    yield "recipe", f"{recipe.path}: {recipe.action}, {recipe.reason}"
    other = f"{state.link}, of another recipe" if state.link else "not built from this recipe"
    doubts = "; its nixpkgs is not confirmed, see -v" if state.doubts else ""
    yield "result", state.output or f"{other}{doubts}"
    for test in state.of_recipe("tested"):
        why = f": {test.reason}" if test.reason else ""
        yield str(test.by), f"{test.outcome} at {test.at}{why}; {test.report}"
    if published := state.publication:
        yield "published", f"at {published.at} to {published.organization or 'your account'}"
    if last := state.last:
        cause = f" ({last.cause})" if last.cause else ""
        yield "last build", f"{last.outcome or last.event} at {last.at}{cause}; {state.log}"


def _show_known(matrix: Matrix, screen: Screen, *, json: bool) -> None:
    """Print what every matrix knows, and which values matrix.toml replaces or adds."""
    from build_pytorch.matrix import defaults
    from build_pytorch.matrix.field_types import quoted

    rows = list(defaults.rows(tomllib.loads(matrix.text)))
    if json:
        print_json(rows, sys.stdout)
        return
    for row in rows:
        text = ", ".join(f"{name} {quoted(value)}" for name, value in row.values.items())
        own = f"; matrix.toml: {', '.join(row.replaced)}" if row.replaced else f"; {row.source}"
        screen.fold(f"{row.kind:<6}{row.key:<22}", f"{text}{own}", indent=28)
