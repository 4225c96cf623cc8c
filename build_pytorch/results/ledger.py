"""The ledger: an append-only file of JSON lines, one for each event of a package.

A line is written at once, under a lock, and synced to disk. Torn and unknown lines are skipped and
counted, unknown keys ignored: `cat` or Git (`merge=union`) may add lines of other machines.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base import files, paths
from build_pytorch.base.errors import WriteError
from build_pytorch.matrix.model import Package

FILE: Final = f"{paths.STATE}/ledger.jsonl"
LOGS: Final = f"{paths.STATE}/logs"
REPORTS: Final = f"{paths.STATE}/reports"
HOST: Final = platform.node()  #: this machine

EventKind = Literal["started", "ended", "tested", "published"]
TestKind = Literal["smoke", "inspect", "compare", "upstream"]
TestOutcome = Literal["passed", "failed", "skipped", "compatible"]
"""compatible: passed on a GPU of another architecture than the variant's."""
BuildEnd = Literal["built", "failed", "stopped", "interrupted"]
"""stopped: a log rule ended the build because it could only fail."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger: a build started or ended, a test, or a publication."""

    event: EventKind
    at: str  #: UTC, ISO 8601
    release: str
    variant: str  #: name of the package inside its release
    digest: str  #: of the recipe: evidence counts for it, and for no other
    host: str = ""  #: the machine that wrote the line; `append` fills it in
    # A build that started; the line that ends it has the same `attempt`. A killed run leaves none.
    attempt: str = ""
    # A build that ended, or a test. A comparison failed if the result is slower.
    outcome: BuildEnd | TestOutcome | None = None
    seconds: float = 0.0
    outputs: tuple[str, ...] = ()  #: store paths
    cause: str = ""  #: id of the log rule that names the failure
    message: str = ""
    fails_again: bool = False  #: the fault is in the recipe
    where: str = ""  #: the remote builder; empty for this machine
    # A test of `output`.
    by: TestKind | None = None
    output: str = ""
    reason: str = ""
    report: str = ""  #: path below the root
    # A publication of `output`.
    organization: str = ""  #: empty: the user's own account
    without_evidence: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if an event lacks what the others of its kind have."""
        if self.event in {"ended", "tested"} and not self.outcome:
            raise ValueError("no outcome")
        if self.event == "tested" and not self.by:
            raise ValueError("no test")

    @property
    def subject(self) -> tuple[str, str]:
        """The release and the package."""
        return self.release, self.variant


class History(Struct, frozen=True):
    """The lines of a ledger that could be read, oldest first, and the number of the others."""

    events: list[Event]
    skipped: int


def subject_of(package: Package) -> tuple[str, str]:
    """Return the release and the name that a package has in events."""
    return package.release_name, package.short_id


def event_of(package: Package, event: EventKind, *, digest: str, **fields: object) -> Event:
    """Return an event of a package that happens now. `fields` are those of its kind."""
    release, variant = subject_of(package)
    common = {"event": event, "at": now(), "release": release, "variant": variant}
    return msgspec.convert({**common, "digest": digest, **fields}, Event)


def append(root: Path, event: Event) -> None:
    """Add a line of this machine and sync it to disk. Raises WriteError."""
    line = msgspec.json.encode(replace(event, host=event.host or HOST)) + b"\n"
    with files.write_errors(root / FILE), files.open_state(root, FILE, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line  # the last line is incomplete after a power failure
        while line:  # a full disk may take a part of it
            line = line[file.write(line) or 0 :]
        os.fsync(file.fileno())


def read(root: Path) -> History:
    """Return what the ledger of a checkout says. Raises WriteError if it cannot be read."""
    decoder, events, skipped, is_start = msgspec.json.Decoder(Event), [], 0, True
    try:
        with files.open_regular(files.place_below(root, FILE)) as file:
            while line := file.readline(files.LARGEST_TEXT):
                try:
                    events.append(decoder.decode(line))
                except (msgspec.DecodeError, ValueError, RecursionError):
                    skipped += is_start and bool(line.strip())
                is_start = line.endswith(b"\n")  # a longer line comes in pieces
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WriteError(f"{root / FILE}: cannot be read: {error.strerror}") from None
    if len({event.host for event in events}) > 1:
        events.sort(key=lambda event: event.at)
    return History(events, skipped)


def now() -> str:
    """Return the current time in the format of the ledger."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def only_run(root: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the one run that builds or publishes in a checkout. Raises WriteError.

    Two builds would use memory that each counts on, two publications publish a result twice.
    """
    return files.exclusive_lock(root, "builds.lock", "builds or publishes")
