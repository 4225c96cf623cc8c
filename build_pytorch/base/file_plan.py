"""Plans: compare generated texts with the files on disk, decide for each, and apply that.

`apply` is the only code that writes recipes and docs.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import digest, files, git, outputs, paths
from build_pytorch.base.console import WIDTH, Screen, grouped, visible
from build_pytorch.base.errors import TemplateError, ToolError, WriteError


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
    """The decision for one file, whose path is relative to the root.

    `old` and `new` are the content before and after, None for no file.
    """

    path: str
    action: Action
    reason: str
    old: bytes | None = None
    new: bytes | None = None

    def diff(self, context: int = 3) -> str:
        """Return the change as a unified diff; empty if the content stays.

        `context`: the lines that stay before and after each changed one.
        """
        import difflib  # 5 ms, and most runs show no diff

        before, after = (
            (data or b"").decode(errors="replace").splitlines(keepends=True)
            for data in (self.old, self.new)
        )
        source = "/dev/null" if self.old is None else f"a/{self.path}"
        target = "/dev/null" if self.new is None else f"b/{self.path}"
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(before, after, source, target, n=context)
        )


_LARGEST: Final = 4 << 20
"""Bytes of a file in the place of a generated one; the largest, the page, has 0.12 million."""


class Tree:
    """The files below a root, each read once. `force` lets plans overwrite hand-written ones."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force
        self._contents: dict[str, bytes | None] = {}

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing. Raises LinkError and OSError."""
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
        if git.top(self.root) is None:
            return False
        try:
            return bool(git.uncommitted(self.root, path))
        except ToolError:
            return True


def plan_text(
    tree: Tree,
    path: str,
    text: str,
    *,
    hand_written: Literal["refuse", "rewrite", "keep"] = "refuse",
    reason: str = "",
) -> Change:
    """Plan a file that is generated whole and carries a digest.

    A file with an intact digest is rewritten. A hand-edited or hand-written file is refused,
    unless the tree is forced or `hand_written` allows another action, for `reason`. Raises
    TemplateError for a text without a digest: the next run would take its file for hand-written.
    """
    if not digest.has_digest(text):
        fix = "the code that makes it has to call digest.seal"
        raise TemplateError(f"{path}: the generated text has no digest; {fix}")
    new = text.encode()
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error)
    change = functools.partial(Change, path=path, old=old, new=new)
    if old is None:
        return change(action=Action.CREATE, reason="missing")
    if old == new:
        return change(action=Action.UNCHANGED, reason="as generated")
    current = old.decode("utf-8", errors="replace")
    origin = _origin(current, text)
    if origin == _GENERATED:
        return change(action=Action.REWRITE, reason="out of date")
    if tree.force:
        return change(action=Action.REWRITE, reason=f"forced: {origin}")
    if origin == _HAND_WRITTEN and hand_written == "keep":
        return change(action=Action.KEPT, reason=f"{origin}: {reason}")
    if origin == _HAND_WRITTEN and hand_written == "rewrite":
        if not tree.is_modified(path):
            return change(action=Action.REWRITE, reason=reason)
        origin = _UNCOMMITTED
    return change(action=Action.REFUSED, reason=f"{origin}; --force overwrites it")


_GENERATED: Final = "generated"
_HAND_WRITTEN: Final = "written by hand"
_UNCOMMITTED: Final = "not committed in Git as it is"


def is_generated_for(data: bytes, stem: str) -> bool:
    """Return whether the content of a recipe is unedited and was generated for a file name."""
    text = data.decode("utf-8", errors="replace")
    return digest.is_intact(text) and text.partition("\n")[0] == f"# {stem}"


def recipes_elsewhere(root: Path, folders: Sequence[str]) -> Iterator[str]:
    """Yield the path of each generated recipe, edited or not, that is in none of the folders.

    They are of folders that a matrix named before: a recipe has a digest, and its first line the
    name that it was generated for. Only files in `.flox/pkgs` that Git tracks or would add count,
    because Flox sees no others. Checkouts inside this one are left out.
    """
    inside = tuple(f"{folder}/" for folder in folders)
    for path in git.files_named(root, ":(glob)**/.flox/pkgs/*.nix"):
        if path.startswith(inside) or path.split("/")[0] in paths.OWN_FOLDERS:
            continue
        if any((root / folder / paths.MATRIX).exists() for folder in PurePath(path).parents[:-1]):
            continue  # of another checkout
        with contextlib.suppress(OSError):
            text = files.read_text_below(root, path)
            is_named_so = text.partition("\n")[0] == f"# {PurePath(path).stem}"
            if is_named_so and digest.has_digest(text):
                yield path


def _origin(current: str, text: str) -> str:
    if digest.is_intact(current):
        # The first line names the file that a text was generated for.
        is_copy = current.partition("\n")[0] != text.partition("\n")[0]
        return "generated for another file and copied here" if is_copy else _GENERATED
    return "edited by hand" if digest.has_digest(current) else _HAND_WRITTEN


def plan_delete(tree: Tree, path: str, reason: str) -> Change | None:
    """Plan the removal of a file that the clean-up list names; None if there is no such file."""
    try:
        old = tree.read(path)
    except OSError as error:
        return unreadable(path, error)
    if old is None:
        return None
    action = Action.DELETE
    if tree.is_modified(path) and not tree.force:
        action, reason = Action.REFUSED, f"{_UNCOMMITTED}; --force deletes it"
    return Change(path=path, action=action, reason=reason, old=old)


def unreadable(path: str, error: OSError) -> Change:
    """Refuse to change a path that exists but is not a readable file."""
    reason = f"cannot be read: {error.strerror}; remove it by hand"
    return Change(path=path, action=Action.REFUSED, reason=reason)


def apply(root: Path, changes: Sequence[Change]) -> None:
    """Write and delete what the changes say. Refused, kept and unknown files are left alone.

    Each file is replaced atomically, and no file is replaced before all new data is on the disk.
    Raises WriteError before anything has changed if the disk is full or read-only, another run
    is writing, or a file differs from what the plan read.
    """
    writes = [change for change in changes if change.action.writes]
    # Temporary files of killed runs. No run needs them while this one holds the lock.
    folders = {change.path.rpartition("/")[0] for change in changes}
    leftovers = [name for folder in sorted(folders) for name in files.leftovers(root, folder)]
    if not (writes or leftovers):
        return
    with files.write_errors(), outputs.exclusive_lock(root, "lock", "is writing"):
        for change in writes:
            if Tree(root).read(change.path) != change.old:
                raise WriteError(f"{change.path}: changed while the plan was made; run again")
        files.write_all(root, dict.fromkeys(leftovers))
        # The matrix is the last: until then, the command that changes it can be run again.
        writes.sort(key=lambda change: (change.path == paths.MATRIX, change.new is None))
        files.write_all(root, {change.path: change.new for change in writes})


_PLAIN: Final = {"missing", "out of date", "as generated"}
"""Reasons that an action implies."""
_MOST_ROWS: Final = 4
"""Files of one action that are printed one by one; more are counted by folder."""


def _by_folder(changes: Sequence[Change]) -> list[tuple[str, str]]:
    """Return a row for all files of a folder of the root with one reason."""

    def folder_of(path: str) -> str:
        top, slash, _ = path.partition("/")
        return top + slash

    groups = grouped(((folder_of(each.path), each.reason), each.path) for each in changes)
    return [
        (paths_[0], reason)
        if len(paths_) == 1
        else (folder, f"{len(paths_)} files{'' if reason in _PLAIN else ', ' + reason}")
        for (folder, reason), paths_ in groups.items()
    ]


def print_plan(
    screen: Screen, changes: Sequence[Change], *, verbose: bool = False, suffix: str = ""
) -> None:
    """Print what changes by file, or by folder where it is much, and the totals.

    If verbose, each file that changes, and the folders of those that do not.
    """
    counts = totals(changes)
    for action in map(Action, counts):
        is_same = action is Action.UNCHANGED
        members = [change for change in changes if change.action is action]
        rows = [(change.path, change.reason) for change in members]
        if is_same or (len(rows) > _MOST_ROWS and not verbose):
            rows = _by_folder(members)
        for what, reason in rows if verbose or not is_same else ():
            head = f"  {action:<9}  "
            why = "" if reason in _PLAIN else f": {visible(reason)}"
            if len(f"{head}{what}{why}") > WIDTH:
                why = why.replace(" ", "\n    ", 1)
            screen.line(f"{screen.paint(head, _COLOURS.get(action, ''))}{visible(what)}{why}")
    parts = ", ".join(f"{number} {action}" for action, number in counts.items())
    screen.line(f"Total: {parts or 'nothing to do'}{suffix}")


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
    counts = Counter(change.action for change in changes)
    return {str(action): counts[action] for action in Action if action in counts}
