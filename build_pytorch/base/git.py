"""The only way to call Git."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import process
from build_pytorch.base.console import shortened
from build_pytorch.base.errors import ToolError
from build_pytorch.base.process import ProcessResult

_ENVIRONMENT: Final = {
    # The root decides on the repository, not the Git hook or shell that started this process.
    **dict.fromkeys(
        ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
    ),
    "GIT_OPTIONAL_LOCKS": "0",  # looking writes nothing
    "GIT_TERMINAL_PROMPT": "0",
}
_MOST: Final = 3  #: files that `add_command` names


def run(root: Path, *argv: str) -> ProcessResult:
    """Run a Git command that reads in a checkout. Raises ToolError if Git is missing."""
    return process.capture(["git", "--no-pager", *argv], cwd=root, env=_ENVIRONMENT, check=False)


def top(root: Path) -> Path | None:
    """Return the folder of the checkout that `root` is in, or None."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)


def refusal(root: Path) -> str:
    """Return why Git does not work in a folder; empty if it does. Raises ToolError as `run`."""
    if top(root) is None:
        return f"{root}: not a Git checkout"
    found = run(root, "rev-parse", "--git-dir")
    reason = shortened(" ".join(found.stderr.split()), 500)  # with what Git says to do
    return f"Git refuses {root}: {reason.removeprefix('fatal: ')}" if found.code else ""


def is_committed(root: Path, path: str) -> bool:
    """Return whether a commit has the present content of a file. Raises ToolError as `run`."""
    options = ("--porcelain", "--ignored", "--ignore-submodules=all")
    found = run(root, "status", *options, "--", path)
    return not (found.code or found.stdout)


def ignored(root: Path, places: Iterable[str]) -> list[str]:
    """Return the places below `root` that the checkout's .gitignore leaves out; [] without Git."""
    return _printed(root, "check-ignore", "--no-index", *places).splitlines()


def files_named(root: Path, pattern: str) -> list[str]:
    """Return the files below `root` that Git tracks or would add; [] without Git.

    `pattern` is a pattern of Git for the path. A tracked file may be missing on the disk.
    """
    options = ("-z", "--cached", "--others", "--exclude-standard")
    found = _printed(root, "ls-files", *options, "--", pattern)
    return sorted(set(found.split("\0")[:-1]))


def _printed(root: Path, *argv: str) -> str:
    has_git = top(root) is not None and process.which("git") is not None
    return run(root, *argv).stdout if has_git else ""


def extract(root: Path, name: str, folder: Path) -> None:
    """Write the files of a commit into an empty folder. Raises ToolError, also for no commit."""
    commit = f"{name}^{{commit}}"
    found = run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)
    if found.code:
        raise ToolError(f'"{name}": not a commit, branch or tag of {root}')
    archive = f"{folder}/.archive.tar"
    made = run(root, "archive", f"--output={archive}", found.stdout.strip())
    if made.code:
        raise ToolError(f"git archive: {made.last_line}")
    process.capture(["tar", "-xf", archive, "--no-same-owner", "-C", str(folder)])


def add_command(missing: Sequence[str]) -> str:
    """Return the command, in backticks, that lets Git track files."""
    return f"`git add {' '.join(missing) if len(missing) <= _MOST else '-A'}`"
