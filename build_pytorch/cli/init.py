"""`invoke init`: begin a project in a folder of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from build_pytorch.base import file_plan, files, paths
from build_pytorch.base.console import Screen, quoted, some
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.cli.commands import InitOptions
from build_pytorch.generate.new_project import project_files
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select

_OF_A_PROJECT: Final = (paths.MATRIX, paths.RELEASE, ".flox", paths.TEMPLATES)


def run(options: InitOptions) -> int:
    """Write the files of a new project, and print what comes next. Raises BuildPytorchError."""
    if options.what[1:]:
        raise BuildPytorchError("init: name one folder, or none for this one")
    folder = Path(*options.what).absolute() if options.what else options.root
    matrix = matrix_reader.load(paths.SHIPPED)
    named = [v for v in matrix.variants if options.variant in {"", v.id, v.short_id}]
    variants = named[:1] or select(matrix, [options.variant])  # of the first release that has it
    if variants[1:]:
        raise BuildPytorchError(f"--variant {options.variant}: names several; begin with one")
    if present := [name for name in _OF_A_PROJECT if (folder / name).exists()]:
        what = f"{folder}: a project already: it has {some(present)}"
        raise BuildPytorchError(f"{what}; name another folder, or extend it with `invoke add`")
    with files.write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    texts = project_files(matrix, variants[0], ci=options.ci)
    changes = [_change(folder, path, text) for path, text in texts.items()]
    file_plan.apply(folder, changes)
    screen = Screen(sys.stdout)
    screen.line(f"New project for {variants[0].id}")
    file_plan.print_plan(screen, changes)
    where = f"cd {quoted(str(folder))} && " if options.what else ""
    screen.command("Next: ", f"{where}git init -q && {paths.SCRIPT} all && git add .")
    return EXIT_OK


def _change(folder: Path, path: str, text: str) -> Change:
    if (folder / path).exists():
        return Change(path=path, action=Action.KEPT, reason="exists; it stays as it is")
    return Change(path=path, action=Action.CREATE, reason="missing", new=text.encode())
