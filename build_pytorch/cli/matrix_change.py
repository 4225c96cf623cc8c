"""Show a changed matrix with its files, verify them, write all or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from build_pytorch.base import file_plan, paths
from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Change, print_plan
from build_pytorch.matrix import matrix_editor
from build_pytorch.matrix.model import Matrix
from build_pytorch.sources import changed_matrix
from build_pytorch.verify import reports


def carry_out(  # noqa: PLR0913 - the four that say what, and two for the screen
    screen: Screen,
    root: Path,
    old: Matrix,
    new: Matrix,
    planned: list[Change],
    *,
    dry_run: bool,
    todo: Iterable[str],
) -> int:
    """Print the diff and the plan, verify the recipes, write them, print what is left to do.

    Returns the exit code: 1, with nothing written, if a file is edited by hand or a recipe does not
    pass verification. Raises WriteError.
    """
    screen.diff(matrix_editor.change(root / paths.MATRIX, old.text, new.text).diff())
    print_plan(screen, "Files", planned)
    if refused := [change for change in planned if change.action is Action.REFUSED]:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    result = changed_matrix.verified(new, planned)
    if result.exit_code != EXIT_OK:
        reports.show(result, screen)
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    screen.line(f"Verification: {result.summary}")
    if not dry_run:
        file_plan.apply(root, planned)
    screen.line("Dry run: nothing was written." if dry_run else "Written.")
    screen.line("Still to be checked by a person:")
    for note in dict.fromkeys(todo):
        screen.fold("  - ", note, indent=4)
    return EXIT_OK
