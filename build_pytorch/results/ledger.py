"""The ledger: an append-only file of JSON lines, one for each event of a package.

Every line is synced to disk before `append` returns. Torn and unknown lines are skipped,
unknown keys ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from build_pytorch.base import files, outputs, paths
from build_pytorch.base.errors import WriteError

FILE: Final = "ledger.jsonl"
HOST: Final = platform.node()  #: this machine
_NAME: Final = f"{paths.STATE}/{FILE}"
LOGS: Final = "logs"
REPORTS: Final = "reports"

TestKind = Literal["smoke", "inspect", "compare"]
TestOutcome = Literal["passed", "failed", "skipped", "compatible"]
"""compatible: passed on a GPU of another architecture than the variant's."""


class Verdict(StrEnum):
    """What a comparison says, the decisive ones first. A difference of less than 3 % is none."""

    SLOWER = "slower"
    NOISY = "too noisy"
    FASTER = "faster"
    EQUAL = "no difference"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """One line of the ledger. `at` is UTC (ISO 8601), `digest` that of the recipe at that time."""

    at: str
    release: str
    variant: str
    digest: str
    host: str = ""
    """The machine that wrote the line; `append` fills it in."""

    @property
    def subject(self) -> tuple[str, str]:
        """The release and the package."""
        return self.release, self.variant


class Started(Event, tag="started", frozen=True, kw_only=True, omit_defaults=True):
    """A build started; the line that ends it has the same `attempt`. `log` is below the root."""

    attempt: str
    backend: str
    derivation: str = ""
    log: str = ""
    cores: int = 0


class Ended(Event, tag="ended", frozen=True, kw_only=True, omit_defaults=True):
    """A build ended. A killed run leaves no such line."""

    attempt: str
    outcome: Literal["built", "failed", "stopped", "interrupted"]
    """stopped: a log rule ended the build because it could only fail."""
    seconds: float
    outputs: tuple[str, ...] = ()
    """Store paths."""
    cause: str = ""
    """Id of the log rule that names the failure."""
    message: str = ""
    steps: int = 0
    """Number of ninja steps."""
    where: str = ""
    """The remote builder; empty for this machine."""
    cache_hits: int = 0
    """Objects from a compiler cache; 0 without one, and if the build did not get that far."""
    cache_misses: int = 0
    """Objects that a build with a compiler cache compiled itself."""
    local_packages: str = ""
    """The local checkout that CUDA packages came from; nobody else could build this result."""


class ComparedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a result was compared with, on which class of machine, and how fast it is.

    `ratios`: geometric means of the time of the result / the other time, by setting, and their
    `verdicts`.
    """

    against: str
    machine: str
    ratios: dict[str, float]
    verdicts: dict[str, Verdict] = {}


class Tested(Event, tag="tested", frozen=True, kw_only=True, omit_defaults=True):
    """`output` was smoke-tested, inspected or compared. `report` is below the root.

    A comparison failed if the result is slower, and was skipped if it is too noisy to tell.
    """

    by: TestKind
    outcome: TestOutcome
    output: str
    reason: str = ""
    report: str = ""
    compared: ComparedFacts | None = None


class Published(Event, tag="published", frozen=True, kw_only=True, omit_defaults=True):
    """A package was published, perhaps without a recorded smoke test or inspection that passed."""

    organization: str = ""
    output: str = ""
    without_evidence: bool = False


AnyEvent = Started | Ended | Tested | Published

Events = Mapping[tuple[str, str], Sequence[AnyEvent]]
"""Events by release and name, oldest first."""

_DECODER: Final = msgspec.json.Decoder(AnyEvent)


class Ledger:
    """The ledger of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / _NAME

    def append(self, event: AnyEvent) -> None:
        """Add a line of this machine and sync it to disk. Raises WriteError."""
        line = msgspec.json.encode(replace(event, host=event.host or HOST)) + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with files.write_errors(self.path):
            outputs.make_state(self.root)
            with os.fdopen(files.open_below(self.root, _NAME, flags), "rb+", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                    line = b"\n" + line  # the last line is incomplete after a power failure
                while line:  # a full disk may take a part of it
                    line = line[file.write(line) or 0 :]
                os.fsync(file.fileno())

    def events(self) -> Iterator[AnyEvent]:
        """Yield every valid line of a ledger of any size, oldest first.

        Raises WriteError if the file exists and cannot be read.
        """
        try:
            with os.fdopen(files.open_below(self.root, _NAME), "rb") as file:
                while line := file.readline(files.LARGEST_TEXT):
                    with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                        yield _DECODER.decode(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be read: {error.strerror}") from None


def now() -> str:
    """Return the current time in the format of the ledger."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def only_run(root: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the one run that builds or publishes in a checkout. Raises WriteError.

    Two builds would use memory that each counts on, two publications publish a result twice.
    """
    return outputs.exclusive_lock(root, "builds.lock", "builds or publishes")
