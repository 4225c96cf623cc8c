"""Plans: what should be, compared with what is, and a decision for each file. Writes nothing."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import digest, files, process
from build_pytorch.base.errors import ToolError, WriteError


class Action(StrEnum):
    """What becomes of a file."""

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
        """Whether the disk changes."""
        return self in {Action.CREATE, Action.REWRITE, Action.DELETE}


class Change(Struct, frozen=True, kw_only=True):
    """One file of a plan: its path below the root, what becomes of it, and why."""

    path: str
    action: Action
    reason: str
    old: bytes | None = None
    new: bytes | None = None
    group: str = ""
    is_deletion: bool = False

    def diff(self) -> str:
        """The change as a unified diff; empty where nothing would change, or nobody can say."""
        if self.old == self.new or (self.new is None and not self.is_deletion):
            return ""
        import difflib

        before, after = _lines(self.old), _lines(self.new)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(
                before,
                after,
                "/dev/null" if self.old is None else f"a/{self.path}",
                "/dev/null" if self.new is None else f"b/{self.path}",
            )
        )


class _Everything(Container[str]):
    """Holds every path: where Git is missing, nobody knows what is committed."""

    def __contains__(self, _: object) -> bool:
        return True


class Tree:
    """The files below a root, as a plan sees them: read once, never written."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, or None where there is none. Raises OSError for what is no file."""
        try:
            return files.read_regular_file(self.root / path)
        except FileNotFoundError:
            return None

    @functools.cached_property
    def _uncommitted(self) -> Container[str]:
        """Files that Git could not bring back as they are. Asked once, and only when it matters."""
        # The root decides which repository is asked, not the hook or shell that we run in.
        env = {"GIT_DIR": None, "GIT_WORK_TREE": None, "GIT_INDEX_FILE": None}
        argv = ["git", "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]
        try:
            status = process.capture([*argv, "."], cwd=self.root, env=env, check=False)
            prefix = process.capture(
                ["git", "rev-parse", "--show-prefix"], cwd=self.root, env=env, check=False
            )
        except ToolError:
            in_git = any((folder / ".git").exists() for folder in (self.root, *self.root.parents))
            return _Everything() if in_git else frozenset()
        if status.code:
            if "not a git repository" in status.stderr:
                return frozenset()
            said = " ".join(status.tail.split())
            raise WriteError(f"{self.root}: Git does not say what is uncommitted: {said}")
        start = len(prefix.stdout.strip())
        return frozenset(entry[3:][start:] for entry in status.stdout.split("\0") if entry)

    def is_modified(self, path: str) -> bool:
        """Whether Git has uncommitted changes of a file."""
        return path in self._uncommitted


def plan_text(  # noqa: PLR0913 - the three that say why are keywords
    tree: Tree,
    path: str,
    text: str,
    *,
    hand_written: Literal["refuse", "rewrite", "keep"] = "refuse",
    reason: str = "",
    group: str = "",
) -> Change:
    """Plan a file that is generated whole and carries a digest.

    What a digest proves to be ours may be rewritten. Anything else was made by hand: it is
    refused, unless `hand_written` says otherwise (with `reason`) or the tree is forced.
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
    if digest.is_intact(current) and _title(current) == _title(text):
        return change(action=Action.REWRITE, reason="out of date")
    problem = _made_by_hand(current)
    if problem == _HAND_WRITTEN and not tree.force and hand_written == "keep":
        return change(action=Action.KEPT, reason=f"{problem}: {reason}")
    if problem == _HAND_WRITTEN and not tree.force and hand_written == "rewrite":
        if not tree.is_modified(path):
            return change(action=Action.REWRITE, reason=reason)
        problem = "not committed in Git as it is"
    if tree.force:
        return change(action=Action.REWRITE, reason=f"forced: {problem}")
    return change(action=Action.REFUSED, reason=f"{problem}; --force overwrites it")


_HAND_WRITTEN: Final = "written by hand"


def _made_by_hand(text: str) -> str:
    """Why a text that is not ours to rewrite is not."""
    if digest.is_intact(text):
        return "generated for another file and copied here"
    return "edited by hand" if digest.has_digest(text) else _HAND_WRITTEN


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
        return change(
            action=Action.REFUSED, reason="not committed in Git as it is; --force deletes it"
        )
    return change(action=Action.DELETE, reason=reason)


def unreadable(path: str, error: OSError, group: str = "") -> Change:
    """The plan for what stands in a file's place and is none. Nothing overwrites it."""
    reason = f"cannot be read: {error.strerror}; remove it by hand"
    return Change(path=path, action=Action.REFUSED, reason=reason, group=group)


def totals(changes: Iterable[Change]) -> dict[str, int]:
    """How many changes there are of each action, for those that occur."""
    counts: dict[str, int] = {}
    for change in changes:
        counts[change.action] = counts.get(change.action, 0) + 1
    return counts


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8", errors="replace").splitlines(keepends=True)


def _title(text: str) -> str:
    """The first line, which names the file that a generated text is for."""
    return text.partition("\n")[0]
