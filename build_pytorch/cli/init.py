"""`invoke init`: begin a project in a folder of its own, as a copy of examples/project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from build_pytorch.base import file_plan, files, paths
from build_pytorch.base.console import Screen, quoted, some
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.cli.commands import InitOptions

_COPIED: Final = (paths.MATRIX, ".gitignore")
_OF_A_PROJECT: Final = (paths.MATRIX, paths.RELEASE, ".flox", paths.TEMPLATES)


def run(options: InitOptions) -> int:
    """Write the files of a new project, and print what comes next. Raises BuildPytorchError."""
    if options.what[1:]:
        raise BuildPytorchError("init: name one folder, or none for this one")
    folder = Path(*options.what).absolute() if options.what else options.root
    if present := [name for name in _OF_A_PROJECT if (folder / name).exists()]:
        raise BuildPytorchError(f"{folder}: a project already: it has {some(present)}")
    with files.write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    changes = [
        Change(path=name, action=Action.KEPT, reason="exists; it stays as it is")
        if (folder / name).exists()
        else Change(
            path=name,
            action=Action.CREATE,
            reason="missing",
            new=files.read_named(paths.SHIPPED / "examples/project" / name),
        )
        for name in _COPIED
    ]
    file_plan.apply(folder, changes)
    screen = Screen(sys.stdout)
    file_plan.print_plan(screen, changes)
    where = f"cd {quoted(str(folder))} && " if options.what else ""
    screen.command("Next: ", f"{where}git init -q && {paths.SCRIPT} all && git add .")
    return EXIT_OK
