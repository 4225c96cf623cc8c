"""What happened to each variant: an append-only file of JSON lines in the state folder.

Every line is synced before anything is told. A line that a power cut tore is passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from build_pytorch.base import files, paths
from build_pytorch.base.errors import WriteError
from build_pytorch.matrix.model import Variant

FILE: Final = "ledger.jsonl"
LOGS: Final = "logs"
REPORTS: Final = "reports"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """One line: what happened to which variant, with the digest of its recipe at that time."""

    at: str
    """UTC, ISO 8601."""
    release: str
    variant: str
    digest: str

    @property
    def subject(self) -> tuple[str, str]:
        """The release and the variant that it is about."""
        return self.release, self.variant


class Started(Event, tag="started", frozen=True, kw_only=True, omit_defaults=True):
    """A build began. `attempt` is the same in the line that ends it."""

    attempt: str
    backend: str
    derivation: str = ""
    log: str = ""
    """Below the root."""
    cores: int = 0


class Ended(Event, tag="ended", frozen=True, kw_only=True, omit_defaults=True):
    """A build ended. Without this line it was killed."""

    attempt: str
    outcome: Literal["built", "failed", "stopped", "interrupted"]
    """stopped: ended by us, because it could only end badly."""
    seconds: float
    outputs: tuple[str, ...] = ()
    """Store paths."""
    cause: str = ""
    """The id of the rule that names the failure."""
    message: str = ""
    steps: int = 0
    """What ninja counted."""
    peak_memory: int = 0
    """Bytes, where it is known."""
    where: str = ""
    """The machine that built it, where it was not this one."""


class Tested(Event, tag="tested", frozen=True, kw_only=True, omit_defaults=True):
    """A built variant was put to the proof."""

    by: Literal["smoke", "binary"]
    outcome: Literal["passed", "failed", "skipped", "compatible"]
    """compatible: it ran on another GPU than the one it is for."""
    output: str
    """The store path that was tested."""
    reason: str = ""
    report: str = ""
    """Below the root."""


class Published(Event, tag="published", frozen=True, kw_only=True, omit_defaults=True):
    """A variant was published."""

    organization: str = ""
    output: str = ""
    unproved: bool = False
    """It was published although nothing had proved it."""


AnyEvent = Started | Ended | Tested | Published

_DECODER: Final = msgspec.json.Decoder(AnyEvent)


class Ledger:
    """The ledger of one checkout."""

    def __init__(self, root: Path) -> None:
        self.folder = root / paths.STATE
        self.path = self.folder / FILE

    def append(self, event: AnyEvent) -> None:
        """Add one line and wait until it lies on the disk. Raises WriteError."""
        line = msgspec.json.encode(event) + b"\n"
        try:
            files.make_state(self.folder)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(self.path, flags, 0o666), "rb+", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                    line = b"\n" + line  # the line before was torn; it keeps its place
                while line:  # a disk that fills up takes a part of it
                    line = line[file.write(line) or 0 :]
                os.fsync(file.fileno())
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be written: {error.strerror}") from None

    def events(self) -> Iterator[AnyEvent]:
        """Every whole line, oldest first. What newer versions wrote and we do not know is left out.

        Raises WriteError where the file is there and cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                for line in file:
                    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                        yield _DECODER.decode(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be read: {error.strerror}") from None

    def of(self, variant: Variant) -> list[AnyEvent]:
        """What happened to one variant, oldest first."""
        subject = (variant.release_name, variant.id)
        return [event for event in self.events() if event.subject == subject]


def now() -> str:
    """The time as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
