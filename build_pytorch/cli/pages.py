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
    """Write the page. Returns 1 if it was edited by hand. Raises BuildPytorchError."""
    matrix = matrix_reader.load()
    text = rendering.texts(matrix)[paths.PICKER]
    change = plan_text(Tree(options.root, force=options.force), paths.PICKER, text)
    file_plan.apply(options.root, [change])
    screen = Screen(sys.stderr)
    file_plan.print_plan(screen, f"Pages: {len(text.encode()) >> 10} KiB", [change])
    if change.action is Action.REFUSED:
        screen.diff(change.diff())
        return EXIT_FINDINGS
    return EXIT_OK
