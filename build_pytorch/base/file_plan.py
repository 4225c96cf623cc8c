"""Plans: compare generated texts with the files on disk, decide for each, and apply that.

`apply` is the only code that writes recipes and docs.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import digest, files, git, paths
from build_pytorch.base.console import Screen
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

    @property
    def writes(self) -> bool:
        """Whether the action changes the disk."""
        return self in {Action.CREATE, Action.REWRITE, Action.DELETE}


class Change(Struct, frozen=True, kw_only=True):
    """The decision for one file, whose path is relative to the root.

    `old` and `new` are the content before and after, None for no file.
    """

    path: str
    action: Action
    reason: str
    old: bytes | None = None
    new: bytes | None = None

    def diff(self, context: int = 3) -> str:
        """Return the change as a unified diff with so many lines of context; empty for none."""
        old, new = (
            (data or b"").decode(errors="replace").splitlines() for data in (self.old, self.new)
        )
        source = "/dev/null" if self.old is None else f"a/{self.path}"
        target = "/dev/null" if self.new is None else f"b/{self.path}"
        return "\n".join(difflib.unified_diff(old, new, source, target, n=context, lineterm=""))


_LARGEST: Final = 4 << 20
"""Bytes of a file in the place of a generated one; the largest, the page, has 0.12 million."""


class Tree:
    """The files below a root, each read once. `force` lets plans overwrite hand-written ones."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force
        self._contents: dict[str, bytes | None] = {}

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing. Raises OSError."""
        if path not in self._contents:
            try:
                self._contents[path] = files.read_below(self.root, path, _LARGEST)
            except FileNotFoundError:
                self._contents[path] = None
        return self._contents[path]

    def is_modified(self, path: str) -> bool:
        """Return whether the commit in Git lacks the file's present content.

        Without Git: true in a checkout, false elsewhere.
        """
        options = ("--porcelain", "--ignored", "--ignore-submodules=all")
        try:
            return bool(git.top(self.root) and git.run(self.root, "status", *options, "--", path))
        except ToolError:
            return True


def plan_text(
    tree: Tree,
    path: str,
    text: str | None,
    *,
    hand_written: Literal["refuse", "rewrite", "keep"] = "refuse",
    reason: str = "",
) -> Change:
    """Plan a file that is generated whole and carries a digest, or the removal of one.

    What has an intact digest is replaced. A hand-edited or hand-written file is refused, unless the
    tree is forced or `hand_written` allows another action, for `reason`.
    """
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error)
    new = None if text is None else text.encode()
    change = functools.partial(Change, path=path, old=old, new=new)
    if old == new:
        return change(action=Action.UNCHANGED, reason="as generated")
    if old is None:
        return change(action=Action.CREATE, reason="missing")
    replace = functools.partial(change, action=Action.DELETE if new is None else Action.REWRITE)
    current = old.decode(errors="replace")
    origin, mode = "written by hand", hand_written
    if digest.has_digest(current):
        origin, mode = "edited by hand", "refuse"
    if digest.is_intact(current):
        return replace(reason="out of date" if text else reason)
    if tree.force:
        return replace(reason=f"forced: {origin}")
    if mode == "keep":
        return change(action=Action.KEPT, reason=f"{origin}: {reason}")
    if mode == "rewrite" and not tree.is_modified(path):
        return replace(reason=reason)
    origin = "not committed in Git as it is" if mode == "rewrite" else origin
    how = "deletes" if new is None else "overwrites"
    return change(action=Action.REFUSED, reason=f"{origin}; --force {how} it")


def unreadable(path: str, error: OSError) -> Change:
    """Refuse to change a path that exists but is not a readable file."""
    reason = f"cannot be read: {error.strerror}; remove it by hand"
    return Change(path=path, action=Action.REFUSED, reason=reason)


def is_generated_for(data: bytes, path: str) -> bool:
    """Return whether the content of a recipe was generated for a file name, edited or not."""
    text = data.decode(errors="replace")
    return text.startswith(f"# {PurePath(path).stem}\n") and digest.has_digest(text)


def recipes_elsewhere(tree: Tree, folders: Sequence[str]) -> Iterator[str]:
    """Yield the path of each generated recipe, edited or not, that is in none of the folders.

    They are of folders that a matrix named before. Only files in `.flox/pkgs` that Git tracks or
    would add count, because Flox sees no others. Checkouts inside this one are left out.
    """
    options = ("-z", "--cached", "--others", "--exclude-standard")
    try:
        listed = git.run(tree.root, "ls-files", *options, "--", ":(glob)**/.flox/pkgs/*.nix")
    except ToolError:
        return
    inside = tuple(f"{folder}/" for folder in folders)
    for path in sorted(set(listed.split("\0")[:-1])):
        above = PurePath(path).parents[:-1]
        if path.startswith(inside) or any((tree.root / it / paths.MATRIX).exists() for it in above):
            continue
        with contextlib.suppress(OSError):
            if is_generated_for(tree.read(path) or b"", path):
                yield path


def apply(root: Path, changes: Sequence[Change]) -> None:
    """Write and delete what the changes say. Refused, kept and unknown files are left alone.

    Each file is replaced atomically, and no file is replaced before all new data is on the disk.
    Raises WriteError before anything has changed if the disk is full or read-only, another run
    is writing, or a file differs from what the plan read.
    """
    writes = [change for change in changes if change.action.writes]
    # Temporary files of killed runs. No run needs them while this one holds the lock.
    folders = {files.place_below(root, change.path).parent for change in changes}
    found = (path for folder in folders for path in folder.glob(f".*{files.TEMPORARY}"))
    leftovers = [path.relative_to(root).as_posix() for path in found]
    if not (writes or leftovers):
        return
    with files.write_errors(), files.exclusive_lock(root, "lock", "is writing"):
        for change in writes:
            if Tree(root).read(change.path) != change.old:
                raise WriteError(f"{change.path}: changed while the plan was made; run again")
        # The matrix is the last: until then, the command that changes it can be run again.
        writes.sort(key=lambda change: (change.path == paths.MATRIX, change.new is None))
        contents = {change.path: change.new for change in writes}
        files.write_all(root, dict.fromkeys(leftovers) | contents)


_COLOURS: Final[dict[str, str]] = {
    Action.CREATE: "green",
    Action.REWRITE: "yellow",
    Action.DELETE: "red",
    Action.REFUSED: "red",
    Action.UNKNOWN: "yellow",
}


def print_plan(
    screen: Screen, changes: Sequence[Change], *, verbose: bool = False, suffix: str = ""
) -> None:
    """Print what does not stay as it is, and the totals; if verbose, each file on its own.

    What is deleted or refused always is.
    """
    rows = [
        (change.action.value, change.path, change.reason)
        for change in changes
        if change.action is not Action.UNCHANGED
    ]
    screen.plan(rows, _COLOURS, verbose=verbose, alone={Action.DELETE, Action.REFUSED})
    parts = ", ".join(f"{number} {action}" for action, number in totals(changes).items())
    screen.line(f"Total: {parts or 'nothing to do'}{suffix}")


def totals(changes: Iterable[Change]) -> dict[str, int]:
    """Return the number of changes of each action that occurs."""
    counts = Counter(change.action for change in changes)
    return {str(action): counts[action] for action in Action if action in counts}
