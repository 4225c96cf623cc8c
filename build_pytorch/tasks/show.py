"""`invoke show`: everything about one package."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.matrix.model import Matrix, Package
    from build_pytorch.results.package_state import PackageState


@command
def show(c: Context, package: str, verbose: bool = False, json: bool = False) -> None:
    """Show everything about one variant; `known`: the GPUs, ISAs."""
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.generate import recipes
    from build_pytorch.generate.phase_plan import plan_recipe
    from build_pytorch.generate.text_plan import Tree
    from build_pytorch.results.package_selection import chosen_package
    from build_pytorch.results.package_state import package_states

    matrix, screen = load(), Screen(sys.stdout)
    if package == "known":
        _show_known(matrix, screen, json=json)
        return
    chosen = chosen_package(matrix, package)
    variant = chosen.variant
    state = package_states(matrix.root, [chosen])[chosen.id]
    recipe = plan_recipe(matrix, Tree(matrix.root), chosen, recipes.render(matrix)[chosen.path])
    steps = commands(state)
    if json:
        document = {
            "id": chosen.id,
            "package": chosen.package,
            "version": chosen.version,
            "torch": variant.id,
            "companions": [each.id for each in matrix.companions_of(variant)],
            "status": variant.status,
            "reason": variant.impossible or "",
            "release": variant.release_name,
            "driver": variant.driver,
            "gpu": variant.gpu,
            "cpu": variant.cpu,
            "pin": variant.pin,
            "recipe": {"path": recipe.path, "action": recipe.action, "reason": recipe.reason},
            "rules": variant.effects.rules,
            "missing_hashes": chosen.untaken_hashes,
            "state": state.overall,
            "steps": state.steps,
            "output": state.output,
            "missing_evidence": state.missing_evidence,
            "events": state.events,
            "log": state.log,
            "commands": steps,
        }
        print_json(document, sys.stdout)
        return
    screen.line(screen.paint(chosen.id, "bold"))
    facts = list(_facts(matrix, chosen, verbose=verbose))
    facts += [("recipe", f"{recipe.path}: {recipe.action}, {recipe.reason}"), *_results(state)]
    for name, text in facts:
        screen.fold(f"  {name:<11}", text, indent=13)
    for name, line in steps.items():
        screen.line(f"  {name:<11}{line}")
    if not verbose:
        screen.line("`-v` adds nixpkgs, flags, reasons and sources of rules")


def commands(state: PackageState) -> dict[str, str]:
    """Return the commands that build, test and publish a package, and install a published one.

    A companion is published and installed with its variant.
    """
    name, package = state.package.id, state.package
    together = [package.variant] if package is package.variant else [package.variant, package]
    found = {
        "build": f"invoke build {name}",
        "test": f"invoke smoke {name} && invoke inspect {name}",
        "publish": f"invoke publish {','.join(each.id for each in together)}",
    }
    if published := state.publication:
        names = (f"{published.organization or 'ORG'}/{each.package}" for each in together)
        found["install"] = f"flox install {' '.join(names)}"
    return found


def _facts(matrix: Matrix, package: Package, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield what a package is, each fact with its name; one without continues the one above."""
    variant, release, cuda, gpu = package.variant, package.release, package.cuda, package.gpu
    yield "status", ": ".join(filter(None, (variant.status, variant.impossible)))
    yield "package", package.package
    if package.companion:
        source = _source(package.companion.source)
        text = f"{package.name} {package.version} {source}, for PyTorch {release.torch.version}"
        yield "companion", f"{text} of {variant.id}"
    if twin := variant.same_build_as:
        yield "same files", f"the same build as {twin.id}"
    if package.alias_of:
        yield "alias", f"of {package.alias_of}; {package.cpu.evidence}"
    needs = f", CUDA {cuda.version}, driver {variant.driver}" if cuda else ""
    torch = f"PyTorch {release.torch.version} {_source(release.torch.source)}"
    yield "release", f"{variant.release_name}: {torch}, Python {release.python.version}{needs}"
    yield "support", release.support
    if gpu:
        yield "gpu", f"{gpu.capability}: {', '.join(variant.products)}"
    yield "cpu", f"{variant.cpu.title} ({variant.platform})"
    if package is variant and (companions := matrix.companions_of(variant)):
        yield "companions", ", ".join(each.id for each in companions)
    rules = variant.effects.rules
    if not verbose:
        yield "rules", ", ".join(rule.id for rule in rules) or "none"
        return
    yield "nixpkgs", f"{variant.pin.rev} (pin {release.nixpkgs.pin}) {variant.pin.doubts or ''}"
    yield "flags", " ".join(variant.cpu.flags)
    for rule in rules:
        yield "rule", f"{rule.id}: {rule.effect.words}"
        yield "", f"{rule.reason} ({rule.source}, checked {rule.checked})"
        if rule.unconfirmed:
            yield "", f"not confirmed: {rule.unconfirmed}"


def _source(source: str) -> str:
    return "of its nixpkgs" if source == "nixpkgs" else "from GitHub"


def _results(state: PackageState) -> Iterator[tuple[str, str]]:
    """Yield what is known of the result, its evidence and the last build."""
    other = f"{state.link}, of another recipe" if state.link else "not built from this recipe"
    doubts = "; its nixpkgs is not confirmed, see -v" if state.doubts else ""
    yield "result", state.output or f"{other}{doubts}"
    if missing := state.package.untaken_hashes:
        names = ", ".join(name for name, _ in missing)
        yield "", f"cannot be built: no hash for {names}; run `invoke prefetch`"
    for test in state.of_recipe("tested"):
        why = f": {test.reason}" if test.reason else ""
        yield str(test.by), f"{test.outcome} at {test.at}{why}; {test.report}"
    if state.output and state.missing_evidence:
        yield "evidence", state.missing_evidence
    if published := state.publication:
        yield "published", f"at {published.at} to {published.organization or 'your account'}"
    if last := state.last:
        cause = f" ({last.cause})" if last.cause else ""
        yield "last build", f"{last.outcome or last.event} at {last.at}{cause}; {state.log}"


def _show_known(matrix: Matrix, screen: Screen, *, json: bool) -> None:
    """Print what every matrix knows, and which values matrix.toml replaces or adds."""
    from build_pytorch.base.console import print_json
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
