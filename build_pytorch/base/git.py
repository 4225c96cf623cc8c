"""The only way to call Git. The configuration of a foreign checkout must not run programs.

Git runs what `.git/config` names: hooks, the file system monitor, filters of file contents, SSH and
other transports, pagers (git-config(1), checked on 2026-11-21 with Git 2.47).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.base.process import ProcessResult

_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,  # post-index-change runs after `git status`
    "core.sshCommand": "false",
    "core.gitProxy": "false",
    "core.askPass": "false",
    "credential.helper": "",
    "diff.external": "",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",  # a folder that only looks like a repository
}
_ENVIRONMENT: Final = {
    # The root decides on the repository, not the Git hook or shell that started this process.
    **dict.fromkeys(
        ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
    ),
    "GIT_OPTIONAL_LOCKS": "0",  # looking writes nothing
    # A partial clone fetches missing objects from an address in its configuration.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
}
_DRIVERS: Final = r"^(filter|diff)\..*\.(clean|smudge|process|required|command|textconv)$"
"""Settings of drivers, whose names are free; `.gitattributes` says which files they are for."""
_BROKEN: Final = 128  #: Git's exit code for a configuration or repository that it cannot read


def top(root: Path) -> Path | None:
    """Return the folder of the checkout that `root` is in, or None."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)


def uncommitted(root: Path) -> list[str]:
    """Return the changed and untracked files of a checkout. Raises ToolError if Git fails.

    A file with a filter of the checkout's own configuration may count as changed.
    """
    found = run(root, "status", "--porcelain", "--ignore-submodules=all")
    if found.code:
        raise ToolError(f"{root}: git status failed: {found.last_line}")
    return [line[3:] for line in found.stdout.splitlines()]


def ignored(root: Path, places: Iterable[str]) -> list[str]:
    """Return the places below `root` that the checkout's .gitignore leaves out; [] without Git."""
    if top(root) is None or process.which("git") is None:
        return []
    found = run(root, "check-ignore", "--no-index", *places)
    return found.stdout.splitlines()


def files_named(root: Path, pattern: str) -> list[str]:
    """Return the files below `root` that Git tracks or would add; [] without Git.

    `pattern` is a pattern of Git for the path. A tracked file may be missing on the disk.
    Raises ToolError as `run` does.
    """
    if top(root) is None or process.which("git") is None:
        return []
    options = ("-z", "--cached", "--others", "--exclude-standard")
    found = run(root, "ls-files", *options, "--", pattern)
    return sorted(set(found.stdout.split("\0")[:-1]))


def run(root: Path, *argv: str) -> ProcessResult:
    """Run a Git command that reads in a checkout. Raises ToolError if Git is missing or too old."""
    return _run(root, *_without_drivers(root), *argv)


@functools.cache
def _without_drivers(root: Path) -> tuple[str, ...]:
    """Return the options that turn off the drivers of the checkout's own configuration."""
    listed = _run(root, "config", "--show-scope", "--null", "--get-regexp", _DRIVERS)
    if listed.code not in {0, 1, _BROKEN}:  # 1: none
        raise ToolError(f"git config --show-scope: {listed.last_line}; install Git 2.26 or newer")
    words = listed.stdout.split("\0")
    options: list[str] = []
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        key = entry.partition("\n")[0]
        if scope in {"local", "worktree"}:
            if "=" in key:
                raise ToolError(f"{root}: {key} in .git/config cannot be turned off; remove it")
            options += ["-c", f"{key}={'false' if key.endswith('.required') else ''}"]
    return tuple(options)


def _run(root: Path, *argv: str) -> ProcessResult:
    options = [word for setting in _SETTINGS.items() for word in ("-c", "=".join(setting))]
    if folder := top(root):  # core.worktree may name any other folder
        options.append(f"--work-tree={folder}")
    command = ["git", "--no-pager", *options, *argv]
    return process.capture(command, cwd=root, env=_ENVIRONMENT, check=False)
