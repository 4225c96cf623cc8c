"""Plans: compare generated texts with the files on disk and decide for each. Writes nothing."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import digest, files, process
from build_pytorch.base.console import Screen, visible
from build_pytorch.base.errors import ToolError, WriteError


class Action(StrEnum):
    """The decision for a file."""

    CREATE = "create"
    REWRITE = "rewrite"
    DELETE = "delete"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"

    @property
    def writes(self) -> bool:
        """Whether the action changes the disk."""
        return self in {Action.CREATE, Action.REWRITE, Action.DELETE}


class Change(Struct, frozen=True, kw_only=True):
    """The decision for one file, whose path is relative to the root."""

    path: str
    action: Action
    reason: str
    old: bytes | None = None
    new: bytes | None = None
    group: str = ""
    is_deletion: bool = False

    def diff(self) -> str:
        """Return the change as a unified diff; empty if the new content is the old or unknown."""
        if self.old == self.new or (self.new is None and not self.is_deletion):
            return ""
        import difflib  # 5 ms, and most runs show no diff

        before, after = (
            (data or b"").decode("utf-8", errors="replace").splitlines(keepends=True)
            for data in (self.old, self.new)
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(
                before,
                after,
                "/dev/null" if self.old is None else f"a/{self.path}",
                "/dev/null" if self.new is None else f"b/{self.path}",
            )
        )


class Tree:
    """The files below a root. `force` allows plans to overwrite hand-written files."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing. Raises OSError."""
        try:
            return files.read_regular_file(self.root / path)
        except FileNotFoundError:
            return None

    def is_modified(self, path: str) -> bool:
        """Return whether Git lacks the file's present content. Without Git: true in a checkout.

        Raises WriteError if Git fails.
        """
        return self._uncommitted is None or path in self._uncommitted

    @functools.cached_property
    def _uncommitted(self) -> set[str] | None:
        """The files with uncommitted changes; None if Git is missing in a Git checkout."""
        # The root decides on the repository, not the Git hook or shell that started this process.
        git = functools.partial(
            process.capture,
            cwd=self.root,
            env={"GIT_DIR": None, "GIT_WORK_TREE": None, "GIT_INDEX_FILE": None},
            check=False,
        )
        options = ["--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]
        try:
            status = git(["git", "status", *options, "."])
            prefix = git(["git", "rev-parse", "--show-prefix"])
        except ToolError:
            in_git = any((folder / ".git").exists() for folder in (self.root, *self.root.parents))
            return None if in_git else set()
        if status.code:
            if "not a git repository" in status.stderr:
                return set()
            raise WriteError(f"{self.root}: git status failed: {' '.join(status.tail.split())}")
        start = len(prefix.stdout.strip())
        return {entry[3:][start:] for entry in status.stdout.split("\0") if entry}


def plan_text(  # noqa: PLR0913 - the three that explain the plan are keywords
    tree: Tree,
    path: str,
    text: str,
    *,
    hand_written: Literal["refuse", "rewrite", "keep"] = "refuse",
    reason: str = "",
    group: str = "",
) -> Change:
    """Plan a file that is generated whole and carries a digest.

    A file with an intact digest is rewritten. A hand-edited or hand-written file is refused,
    unless the tree is forced or `hand_written` allows another action, for `reason`.
    """
    new = text.encode()
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error, group)
    change = functools.partial(Change, path=path, old=old, new=new, group=group)
    if old is None:
        return change(action=Action.CREATE, reason="missing")
    if old == new:
        return change(action=Action.UNCHANGED, reason="as generated")
    current = old.decode("utf-8", errors="replace")
    origin = _origin(current, text)
    if origin == _GENERATED:
        return change(action=Action.REWRITE, reason="out of date")
    if origin == _HAND_WRITTEN and hand_written == "keep" and not tree.force:
        return change(action=Action.KEPT, reason=f"{origin}: {reason}")
    if origin == _HAND_WRITTEN and hand_written == "rewrite" and not tree.force:
        if not tree.is_modified(path):
            return change(action=Action.REWRITE, reason=reason)
        origin = "not committed in Git as it is"
    if tree.force:
        return change(action=Action.REWRITE, reason=f"forced: {origin}")
    return change(action=Action.REFUSED, reason=f"{origin}; --force overwrites it")


_GENERATED: Final = "generated"
_HAND_WRITTEN: Final = "written by hand"


def _origin(current: str, text: str) -> str:
    if digest.is_intact(current):
        # The first line names the file that a text was generated for.
        is_copy = current.partition("\n")[0] != text.partition("\n")[0]
        return "generated for another file and copied here" if is_copy else _GENERATED
    return "edited by hand" if digest.has_digest(current) else _HAND_WRITTEN


def plan_delete(tree: Tree, path: str, reason: str, *, group: str = "") -> Change:
    """Plan the removal of a file that the clean-up list names."""
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error, group)
    change = functools.partial(Change, path=path, old=old, group=group, is_deletion=True)
    if old is None:
        return change(action=Action.UNCHANGED, reason="already gone")
    if tree.is_modified(path) and not tree.force:
        refusal = "not committed in Git as it is; --force deletes it"
        return change(action=Action.REFUSED, reason=refusal)
    return change(action=Action.DELETE, reason=reason)


def unreadable(path: str, error: OSError, group: str = "") -> Change:
    """Refuse to change a path that exists but is not a readable file."""
    reason = f"cannot be read: {error.strerror}; remove it by hand"
    return Change(path=path, action=Action.REFUSED, reason=reason, group=group)


def print_plan(screen: Screen, title: str, changes: Sequence[Change]) -> None:
    """Print a line for each change, and one for all unchanged files of a group and reason."""
    screen.line(screen.paint(title, "bold"))
    for group in dict.fromkeys(change.group for change in changes):
        members = [change for change in changes if change.group == group]
        unchanged = [change for change in members if change.action is Action.UNCHANGED]
        rows = [(c.action, c.path, c.reason) for c in members if c not in unchanged]
        for reason, number in Counter(change.reason for change in unchanged).items():
            path = next(change.path for change in unchanged if change.reason == reason)
            rows.append((Action.UNCHANGED, path if number == 1 else f"{number} files", reason))
        label = f"{group:<6}" if group else ""
        for action, what, reason in rows:
            painted = screen.paint(f"{action:<9}", _COLOURS.get(action, ""))
            screen.line(f"  {label}{painted}  {visible(what)}: {visible(reason)}")


_COLOURS: Final = {
    Action.CREATE: "green",
    Action.REWRITE: "yellow",
    Action.DELETE: "red",
    Action.REFUSED: "red",
    Action.UNKNOWN: "yellow",
    Action.UNCHANGED: "dim",
}


def totals(changes: Iterable[Change]) -> dict[str, int]:
    """Return the number of changes of each action that occurs."""
    return dict(Counter(str(change.action) for change in changes))
