"""Checks: the rules that recipes and docs must keep, one module for each way of looking at them.

    inventory   which files there are, against which there should be
    text        what the recipes say, read as text
    generated   whether recipes and docs are what the matrix and the templates yield

A new check is a value in the CHECKS of its module; a new road is a module in ROADS.
"""

from __future__ import annotations

from pathlib import Path

from build_pytorch.checks import generated, inventory, text
from build_pytorch.checks.base import Context, RecipeCheck, Result, TreeCheck, run
from build_pytorch.model import Matrix

ROADS = (inventory, text, generated)


def all_checks() -> list[RecipeCheck | TreeCheck]:
    """Every check, in the order in which they are reported."""
    return [check for road in ROADS for check in road.CHECKS]


def verify(matrix: Matrix, root: Path) -> Result:
    """Run every check on the recipes and docs below a root. Nothing is written, nothing raised."""
    context = Context(matrix, root)
    return Result(context, [run(check, context) for check in all_checks()])
