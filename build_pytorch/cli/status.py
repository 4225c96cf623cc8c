"""`invoke status`: the state of each variant."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from build_pytorch.base.console import WIDTH, Screen, counted, print_json
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.cli.commands import StatusOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.generate import rendering
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult
from build_pytorch.verify import verification

_RECIPES: Final = {
    Action.UNCHANGED: "current",
    Action.CREATE: "missing",
    Action.REWRITE: "out of date",
}
_COLUMNS: Final = {
    "recipe": ("current", "current"),
    "verified": ("yes", "verified"),
    "built": ("yes", "built"),
    "smoke": ("passed", "smoke-tested"),
    "inspect": ("passed", "inspected"),
    "published": ("yes", "published"),
}
"""The columns of the table, each with the value that is green and counted, and its total's name."""
_COLOURS: Final = {"failed": "red", "no": "dim", "-": "dim"}


def run(options: StatusOptions) -> int:
    """Print the state of variants and the totals. Raises BuildPytorchError for a wrong pattern."""
    fleet = matrix_reader.load()
    variants = select(fleet, options.variants, options.release)
    verified = verification.verify(fleet, options.root, variants=variants, pages=reference_pages)
    errors = Counter(finding.path for finding in verified.findings if finding.severity == "error")
    texts, tree = rendering.texts(fleet), Tree(options.root)
    known = evidence.look(options.root, variants)
    rows = []
    for it in variants:
        recipe = _RECIPES.get(plan_text(tree, it.path, texts[it.path]).action, "edited")
        rows.append(_row(known[it.package], recipe, errors[it.path]))
    totals = {
        total: sum(row[name] == done for row in rows) for name, (done, total) in _COLUMNS.items()
    }
    if options.json:
        print_json({"variants": rows, "totals": totals}, sys.stdout)
    else:
        _print_table(Screen(sys.stdout), rows, totals)
    return EXIT_OK


def _row(result: VariantResult, recipe: str, errors: int) -> dict[str, str]:
    """Return the state of one variant; `errors` is the number of errors in its recipe.

    `built` is stale for the result of another recipe, unknown for one without a known recipe.
    """
    variant, last = result.variant, result.last
    verified = counted(errors, "error") if errors else "yes"
    states = {"yes": result.output, "stale": result.stale, "unknown": result.unknown}
    built = next((state for state, path in states.items() if path), "no")
    if built == "no" and last and last.outcome != "built":
        built = last.outcome
    published = "-"
    if result.published:
        published = "no evidence" if result.published.without_evidence else "yes"
    return {
        "variant": variant.id,
        "package": variant.package,
        "status": variant.status,
        "reason": variant.impossible or "",
        "recipe": recipe,
        "verified": "-" if recipe == "missing" else verified,
        "built": built,
        "smoke": result.smoke.outcome if result.smoke else "-",
        "inspect": result.inspect.outcome if result.inspect else "-",
        "published": published,
        "output": result.output,
        "log": f"{variant.package}/{last.attempt}.log" if last else "",
    }


def _print_table(screen: Screen, rows: list[dict[str, str]], totals: dict[str, int]) -> None:
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
    counts = ", ".join(f"{number} {name}" for name, number in totals.items())
    screen.fold("", f"{counted(len(rows), 'variant')}: {counts}", indent=2)
