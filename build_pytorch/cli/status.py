"""`invoke status`: the state of each package."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from build_pytorch.base.console import WIDTH, Screen, counted, print_json, some
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.cli.commands import StatusOptions
from build_pytorch.cli.pages import reference_pages
from build_pytorch.generate import rendering
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package
from build_pytorch.matrix.selection import seeds_of, select_packages
from build_pytorch.results.package_state import (
    BuiltState,
    Events,
    PackageState,
    RecipeState,
    all_events,
    package_states,
    seed_states,
)
from build_pytorch.verify import verification
from build_pytorch.verify.check import Finding

_RECIPES: Final = {
    Action.UNCHANGED: RecipeState.CURRENT,
    Action.CREATE: RecipeState.MISSING,
    Action.REWRITE: RecipeState.OUTDATED,
}
"""The state of a readable recipe by what the phases would do with it; edited for others."""
_COLUMNS: Final = {
    "recipe": "current",
    "verified": "verified",
    "built": "built",
    "smoke": "smoke-tested",
    "inspect": "inspected",
    "compare": "",
    "published": "published",
}
"""The columns of the table: steps of `PackageState`, each with the name of its total, if any."""
_SEEDS: Final = {
    BuiltState.YES: "built",
    BuiltState.NO: "not in the store any more",
    BuiltState.STALE: "stale, their recipe has changed",
}
_COLOURS: Final = {"failed": "red", "no": "dim", "-": "dim"}


def run(options: StatusOptions) -> int:
    """Print the state of packages and the totals.

    Raises BuildPytorchError for a wrong pattern and, at the end, for recipes that cannot be read.
    Companions have rows where the patterns name them; of the others only the totals are printed.
    """
    matrix = matrix_reader.load(options.root)
    selected = select_packages(matrix, options.variants, options.release)
    variants = {package.variant.path: package.variant for package in selected}
    named = [package for package in selected if isinstance(package, CompanionPackage)]
    companions = [each for each in matrix.companions if each.variant.path in variants]
    packages: list[Package] = [*variants.values(), *companions]
    errors = recipe_errors(matrix, packages) if options.verify else None
    events = all_events(matrix.root)
    known = package_states(matrix.root, packages, events=events)
    states = compared_states(matrix, known, errors)
    of_variants = [states[variant.id] for variant in variants.values()]
    of_companions = [states[companion.id] for companion in companions]
    seeds = {} if options.variants else _seeds(matrix, events)
    if options.json:
        document = {
            "variants": list(map(_row, of_variants)),
            "totals": _totals(of_variants),
            "companions": list(map(_row, of_companions)),
            "seeds": seeds,
        }
        print_json(document, sys.stdout)
        return _exit_code(states)
    screen = Screen(sys.stdout)
    _print_table(screen, [states[package.id] for package in selected])
    totals = {"variant": of_variants}
    if companions:
        totals["companion"] = [states[companion.id] for companion in named] or of_companions
    for what, counted_states in totals.items():
        counts = ", ".join(f"{number} {name}" for name, number in _totals(counted_states).items())
        screen.fold("", f"{counted(len(counted_states), what)}: {counts}", indent=2)
    if shared := [state.package.id for state in of_variants if state.reads_seeds]:
        screen.fold("built with --share: ", ", ".join(shared))
    for built in dict.fromkeys(seeds.values()):
        names = [name for name, state in seeds.items() if state is built]
        screen.fold(f"seeds, {_SEEDS.get(built, built)}: ", ", ".join(names))
    return _exit_code(states)


def _exit_code(states: Mapping[str, PackageState]) -> int:
    """Return EXIT_OK. Raises BuildPytorchError if a recipe cannot be read: its state is unknown."""
    paths = [each.package.path for each in states.values() if each.recipe is RecipeState.UNREADABLE]
    if paths:
        what = f"{counted(len(paths), 'recipe')} cannot be read: {some(paths)}"
        raise BuildPytorchError(f"{what}; let this user read them, or remove them by hand")
    return EXIT_OK


def recipe_errors(matrix: Matrix, packages: Sequence[Package]) -> dict[str, list[Finding]]:
    """Verify recipes and return their errors by path."""
    variants = list({package.variant.path: package.variant for package in packages}.values())
    verified = verification.verify(matrix, matrix.root, variants=variants, pages=reference_pages)
    errors: dict[str, list[Finding]] = {}
    for finding in verified.findings:
        if finding.severity == "error":
            errors.setdefault(finding.path, []).append(finding)
    return errors


def compared_states(
    matrix: Matrix,
    known: Mapping[str, PackageState],
    errors: Mapping[str, Sequence[Finding]] | None,
) -> dict[str, PackageState]:
    """Return states by id with their recipes compared with the matrix.

    `errors` of recipes by path, as of `recipe_errors`; None if they were not verified.
    """
    texts, tree = rendering.texts(matrix), Tree(matrix.root)
    states = {}
    for id_, state in known.items():
        path = state.package.path
        change = plan_text(tree, path, texts[path])
        number = None if errors is None else len(errors.get(path, ()))
        other = RecipeState.UNREADABLE if change.old is None else RecipeState.EDITED
        recipe = _RECIPES.get(change.action, other)
        states[id_] = replace(state, recipe=recipe, errors=number)
    return states


def _row(state: PackageState) -> dict[str, str]:
    """Return the state of one package as text: the columns, and what --json has beside them."""
    package = state.package
    return {
        "variant": package.id,
        "package": package.package,
        "status": package.status,
        "reason": package.impossible or "",
        "recipe": state.recipe,
        "verified": state.verified_label,
        "built": state.built,
        "smoke": state.smoke,
        "inspect": state.inspect,
        "compare": state.compare_label,
        "published": state.published,
        "output": state.output,
        "shared": "yes" if state.reads_seeds else "no",
        "log": state.log,
    }


def _totals(states: Sequence[PackageState]) -> dict[str, int]:
    """Return the number of packages that are done, for each column; not for what was not run."""
    is_verified = any(state.errors is not None for state in states)
    return {
        total: sum(getattr(state, column).is_done for state in states)
        for column, total in _COLUMNS.items()
        if total and (is_verified or column != "verified")
    }


def _seeds(matrix: Matrix, events: Events) -> dict[str, BuiltState]:
    """Return the state of each seed that was ever built or has a link."""
    seeds = {seed.name: seed for each in seeds_of(matrix.variants).values() for seed in each}
    return {
        name: state.built
        for name, state in seed_states(matrix.root, seeds.values(), events).items()
        if state.last or state.built is BuiltState.UNKNOWN
    }


def _print_table(screen: Screen, states: Sequence[PackageState]) -> None:
    rows = [_row(state) for state in states]
    is_compared = any(state.comparison for state in states)
    columns = [name for name in _COLUMNS if is_compared or name != "compare"]
    names = ["variant", *columns]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    gap = "  " if sum(widths.values()) + 2 * len(names) + len(" [1]") <= WIDTH else " "
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    head = gap.join(f"{name:<{widths[name]}}" for name in names)
    screen.line(screen.paint(head.rstrip(), "bold"))
    for state, row in zip(states, rows, strict=True):
        cells = [f"{row['variant']:<{widths['variant']}}"]
        for name in columns:
            text = row[name]
            is_done = getattr(state, name).is_done
            colour = "green" if is_done else _COLOURS.get(text, "yellow")
            cells.append(screen.paint(text, colour) + " " * (widths[name] - len(text)))
        note = f" [{reasons.index(reason) + 1}]" if (reason := row["reason"]) else ""
        screen.line(f"{gap.join(cells)}{note}".rstrip())
    for number, reason in enumerate(reasons, 1):
        screen.fold(f"[{number}] impossible-host: ", reason)
