"""`invoke show`: everything about one package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.base.file_plan import Change
    from build_pytorch.matrix.model import Matrix, Package, Variant
    from build_pytorch.results.package_state import PackageState

_COLUMN = 11


@command
def show(c: Context, package: str, verbose: bool = False, json: bool = False) -> None:
    """Show everything about one variant."""
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.base.file_plan import Tree
    from build_pytorch.generate import recipes
    from build_pytorch.generate.phase_plan import plan_recipe
    from build_pytorch.results.package_selection import chosen_package
    from build_pytorch.results.package_state import package_states

    matrix = load()
    chosen = chosen_package(matrix, package)
    state = package_states(matrix.root, [chosen])[chosen.id]
    text = recipes.render(matrix)[chosen.path]
    recipe = plan_recipe(matrix, Tree(matrix.root), chosen, text)
    if json:
        print_json(_document(matrix, state, recipe), sys.stdout)
    else:
        _print(Screen(sys.stdout), matrix, state, recipe, verbose=verbose)


def _document(matrix: Matrix, state: PackageState, recipe: Change) -> dict[str, Any]:
    """Return what --json prints; tables have the keys of matrix.toml.

    Release, hardware and rules of a companion are those of `torch`, the variant that it is for.
    """
    package, variant = state.package, state.package.variant
    return {
        "id": package.id,
        "package": package.package,
        "pname": package.pname,
        "version": package.version,
        "torch": variant.id,
        "same_build_as": variant.same_build_as.id if variant.same_build_as else "",
        "companions": [each.id for each in matrix.companions_of(variant)],
        "kind": variant.kind,
        "status": variant.status,
        "reason": variant.impossible or "",
        "release": variant.release_name,
        "driver": variant.driver,
        "gpu_key": variant.gpu_key,
        "gpu": variant.gpu,
        "cpu_key": variant.cpu_key,
        "cpu": variant.cpu,
        "pin": variant.pin,
        "recipe": {"path": recipe.path, "action": recipe.action, "reason": recipe.reason},
        "rules": variant.effects.rules,
        "rules_ended": _ended(matrix, variant),
        "missing_hashes": package.untaken_hashes,
        "state": state.overall,
        "steps": state.steps,
        "output": state.output,
        "missing_evidence": state.missing_evidence,
        "events": state.events,
        "log": state.log,
        "commands": _commands(matrix, state),
    }


def _ended(matrix: Matrix, variant: Variant) -> list[str]:
    """Return the rules that would apply to a variant, but their `until` holds."""
    from build_pytorch.matrix import rules

    ended = (rule for rule in matrix.rules if rules.is_ended(rule, variant))
    return [rule.id for rule in ended if rules.holds(rule.when, variant)]


def _commands(matrix: Matrix, state: PackageState) -> dict[str, list[str]]:
    """Return the commands for a package, in the order in which they are needed."""
    from build_pytorch.tasks.package_commands import commands

    package = state.package
    companions = matrix.companions_of(package) if package is package.variant else ()
    found = commands(package, state, companions)
    found["test"] = [f"invoke smoke {package.id}", f"invoke inspect {package.id}"]
    order = ("build", "test", "publish", "install", "set")
    return {name: found[name] for name in order if name in found}


def _print(
    screen: Screen, matrix: Matrix, state: PackageState, recipe: Change, *, verbose: bool
) -> None:
    screen.line(screen.paint(state.package.id, "bold"))
    for name, text in [
        *_facts(matrix, state.package, recipe, verbose=verbose),
        *_rules(matrix, state.package.variant, verbose=verbose),
        *_results(state),
    ]:
        screen.fold(f"  {name:<{_COLUMN}}", text, indent=_COLUMN + 2)
    for name, lines in _commands(matrix, state).items():
        for line in lines if verbose or name == "test" else lines[:1]:
            screen.command(f"  {name:<{_COLUMN}}", line)
    if not verbose:
        screen.line("`-v` adds nixpkgs, flags, reasons and sources of rules, sessions of nox")


def _facts(
    matrix: Matrix, package: Package, recipe: Change, *, verbose: bool
) -> Iterator[tuple[str, str]]:
    """Yield what a package is, each fact with its name."""
    from build_pytorch.matrix.model import CompanionPackage

    variant, release = package.variant, package.release
    yield "status", f"{variant.status}{f': {variant.impossible}' if variant.impossible else ''}"
    yield "package", package.package
    if isinstance(package, CompanionPackage):
        source = _source(package.companion.source)
        text = f"{package.name} {package.version} {source}, for PyTorch {release.torch.version}"
        yield "companion", f"{text} of {variant.id}"
    if twin := variant.same_build_as:
        yield "same files", f"the same build as {twin.id}"
    cuda = variant.cuda
    needs = f", CUDA {cuda.version}, driver {variant.driver}" if cuda else ""
    torch = f"PyTorch {release.torch.version} {_source(release.torch.source)}"
    python = f"Python {release.python.version}"
    yield "release", f"{variant.release_name}: {torch}, {python}{needs}"
    if verbose:
        yield "nixpkgs", f"{variant.pin.rev} (pin {release.nixpkgs.pin})"
        if variant.pin.doubts:
            yield "", variant.pin.doubts
    yield "support", release.support
    if gpu := variant.gpu:
        yield "gpu", f"{gpu.capability}: {', '.join(variant.products)}"
    flags = f": {' '.join(variant.cpu.flags)}" if verbose else ""
    yield "cpu", f"{variant.cpu.title} ({variant.platform}){flags}"
    companions = matrix.companions_of(variant)
    if companions and package is variant:
        yield "companions", ", ".join(each.id for each in companions)
    yield "recipe", f"{recipe.path}: {recipe.action}, {recipe.reason}"


def _rules(matrix: Matrix, variant: Variant, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield the rules; a line without a name continues the one above."""
    if not verbose and variant.effects.rules:
        yield "rules", ", ".join(rule.id for rule in variant.effects.rules)
    for rule in variant.effects.rules if verbose else ():
        yield "rule", f"{rule.id}: {rule.effect.words}"
        yield "", f"{rule.reason} ({rule.source}, checked {rule.checked})"
        if rule.unconfirmed:
            yield "", f"not confirmed: {rule.unconfirmed}"
    for name in _ended(matrix, variant):
        yield "rule ended", f"{name}: its `until` holds"


