"""`invoke show`: everything about one package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final, get_args

from msgspec import Struct, convert, to_builtins

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.base.file_plan import Change, Tree
from build_pytorch.build.build_obstacles import same_build
from build_pytorch.cli import recommend
from build_pytorch.cli.commands import ShowOptions
from build_pytorch.generate import recipes
from build_pytorch.generate.phase_plan import plan_recipe
from build_pytorch.matrix import matrix_reader, rules
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant
from build_pytorch.matrix.source_tables import Pin
from build_pytorch.matrix.tables import (
    CpuIsa,
    GpuArchitecture,
    Release,
)
from build_pytorch.results.ledger import Event, TestKind
from build_pytorch.results.package_selection import chosen_package
from build_pytorch.results.package_state import Mark, PackageState, Steps, package_states

_COLUMN: Final = 11


class ShownRecipe(Struct, frozen=True, kw_only=True):
    """The recipe, and what the phases would do with it."""

    path: str
    action: str
    reason: str


class ShownState(Struct, frozen=True, kw_only=True):
    """What is known of the recipe's result."""

    digest: str
    output: str
    steps: Steps
    tests: dict[str, Event]
    missing_evidence: str
    publication: Event | None
    last: Event | None
    log: str


class ShowDocument(Struct, frozen=True, kw_only=True):
    """The document of --json; tables have the keys of matrix.toml.

    Release, hardware and rules of a companion are those of `torch`, the variant that it is for.
    Rules have only the keys that are set. `rules_ended` would apply, but their `until` holds.
    """

    variant: str
    package: str
    pname: str
    version: str
    torch: str
    same_build_as: str
    companions: tuple[str, ...]
    kind: str
    status: str
    reason: str
    release_name: str
    release: Release
    pin: Pin
    driver: str
    group: str
    gpu_key: str | None
    gpu: GpuArchitecture | None
    products: tuple[str, ...]
    cpu_key: str
    cpu: CpuIsa
    recipe: ShownRecipe
    rules: tuple[dict[str, Any], ...]
    rules_ended: tuple[str, ...]
    max_jobs: int
    missing_hashes: tuple[tuple[str, str], ...]
    state: ShownState
    commands: dict[str, list[str]]


def run(options: ShowOptions) -> int:
    """Print one package. Raises BuildPytorchError for none, for several and for a wrong name."""
    matrix = matrix_reader.load(options.root)
    package = chosen_package(matrix, options.selection)
    state = package_states(options.root, [package])[package.id]
    text = recipes.render(matrix)[package.path]
    recipe = plan_recipe(matrix, Tree(options.root), package, text)
    if options.json:
        print_json(_document(matrix, state, recipe), sys.stdout)
    else:
        _print(Screen(sys.stdout), matrix, state, recipe, verbose=options.verbose)
    return EXIT_OK


def _document(matrix: Matrix, state: PackageState, recipe: Change) -> ShowDocument:
    package, variant = state.package, state.package.variant
    return ShowDocument(
        variant=package.id,
        package=package.package,
        pname=package.pname,
        version=package.version,
        torch=variant.id,
        same_build_as=variant.same_build_as.id if variant.same_build_as else "",
        companions=tuple(each.id for each in matrix.companions_of(variant)),
        kind=variant.kind,
        status=variant.status,
        reason=variant.impossible or "",
        release_name=variant.release_name,
        release=variant.release,
        pin=variant.pin,
        driver=variant.driver,
        group=variant.group.title,
        gpu_key=variant.gpu_key,
        gpu=variant.gpu,
        products=variant.products,
        cpu_key=variant.cpu_key,
        cpu=variant.cpu,
        recipe=convert(recipe, ShownRecipe, from_attributes=True),
        rules=tuple(_set_keys(to_builtins(rule)) for rule in variant.effects.rules),
        rules_ended=_ended(matrix, variant),
        max_jobs=variant.release.build.max_jobs,
        missing_hashes=package.untaken_hashes,
        state=ShownState(
            digest=state.digest,
            output=state.output,
            steps=state.steps,
            tests=_tests(state),
            missing_evidence=state.missing_evidence,
            publication=state.publication,
            last=state.last,
            log=state.log,
        ),
        commands=_commands(matrix, state),
    )


def _tests(state: PackageState) -> dict[str, Event]:
    """Return the tests that count for the recipe, by kind."""
    tests = {kind: state.test(kind) for kind in get_args(TestKind)}
    return {kind: test for kind, test in tests.items() if test}


def _ended(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """Return the rules that would apply to a variant, but their `until` holds."""
    ended = (rule for rule in matrix.rules if rules.is_ended(rule, variant))
    return tuple(rule.id for rule in ended if rules.holds(rule.when, variant))


def _set_keys(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table of matrix.toml without the keys that are not set."""
    return {
        key: _set_keys(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value
    }


def _commands(matrix: Matrix, state: PackageState) -> dict[str, list[str]]:
    """Return the commands for a package, in the order in which they are needed."""
    package = state.package
    companions = matrix.companions_of(package) if package is package.variant else ()
    commands = recommend.commands(package, state, companions)
    commands["test"] = [f"invoke smoke {package.id}", f"invoke inspect {package.id}"]
    order = ("build", "test", "publish", "install", "set")
    return {name: commands[name] for name in order if name in commands}


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
    variant, release = package.variant, package.release
    yield "status", f"{variant.status}{f': {variant.impossible}' if variant.impossible else ''}"
    yield "package", package.package
    if isinstance(package, CompanionPackage):
        source = _source(package.companion.source)
        text = f"{package.name} {package.version} {source}, for PyTorch {release.torch.version}"
        yield "companion", f"{text} of {variant.id}"
    if text := same_build(package):
        yield "same files", text
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
    for name, test in _tests(state).items():
        why = f": {test.reason}" if test.reason else ""
        yield name, f"{test.outcome} at {test.at}{why}; {test.report}"
    if state.output and state.missing_evidence:
        yield "evidence", state.missing_evidence
    if published := state.publication:
        yield "published", f"at {published.at} to {published.organization or 'your account'}"
    if last := state.last:
        cause = f" ({last.cause})" if last.cause else ""
        yield "last build", f"{last.outcome or last.event} at {last.at}{cause}; {state.log}"
