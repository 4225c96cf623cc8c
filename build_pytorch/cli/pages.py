"""`invoke pages`: write the page that names the right variant for a machine."""

from __future__ import annotations

import sys

from build_pytorch.base import file_plan, paths
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Tree, plan_text
from build_pytorch.cli.commands import PagesOptions
from build_pytorch.generate import rendering
from build_pytorch.matrix import matrix_reader


def run(options: PagesOptions) -> int:
    """Write the page. Raises BuildPytorchError.

    Returns 1 if it was edited by hand; with `check`, also if it would change.
    """
    matrix = matrix_reader.load(options.root)
    text = rendering.texts(matrix)[paths.PICKER]
    change = plan_text(Tree(options.root, force=options.force), paths.PICKER, text)
    if not options.check:
        file_plan.apply(options.root, [change])
    screen = Screen(sys.stderr)
    suffix = " (nothing written)" if options.check else ""
    file_plan.print_plan(screen, f"Pages: {len(text.encode()) >> 10} KiB{suffix}", [change])
    if change.action is Action.REFUSED:
        screen.diff(change.diff())
    pending = options.check and change.action.writes
    return EXIT_FINDINGS if pending or change.action is Action.REFUSED else EXIT_OK
