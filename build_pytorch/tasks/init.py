"""`invoke init`: begin a project in a folder of its own, as a copy of examples/project."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from invoke.context import Context

from build_pytorch.base.console import Screen, some
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.tasks.command import command


@command
def init(c: Context, directory: str) -> None:
    """Begin a project with a matrix.toml of one variant."""
    from build_pytorch.base import file_plan, files, paths
    from build_pytorch.base.file_plan import Action, Change

    folder = Path(directory).absolute()
    own = (paths.MATRIX, paths.RELEASE, ".flox", paths.TEMPLATES)
    with files.write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if present := [name for name in own if not _is_free(folder / name)]:
            raise BuildPytorchError(f"{folder}: a project already: it has {some(present)}")
    changes = []
    for name in (paths.MATRIX, ".gitignore"):
        old = b"" if (folder / name).exists() else None
        new = files.read_named(paths.SHIPPED / "examples/project" / name)
        change = Change(path=name, action=Action.CREATE, reason="missing", old=old, new=new)
        if not _is_free(folder / name):
            change = Change(path=name, action=Action.KEPT, reason="exists; it stays as it is")
        changes.append(change)
    file_plan.apply(folder, changes)
    screen = Screen(sys.stdout)
    file_plan.print_plan(screen, changes)
    where = "" if folder == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    screen.line(f"Next: {where}git init -q && {paths.SCRIPT} all && git add .")


def _is_free(path: Path) -> bool:
    """Return whether nothing is in a place, or an empty file."""
    return not os.path.lexists(path) or (path.is_file() and not path.stat().st_size)
