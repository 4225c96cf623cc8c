"""The only way to call Git."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from build_pytorch.base import process
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import ToolError

_ENVIRONMENT: Final = {
    # The root decides on the repository, not the Git hook or shell that started this process.
    **dict.fromkeys(
        ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
    ),
    "GIT_OPTIONAL_LOCKS": "0",  # looking writes nothing
    "GIT_TERMINAL_PROMPT": "0",
    "TZ": "UTC",
}


def run(root: Path, *argv: str) -> str:
    """Return what a Git command that reads in a checkout prints. Raises ToolError as `ask`."""
    if top(root) is None:
        raise ToolError(f"{root}: not a Git checkout")
    return ask(f"Git refuses {root}", *argv, folder=root)


def ask(
    what: str, *argv: str, folder: Path | None = None, seconds: float = math.inf, fix: str = ""
) -> str:
    """Return what a Git command prints, within so many seconds.

    Raises ToolError that begins with `what`, with what Git says and the `fix`.
    """
    done = process.run(("git", *argv), cwd=folder, env=_ENVIRONMENT, seconds=seconds)
    if done.code:
        said = " ".join(done.stderr.split()).removeprefix("fatal: ")
        said = f"not finished in {seconds:g} s" if done.expired else shortened(said, 500)
        raise ToolError(f"{what}: {said}{fix}")
    return done.stdout


def top(root: Path) -> Path | None:
    """Return the folder of the checkout that `root` is in, or None."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
