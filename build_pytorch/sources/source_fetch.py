"""Take the hashes of sources: by fetching them, or from the log of a failed build."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Trail
from build_pytorch.nix.log_format import hash_mismatches
from build_pytorch.sources.fetchers import fetchers_for, read_hash
from build_pytorch.sources.source_list import Source


class FetchedHash(Struct, frozen=True, kw_only=True):
    """The true hash of a source and the fetcher that took it."""

    source: Source
    hash: str
    fetcher: str

    @property
    def is_moved(self) -> bool:
        """Whether the hash changed and the revision did not: a moved tag, or an attack."""
        source = self.source
        is_same_rev = source.recorded == source.taken_for
        return bool(source.hash) and source.hash != self.hash and is_same_rev

    @property
    def state(self) -> str:
        """The difference from matrix.toml in one or two words."""
        if self.is_moved:
            return "moved"
        if self.source.hash == self.hash:
            return "as recorded" if self.source.recorded == self.source.taken_for else "confirmed"
        return "new" if self.source.hash else "taken"


def fetch(source: Source, minutes: float) -> FetchedHash:
    """Take the hash of one source with the first fetcher that succeeds. Raises ToolError."""
    errors = []
    for fetcher in fetchers_for(source):
        progress = ProgressLine(f"{source.label} by {fetcher.name}", 0)
        try:
            result = process.start(fetcher.argv(source)).finish(minutes * 60, progress.at)
            found = read_hash(source, result)
            return FetchedHash(source=source, hash=found, fetcher=fetcher.name)
        except ToolError as error:
            errors.append(f"{error} ({fetcher.name})")
        finally:
            progress.end()
    tools = "install Nix (Debian: apt-get install nix-bin)"
    raise ToolError("; then ".join(errors) or f"{source.label}: no fetcher for it here; {tools}")


def fetch_all(wanted: list[Source], minutes: float) -> list[FetchedHash]:
    """Take the hash of every source; equal requests are fetched once. Raises ToolError."""
    done: dict[tuple[str, ...], FetchedHash] = {}
    fetched = []
    for source in wanted:
        if source.request not in done:
            done[source.request] = fetch(source, minutes)
        first = done[source.request]
        fetched.append(FetchedHash(source=source, hash=first.hash, fetcher=first.fetcher))
    return fetched


def from_log(path: Path, wanted: list[Source]) -> list[FetchedHash]:
    """Return the sources whose old hash a build log reports as wrong, with their true hash.

    Raises BuildPytorchError for a log without such a hash, or with one that no source has.
    """
    try:
        log = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise BuildPytorchError(f"{path}: cannot be read: {error.strerror}") from None
    pairs = hash_mismatches(log.decode("utf-8", errors="replace"))
    if not pairs:
        raise BuildPytorchError(f"{path}: no hash mismatch in it; is it the whole log?")
    hashes = {source.hash for source in wanted}
    if unknown := [pair.specified for pair in pairs if pair.specified not in hashes]:
        raise BuildPytorchError(
            f"{path}: {', '.join(unknown)} is not a hash in matrix.toml; nothing was changed; "
            "was the log made with this matrix?"
        )
    return [
        FetchedHash(source=source, hash=pair.got, fetcher="build log")
        for pair in pairs
        for source in wanted
        if source.hash == pair.specified
    ]


def new_values(fetched: list[FetchedHash]) -> dict[Trail, Value]:
    """Return the values of matrix.toml that record the hashes."""
    values: dict[Trail, Value] = {}
    for item in fetched:
        values[item.source.hash_trail] = item.hash
        values[item.source.recorded_trail] = item.source.taken_for
    return values
