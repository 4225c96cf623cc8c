"""Plans: what should be, compared with what is, and a decision for each file. Writes nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal

from msgspec import Struct

from build_pytorch import digest, paths, proc
from build_pytorch.errors import ToolError, WriteError


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

    def diff(self) -> str:
        """The change as a unified diff; empty where nothing would change."""
        if self.old == self.new:
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


class Tree:
    """The files below a root, as a plan sees them: read once, never written."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, or None where there is none.

        Raises WriteError for what stands there and is not a readable file.
        """
        try:
            return paths.read_file(self.root / path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WriteError(f"{self.root / path}: cannot be read: {error.strerror}") from None

    @functools.cached_property
    def _modified(self) -> frozenset[str]:
        """Tracked files that differ from the last commit. Asked once, and only when it matters."""
        argv = ["git", "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no"]
        try:
            status = proc.capture([*argv, "."], cwd=self.root, check=False)
            prefix = proc.capture(["git", "rev-parse", "--show-prefix"], cwd=self.root, check=False)
        except ToolError:
            return frozenset()  # no Git, hence nothing that Git would bring back
        if status.code:
            if "not a git repository" in status.stderr:
                return frozenset()
            raise WriteError(f"git status failed in {self.root}: {status.tail}")
        start = len(prefix.stdout.strip())
        return frozenset(entry[3:][start:] for entry in status.stdout.split("\0") if entry)

    def is_modified(self, path: str) -> bool:
        """Whether Git has uncommitted changes of a file."""
        return path in self._modified


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
    old = tree.read(path)
    change = functools.partial(Change, path=path, old=old, new=new, group=group)
    if old is None:
        return change(action=Action.CREATE, reason="missing")
    if old == new:
        return change(action=Action.UNCHANGED, reason="as generated")
    current = old.decode("utf-8", errors="replace")
    intact = digest.is_intact(current)
    if intact and _title(current) == _title(text):
        return change(action=Action.REWRITE, reason="out of date")
    if intact:
        problem = "generated for another file and copied here"
    elif digest.has_digest(current):
        problem = "edited by hand"
    elif tree.force or hand_written == "refuse":
        problem = "written by hand"
    elif hand_written == "keep":
        return change(action=Action.KEPT, reason=f"written by hand: {reason}")
    elif tree.is_modified(path):
        problem = "uncommitted changes in Git"
    else:
        return change(action=Action.REWRITE, reason=reason)
    if tree.force:
        return change(action=Action.REWRITE, reason=f"forced: {problem}")
    return change(
        action=Action.REFUSED, reason=f"{problem}; --force overwrites it, --diff shows what goes"
    )


def plan_delete(tree: Tree, path: str, reason: str, *, group: str = "") -> Change:
    """Plan the removal of a file that the clean-up list names."""
    old = tree.read(path)
    change = functools.partial(Change, path=path, old=old, group=group)
    if old is None:
        return change(action=Action.UNCHANGED, reason="already gone")
    if tree.is_modified(path) and not tree.force:
        return change(
            action=Action.REFUSED, reason="uncommitted changes in Git; --force deletes it"
        )
    return change(action=Action.DELETE, reason=reason)


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