def _source(source: str) -> str:
    return "of its nixpkgs" if source == "nixpkgs" else "from GitHub"


def _results(state: PackageState) -> Iterator[tuple[str, str]]:
    """Yield what is known of the result, its evidence and the last build."""
    from build_pytorch.results.package_state import Mark

    results = {
        Mark.YES: state.output,
        Mark.ELSEWHERE: "not here; published",
        Mark.OUTDATED: f"{state.link}, built from another recipe",
        Mark.UNKNOWN: f"{state.link}, built from an unknown recipe",
    }
    yield "result", results.get(state.built, "not built from this recipe")
    if missing := state.package.untaken_hashes:
        names = ", ".join(name for name, _ in missing)
        yield "", f"cannot be built: no hash for {names}; run `invoke prefetch`"
    comparisons = [test for test in state.of_recipe("tested") if test.by == "compare"]
    for test in [state.test("smoke"), state.test("inspect"), *comparisons]:
        if test:
            why = f": {test.reason}" if test.reason else ""
            yield str(test.by), f"{test.outcome} at {test.at}{why}; {test.report}"
    if state.output and state.missing_evidence:
        yield "evidence", state.missing_evidence
    if published := state.publication:
        yield "published", f"at {published.at} to {published.organization or 'your account'}"
    if last := state.last:
        cause = f" ({last.cause})" if last.cause else ""
        yield "last build", f"{last.outcome or last.event} at {last.at}{cause}; {state.log}"
