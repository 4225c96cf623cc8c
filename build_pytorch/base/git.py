"""The only way to call Git."""

from __future__ import annotations

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
}


def run(root: Path, *argv: str, none: int = 0) -> str:
    """Return what a Git command that reads in a checkout prints; `none`: its code for nothing.

    Raises ToolError with what Git says if it is missing or fails.
    """
    if top(root) is None:
        raise ToolError(f"{root}: not a Git checkout")
    argv = ("git", "--no-pager", *argv)
    done = process.run(argv, cwd=root, env=_ENVIRONMENT)
    if done.code not in {0, none}:
        reason = shortened(" ".join(done.stderr.split()), 500)  # with what Git says to do
        raise ToolError(f"Git refuses {root}: {reason.removeprefix('fatal: ')}")
    return done.stdout


def ask(url: str, *argv: str, folder: Path | None = None, seconds: float) -> str:
    """Return what a Git command about another repository prints, within so many seconds.

    It runs in `folder`, a checkout of its own. Raises ToolError with the last line of Git.
    """
    environment = {**_ENVIRONMENT, "TZ": "UTC"}
    done = process.run(("git", *argv), cwd=folder, env=environment, seconds=seconds)
    if done.code:
        reason = f"not finished in {seconds:g} s" if done.expired else done.last_line
        fix = "check the network, and that it exists"
        raise ToolError(f"{url}: {shortened(reason, 300).removeprefix('fatal: ')}; {fix}")
    return done.stdout


def top(root: Path) -> Path | None:
    """Return the folder of the checkout that `root` is in, or None."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)


def extract(root: Path, name: str, folder: Path) -> None:
    """Write the files of a commit into an empty folder. Raises ToolError, also for no commit."""
    commit = f"{name}^{{commit}}"
    found = run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", commit, none=1)
    if not found:
        raise ToolError(f'"{name}": not a commit, branch or tag of {root}')
    archive = f"{folder}/.archive.tar"
    run(root, "archive", f"--output={archive}", found.strip())
    process.output_of(["tar", "-xf", archive, "--no-same-owner", "-C", str(folder)])
