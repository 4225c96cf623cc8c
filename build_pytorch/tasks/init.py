"""`invoke init`: begin a project in a folder of its own, as a copy of examples/project."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from invoke.context import Context

from build_pytorch.tasks.command import command


@command
def init(c: Context, directory: str) -> None:
    """Begin a project with a matrix.toml of one variant."""
    from build_pytorch.base import file_plan, files, paths
    from build_pytorch.base.console import Screen, some
    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.base.file_plan import Action, Change

    folder = Path(directory).absolute()
    own = (paths.MATRIX, paths.RELEASE, ".flox", paths.TEMPLATES)
    if present := [name for name in own if (folder / name).exists()]:
        raise BuildPytorchError(f"{folder}: a project already: it has {some(present)}")
    with files.write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    example = paths.SHIPPED / "examples/project"
    changes = [
        Change(path=name, action=Action.KEPT, reason="exists; it stays as it is")
        if (folder / name).exists()
        else Change(
            path=name,
            action=Action.CREATE,
            reason="missing",
            new=files.read_named(example / name),
        )
        for name in (paths.MATRIX, ".gitignore")
    ]
    file_plan.apply(folder, changes)
    screen = Screen(sys.stdout)
    file_plan.print_plan(screen, changes)
    where = "" if folder == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    screen.line(f"Next: {where}git init -q && {paths.SCRIPT} all && git add .")
