"""`invoke status`: the state of each variant. A column of the table is one entry of `_COLUMNS`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.cli.commands import StatusOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.generate import rendering
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import select
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult
from build_pytorch.results.ledger import Tested
from build_pytorch.verify import verification

_RECIPES: Final = {
    Action.UNCHANGED: "current",
    Action.CREATE: "missing",
    Action.REWRITE: "out of date",
}
_COLOURS: Final = {"failed": "red", "no": "dim", "-": "dim"}
_WIDTH: Final = 11


class _Facts(Struct, frozen=True, kw_only=True):
    """What the columns of one variant are computed from."""

    recipe: str
    errors: int
    """Number of errors that verification found in the recipe."""
    result: VariantResult


class _Column(Struct, frozen=True):
    """A column: its name, its value, the value that is green and counted, the total's name."""

    name: str
    value: Callable[[_Facts], str]
    done: str
    total: str

    def colour(self, cell: str) -> str:
        """Return the colour of a value."""
        return "green" if cell == self.done else _COLOURS.get(cell, "yellow")


def _verified(facts: _Facts) -> str:
    if facts.recipe == "missing":
        return "-"
    return counted(facts.errors, "error") if facts.errors else "yes"


def _built(facts: _Facts) -> str:
    """Return stale for the result of another recipe, unknown for one without a known recipe."""
    result = facts.result
    if result.output:
        return "yes"
    if result.stale or result.unknown:
        return "stale" if result.stale else "unknown"
    return result.last.outcome if result.last and result.last.outcome != "built" else "no"


def _outcome(test: Tested | None) -> str:
    return test.outcome if test else "-"


def _published(facts: _Facts) -> str:
    if published := facts.result.published:
        return "no evidence" if published.without_evidence else "yes"
    return "-"


_COLUMNS: Final = (
    _Column("recipe", lambda facts: facts.recipe, "current", "current"),
    _Column("verified", _verified, "yes", "verified"),
    _Column("built", _built, "yes", "built"),
    _Column("smoke", lambda facts: _outcome(facts.result.smoke), "passed", "smoke-tested"),
    _Column("inspect", lambda facts: _outcome(facts.result.inspect), "passed", "inspected"),
    _Column("published", _published, "yes", "published"),
)


def run(options: StatusOptions) -> int:
    """Print the state of variants and the totals. Raises BuildPytorchError for a wrong pattern."""
    fleet = matrix_reader.load()
    variants = select(fleet, options.variants)
    rows = [_row(facts) for facts in _facts(fleet, options, variants)]
    totals = {it.total: sum(row[it.name] == it.done for row in rows) for it in _COLUMNS}
    if options.json:
        print_json({"variants": rows, "totals": totals}, sys.stdout)
        return EXIT_OK
    screen = Screen(sys.stdout)
    width = max(len(row["variant"]) for row in rows)
    names = "  ".join(f"{column.name:<{_WIDTH}}" for column in _COLUMNS)
    screen.line(screen.paint(f"{'variant':<{width}}  {names}", "bold"))
    for row in rows:
        cells = [(column, row[column.name]) for column in _COLUMNS]
        painted = [screen.paint(f"{cell:<{_WIDTH}}", it.colour(cell)) for it, cell in cells]
        note = "" if row["status"] == "buildable" else f"  {row['status']}"
        screen.line(f"{row['variant']:<{width}}  {'  '.join(painted)}{note}".rstrip())
    counts = ", ".join(f"{number} {name}" for name, number in totals.items())
    screen.line(f"{len(rows)} variants: {counts}")
    return EXIT_OK


def _facts(fleet: Matrix, options: StatusOptions, variants: Sequence[Variant]) -> list[_Facts]:
    """Verify the recipes, and look up the ledger and the store."""
    verified = verification.verify(fleet, options.root, variants=variants, pages=reference_pages)
    errors = Counter(finding.path for finding in verified.findings if finding.severity == "error")
    texts, tree = rendering.texts(fleet), Tree(options.root)
    known = evidence.look(options.root, variants)
    return [
        _Facts(
            recipe=_RECIPES.get(plan_text(tree, v.path, texts[v.path]).action, "edited"),
            errors=errors[v.path],
            result=known[v.package],
        )
        for v in variants
    ]


def _row(facts: _Facts) -> dict[str, str]:
    result = facts.result
    return {
        "variant": result.variant.id,
        "package": result.variant.package,
        "status": result.variant.status,
        **{column.name: column.value(facts) for column in _COLUMNS},
        "output": result.output,
        "log": f"{result.variant.package}/{result.last.attempt}.log" if result.last else "",
    }
