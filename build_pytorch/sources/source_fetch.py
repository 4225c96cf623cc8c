"""Source hashes without the failed first build: fetch, compare, write, generate again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Trail
from build_pytorch.nix.log_format import hash_mismatches
from build_pytorch.sources.fetchers import backends_for
from build_pytorch.sources.source_list import Source

TIMEOUT: Final = 60
"""Minutes that one download may take. PyTorch with its submodules is several GiB."""


class Fetched(Struct, frozen=True, kw_only=True):
    """What came of one source: the true hash, how it was learned, and what follows."""

    source: Source
    hash: str
    backend: str

    @property
    def is_moved(self) -> bool:
        """Whether the same rev has another hash than it had: the tag was moved, or worse."""
        source = self.source
        return (
            bool(source.hash) and source.hash != self.hash and source.recorded == source.taken_for
        )

    @property
    def state(self) -> str:
        """What to tell of it."""
        if self.is_moved:
            return "moved"
        if self.source.hash == self.hash:
            return "as recorded" if self.source.recorded == self.source.taken_for else "confirmed"
        return "new" if self.source.hash else "taken"


def fetch(source: Source, minutes: int = TIMEOUT) -> Fetched:
    """The true hash of one source. Raises ToolError with one line."""
    errors = []
    for backend in backends_for(source):
        progress = ProgressLine(f"{source.label} by {backend.name}", 0)

        def watched(
            argv: Sequence[str], progress: ProgressLine = progress
        ) -> process.ProcessResult:
            return process.start(argv).watch(progress.at, minutes * 60)

        try:
            return Fetched(source=source, hash=backend.fetch(source, watched), backend=backend.name)
        except ToolError as error:
            errors.append(f"{error} ({backend.name})")
        finally:
            progress.end()
    tools = "install Nix (Debian: apt-get install nix-bin)"
    raise ToolError("; then ".join(errors) or f"{source.label}: nothing here can fetch it; {tools}")


def fetch_all(wanted: list[Source], minutes: int = TIMEOUT) -> list[Fetched]:
    """Every source, each request once."""
    done: dict[tuple[str, ...], Fetched] = {}
    fetched = []
    for source in wanted:
        if source.request not in done:
            done[source.request] = fetch(source, minutes)
        first = done[source.request]
        fetched.append(Fetched(source=source, hash=first.hash, backend=first.backend))
    return fetched


def from_log(path: Path, wanted: list[Source]) -> list[Fetched]:
    """The sources whose hash a build log says is another one, found by the old hash."""
    try:
        log = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise BuildPytorchError(f"{path}: cannot be read: {error.strerror}") from None
    pairs = hash_mismatches(log.decode("utf-8", errors="replace"))
    if not pairs:
        raise BuildPytorchError(f"{path}: no hash mismatch in it; is it the whole log?")
    fetched = [
        Fetched(source=source, hash=pair.got, backend="build log")
        for pair in pairs
        for source in wanted
        if source.hash == pair.specified
    ]
    known = {item.source.hash for item in fetched}
    unknown = [pair.specified for pair in pairs if pair.specified not in known]
    if unknown:
        raise BuildPytorchError(
            f"{path}: {', '.join(unknown)} is no hash of matrix.toml, so nothing was changed; "
            "was the log made with this matrix?"
        )
    return fetched


def new_values(fetched: list[Fetched]) -> dict[Trail, str]:
    values: dict[Trail, str] = {}
    for item in fetched:
        values[item.source.hash_trail] = item.hash
        values[item.source.recorded_trail] = item.source.taken_for
    return values
