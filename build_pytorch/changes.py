"""Plan, diff and apply: the only code that writes recipes and docs.

A plan compares what should be with what is and decides for each file. Applying it is atomic for
every file, and nothing is renamed into place before everything new lies on the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch import digest, paths, proc
from build_pytorch.errors import WriteError

_TEMPORARY: Final = ".build-pytorch-tmp"
"""Suffix of half-written files. Not .nix, or Flox would take one for a package."""


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
            return (self.root / path).read_bytes()
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
        except proc.ToolError:
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


def plan_text(
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


def apply(root: Path, changes: Sequence[Change]) -> None:
    """Carry out what a plan says. Refused, kept and unknown files are left alone.

    Raises WriteError before anything has changed where the disk is full or read-only, where
    another run is writing, or where a file is no longer what the plan saw.
    """
    writes = [change for change in changes if change.action.writes]
    if not writes:
        return
    with _lock(root), _as_write_error():
        for change in writes:
            if Tree(root).read(change.path) != change.old:
                raise WriteError(f"{change.path}: changed while the plan was made; run again")
        _remove_leftovers(root, writes)
        temporary: dict[Path, Path] = {}
        try:
            for change in writes:
                if change.new is not None:
                    target = root / change.path
                    temporary[target] = target.with_name(f".{target.name}{_TEMPORARY}")
                    _write(temporary[target], change.new, like=target)
            for target in list(temporary):
                os.replace(temporary.pop(target), target)
        finally:
            for leftover in temporary.values():
                leftover.unlink(missing_ok=True)
        for change in writes:
            if change.new is None:
                (root / change.path).unlink(missing_ok=True)
        for folder in {(root / change.path).parent for change in writes}:
            _sync_folder(folder)


def is_temporary(name: str) -> bool:
    """Whether a file name is one of our half-written files."""
    return name.endswith(_TEMPORARY)


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


def _write(path: Path, data: bytes, *, like: Path) -> None:
    """Write a new file and wait until it lies on the disk; the mode is that of the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), like.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = like  # a full disk names no file, and nobody knows the temporary one
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(root: Path, writes: Sequence[Change]) -> None:
    """Half-written files of a run that was killed. The lock is held, so no run needs them."""
    for folder in {(root / change.path).parent for change in writes}:
        for leftover in folder.glob(f".*{_TEMPORARY}"):
            leftover.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Keep other runs off this root. The kernel drops the lock when the process ends, however."""
    folder = root / paths.STATE
    with _as_write_error():
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")  # so that another checkout stays clean as well
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriteError(
                f"{root}: another run is writing here; wait until it ends, then run again"
            ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_write_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or "the disk"
        raise WriteError(
            f"{where}: cannot be written: {error.strerror}; mend that and run again"
        ) from None
