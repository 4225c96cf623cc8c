"""`invoke status`: the state of each variant."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base.console import WIDTH, Screen, counted, print_json
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.cli.commands import StatusOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.generate import rendering
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package
from build_pytorch.matrix.seeds import seeds_of
from build_pytorch.matrix.selection import select_packages
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult
from build_pytorch.verify import verification

_RECIPES: Final = {
    Action.UNCHANGED: "current",
    Action.CREATE: "missing",
    Action.REWRITE: "out of date",
}
"""The state of a recipe by what the phases would do with it; `edited` for any other action."""
_COLUMNS: Final = {
    "recipe": ("current", "current"),
    "verified": ("yes", "verified"),
    "built": ("yes", "built"),
    "smoke": ("passed", "smoke-tested"),
    "inspect": ("passed", "inspected"),
    "published": ("yes", "published"),
}
"""The columns of the table, each with the value that is green and counted, and its total's name."""
_SEEDS: Final = {
    "yes": "built",
    "no": "not in the store any more",
    "stale": "stale, their recipe has changed",
}
_COLOURS: Final = {"failed": "red", "no": "dim", "-": "dim"}


def run(options: StatusOptions) -> int:
    """Print the state of variants and the totals. Raises BuildPytorchError for a wrong pattern.

    Companions have rows where the patterns name them; of the others only the totals are printed.
    """
    fleet = matrix_reader.load()
    selected = select_packages(fleet, options.variants, options.release)
    own = {package.variant.path: package.variant for package in selected}
    variants = list(own.values())
    named = [package for package in selected if isinstance(package, CompanionPackage)]
    companions = [each for each in fleet.companions if each.variant.path in own]
    verified = verification.verify(fleet, options.root, variants=variants, pages=reference_pages)
    errors = Counter(finding.path for finding in verified.findings if finding.severity == "error")
    packages: list[Package] = [*variants, *companions]
    recipes = recipe_states(fleet, options.root, packages)
    known = evidence.look(options.root, packages).values()
    found = {it.package.path: _row(it, recipes[it.package.path], errors) for it in known}
    rows = [found[it.path] for it in variants]
    others = [found[it.path] for it in companions]
    totals = _totals(rows)
    seeds = {} if options.variants else _seeds(options.root, fleet)
    if options.json:
        document = {"variants": rows, "totals": totals, "companions": others, "seeds": seeds}
        print_json(document, sys.stdout)
    else:
        screen = Screen(sys.stdout)
        _print_table(screen, [found[package.path] for package in selected])
        _print_totals(screen, "variant", rows)
        if others:
            _print_totals(screen, "companion", [found[it.path] for it in named] or others)
        _print_shared(screen, rows, seeds)
    return EXIT_OK


def recipe_states(matrix: Matrix, root: Path, packages: Sequence[Package]) -> dict[str, str]:
    """Return the state of each recipe by path: current, missing, out of date or edited."""
    texts, tree = rendering.texts(matrix), Tree(root)
    planned = {it.path: plan_text(tree, it.path, texts[it.path]) for it in packages}
    return {path: _RECIPES.get(change.action, "edited") for path, change in planned.items()}


def _totals(rows: Sequence[dict[str, str]]) -> dict[str, int]:
    """Return the number of rows that are done, for each column."""
    return {
        total: sum(row[name] == done for row in rows) for name, (done, total) in _COLUMNS.items()
    }


def _print_totals(screen: Screen, what: str, rows: Sequence[dict[str, str]]) -> None:
    counts = ", ".join(f"{number} {name}" for name, number in _totals(rows).items())
    screen.fold("", f"{counted(len(rows), what)}: {counts}", indent=2)


def _seeds(root: Path, matrix: Matrix) -> dict[str, str]:
    """Return the state of each seed that was ever built or has a link: yes, stale or an outcome."""
    every = {seed.name: seed for own in seeds_of(matrix.variants).values() for seed in own}
    states = {}
    for name, result in evidence.look_at_seeds(root, every.values()).items():
        last = result.last.outcome if result.last else "no"
        state = "yes" if result.output else "stale" if result.stale else "unknown"
        if not (result.output or result.stale or result.unknown):
            state = "no" if last == "built" else last
        if result.last or state == "unknown":
            states[name] = state
    return states


def _print_shared(screen: Screen, rows: list[dict[str, str]], seeds: dict[str, str]) -> None:
    """Print what was built with --share, and the seeds."""
    if shared := [row["variant"] for row in rows if row["shared"] == "yes"]:
        screen.fold("built with --share: ", ", ".join(shared))
    for state in dict.fromkeys(seeds.values()):
        names = [name for name, its in seeds.items() if its == state]
        screen.fold(f"seeds, {_SEEDS.get(state, state)}: ", ", ".join(names))


def _row(result: VariantResult, recipe: str, errors: Mapping[str, int]) -> dict[str, str]:
    """Return the state of one package; `errors` is the number of errors by recipe.

    `built` is stale for the result of another recipe, unknown for one without a known recipe.
    """
    package, last = result.package, result.last
    number = errors.get(package.path, 0)
    verified = counted(number, "error") if number else "yes"
    states = {"yes": result.output, "stale": result.stale, "unknown": result.unknown}
    built = next((state for state, path in states.items() if path), "no")
    if built == "no" and last and last.outcome != "built":
        built = last.outcome
    published = "-"
    if result.published:
        published = "no evidence" if result.published.without_evidence else "yes"
    return {
        "variant": package.id,
        "package": package.package,
        "status": package.status,
        "reason": package.impossible or "",
        "recipe": recipe,
        "verified": "-" if recipe == "missing" else verified,
        "built": built,
        "smoke": result.smoke.outcome if result.smoke else "-",
        "inspect": result.inspect.outcome if result.inspect else "-",
        "published": published,
        "output": result.output,
        "shared": "yes" if result.reads_seeds else "no",
        "log": f"{package.attribute}/{last.attempt}.log" if last else "",
    }


def _print_table(screen: Screen, rows: list[dict[str, str]]) -> None:
    names = ["variant", *_COLUMNS]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    gap = "  " if sum(widths.values()) + 2 * len(names) + len(" [1]") <= WIDTH else " "
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    screen.line(
        screen.paint(gap.join(f"{name:<{widths[name]}}" for name in names).rstrip(), "bold")
    )
    for row in rows:
        cells = [f"{row['variant']:<{widths['variant']}}"]
        for name, (done, _) in _COLUMNS.items():
            colour = "green" if row[name] == done else _COLOURS.get(row[name], "yellow")
            cells.append(screen.paint(row[name], colour) + " " * (widths[name] - len(row[name])))
        note = f" [{reasons.index(row['reason']) + 1}]" if row["reason"] else ""
        screen.line(f"{gap.join(cells)}{note}".rstrip())
    for number, reason in enumerate(reasons, 1):
        screen.fold(f"[{number}] impossible-host: ", reason)
