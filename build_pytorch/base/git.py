"""The only way to call Git. The configuration of a foreign checkout must not run programs.

Git runs what `.git/config` names: hooks, the file system monitor, filters of file contents, SSH and
other transports, pagers (git-config(1), checked on 2026-11-21 with Git 2.47).
"""

from __future__ import annotations

import os
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
_FILTER_OFF: Final = ("clean=", "smudge=", "process=", "required=false")


def top(root: Path) -> Path | None:
    """Return the folder of the checkout that `root` is in, or None."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)


def uncommitted(root: Path) -> list[str]:
    """Return the changed and untracked files of a checkout. Raises ToolError if Git fails.

    The filters of the checkout's own configuration are off, so that a file with such a filter may
    count as changed.
    """
    listed = run(root, "config", "--show-scope", "--null", "--get-regexp", r"^filter\.")
    words = listed.stdout.split("\0")
    own = [
        entry.partition("\n")[0]
        for scope, entry in zip(words[::2], words[1::2], strict=False)
        if scope in {"local", "worktree"}
    ]
    options: list[str] = []
    for name in {key.rpartition(".")[0] for key in own}:
        if "=" in name:
            raise ToolError(f"{root}: {name} in .git/config cannot be turned off; remove it")
        for setting in _FILTER_OFF:
            options += ["-c", f"{name}.{setting}"]
    found = run(root, *options, "status", "--porcelain", "--ignore-submodules=all")
    if found.code or listed.code > 1:  # 1: no such setting
        failed = found if found.code else listed
        raise ToolError(f"{root}: git status failed: {failed.last_line}")
    return [line[3:] for line in found.stdout.splitlines()]


def run(root: Path, *argv: str) -> ProcessResult:
    """Run a Git command that reads in a checkout. Raises ToolError if Git is missing."""
    options = [word for setting in _SETTINGS.items() for word in ("-c", "=".join(setting))]
    if folder := top(root):  # core.worktree may name any other folder
        options.append(f"--work-tree={folder}")
    command = ["git", "--no-pager", *options, *argv]
    return process.capture(command, cwd=root, env=_ENVIRONMENT, check=False)
