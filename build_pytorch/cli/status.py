"""`invoke status`: how far the fleet is, variant by variant."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base.console import Screen, print_json
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
from build_pytorch.verify import verification

_COLOURS: Final = {
    "current": "green",
    "yes": "green",
    "passed": "green",
    "failed": "red",
    "no": "dim",
    "-": "dim",
}
_COLUMNS: Final = ("recipe", "verified", "built", "smoke", "inspect", "published")


class StatusRow(Struct, frozen=True, kw_only=True):
    """What is known of one variant, a word for each station."""

    variant: str
    package: str
    status: str
    recipe: str
    """current, out of date, edited by hand, missing, unreadable"""
    verified: str
    """yes, or the number of errors"""
    built: str
    """yes; stale: the link leads to the result of another recipe; unknown: nothing tells of which
    (`invoke build` finds out at once); else what came of the last attempt, or no"""
    smoke: str
    inspect: str
    published: str
    output: str
    log: str


def run(options: StatusOptions) -> int:
    """Print the state of variants and totals. Raises BuildPytorchError for a wrong pattern."""
    fleet = matrix_reader.load()
    variants = select(fleet, options.variants)
    rows = look(fleet, options.root, variants)
    if options.json:
        print_json(
            {"variants": [_as_dict(row) for row in rows], "totals": totals(rows)}, sys.stdout
        )
        return EXIT_OK
    screen = Screen(sys.stdout)
    width = max(len(row.variant) for row in rows)
    screen.line(
        screen.paint(f"{'variant':<{width}}  {'  '.join(f'{c:<11}' for c in _COLUMNS)}", "bold")
    )
    for row in rows:
        cells = [getattr(row, column) for column in _COLUMNS]
        painted = [screen.paint(f"{cell:<11}", _COLOURS.get(cell, "yellow")) for cell in cells]
        note = "" if row.status == "buildable" else f"  {row.status}"
        screen.line(f"{row.variant:<{width}}  {'  '.join(painted)}{note}".rstrip())
    counts = ", ".join(f"{number} {name}" for name, number in totals(rows).items())
    screen.line(f"{len(rows)} variants: {counts}")
    return EXIT_OK


def look(fleet: Matrix, root: Path, variants: Sequence[Variant]) -> list[StatusRow]:
    """A row for each variant. Recipes are verified, the store and the ledger are asked."""
    verified = verification.verify(fleet, root, variants=variants, pages=reference_pages)
    errors = Counter(
        finding.problem.path for finding in verified.findings if finding.problem.severity == "error"
    )
    texts = rendering.texts(fleet)
    tree = Tree(root)
    known = evidence.look(root, variants)
    return [
        _row(known[v.package], _recipe(tree, v, texts[v.path]), errors[v.path]) for v in variants
    ]


def totals(rows: Sequence[StatusRow]) -> dict[str, int]:
    """How many variants have each station behind them."""
    return {
        "current": sum(row.recipe == "current" for row in rows),
        "verified": sum(row.verified == "yes" for row in rows),
        "built": sum(row.built == "yes" for row in rows),
        "smoke-tested": sum(row.smoke == "passed" for row in rows),
        "inspected": sum(row.inspect == "passed" for row in rows),
        "published": sum(row.published == "yes" for row in rows),
    }


def _recipe(tree: Tree, variant: Variant, text: str) -> str:
    change = plan_text(tree, variant.path, text)
    match change.action:
        case Action.UNCHANGED:
            return "current"
        case Action.CREATE:
            return "missing"
        case Action.REWRITE:
            return "out of date"
        case _:
            return "edited"


def _row(result: VariantResult, recipe: str, errors: int) -> StatusRow:
    variant = result.variant
    if result.output:
        built = "yes"
    elif result.stale:
        built = "stale"
    elif result.unknown:
        built = "unknown"
    elif result.last and result.last.outcome != "built":
        built = result.last.outcome
    else:
        built = "no"
    present = recipe != "missing"
    return StatusRow(
        variant=variant.id,
        package=variant.package,
        status=variant.status,
        recipe=recipe,
        verified=("yes" if not errors else f"{errors} errors") if present else "-",
        built=built,
        smoke=result.smoke.outcome if result.smoke else "-",
        inspect=result.inspect.outcome if result.inspect else "-",
        published=("no evidence" if result.published.without_evidence else "yes")
        if result.published
        else "-",
        output=result.output,
        log=_log(result),
    )


def _log(result: VariantResult) -> str:
    return f"{result.variant.package}/{result.last.attempt}.log" if result.last else ""


def _as_dict(row: StatusRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}
