"""Take the hashes of sources: with nix-prefetch, with Nix alone, or from a build log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from build_pytorch.base import files, process
from build_pytorch.base.console import waiting
from build_pytorch.base.errors import BuildPytorchError, ToolError, near_miss
from build_pytorch.base.process import ProcessResult
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.matrix_text import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.tables import FAKE, GITHUB, Pin, Source
from build_pytorch.nix import quoting, store
from build_pytorch.nix.evaluation import NO_DAEMON, message_of
from build_pytorch.nix.log_format import hash_mismatches
from build_pytorch.nix.quoting import to_sri

GITHUB_VARIABLE: Final = "BUILD_PYTORCH_GITHUB"
"""Environment variable with another base URL for GitHub: a mirror, or a server in a test."""
SECONDS: Final = 3600
"""Maximum for one download or evaluation."""


def sources(matrix: Matrix, only: Sequence[str] = (), release: str = "") -> list[Source]:
    """Return the sources that releases do not inherit: all, those of one release, or by name.

    Raises BuildPytorchError for an unknown release, one without sources of its own, and a name that
    no source has.
    """
    if release:
        require_release(matrix, release)
    found = [source for source in matrix.sources() if release in {"", source.release}]
    if not found:
        inherits = f"it has those of release {matrix.releases[release].like}"
        raise BuildPytorchError(f"release {release} has no source of its own; {inherits}")
    names = dict.fromkeys(source.name for source in found)
    for name in only:
        if name not in names:
            hint = near_miss(name, names) or f"; there are {', '.join(names)}"
            raise BuildPytorchError(f'no source "{name}"{hint}')
    return [source for source in found if not only or source.name in only]


def mirrored(url: str) -> str:
    """Return a URL with the base URL for GitHub that is in use."""
    return url.replace(GITHUB, os.environ.get(GITHUB_VARIABLE, GITHUB).rstrip("/"), 1)


class FetchedHash(Struct, frozen=True, kw_only=True):
    """The true hash of a source and the program that took it."""

    source: Source
    hash: str
    fetcher: str

    @property
    def state(self) -> str:
        """The difference from matrix.toml in one or two words.

        `moved`: the hash changed and the revision did not, by a moved tag or an attack.
        """
        if self.source.hash == self.hash:
            return "as recorded"
        is_same_revision = self.source.recorded == self.source.origin.revision
        return "moved" if self.source.hash and is_same_revision else "new"


def nixpkgs_of(pin: Pin) -> str:
    """Return the Nix expression that imports the nixpkgs of a pin."""
    given = {"url": mirrored(pin.origin.address)}
    if pin.sha256_of == pin.rev:
        given["sha256"] = pin.sha256
    return f"import (builtins.fetchTarball {quoting.literal(given)})"


def _commands(source: Source) -> list[list[str]]:
    """Return the commands that print the hash of a source: of nix-prefetch, then of Nix alone.

    That of Nix builds it with a wrong hash: it fails, and Nix reports the right one.
    """
    origin, url = source.origin, mirrored(source.origin.address)
    if origin.function == "fetchTarball":
        return [store.prefetch_tarball_argv(url)]
    given = origin.arguments | ({"url": url} if "url" in origin.arguments else {})
    argv = ["nix-prefetch", "--quiet", origin.function]
    for name, value in given.items():
        if value:
            argv += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    call = f"{origin.function} {quoting.literal({**given, 'hash': FAKE})}"
    expression = f"with {nixpkgs_of(source.pin)} {{ }}; {call}"
    return [argv, store.build_expression_argv(expression)]


def fetch(source: Source, seconds: float = SECONDS) -> FetchedHash:
    """Take the hash of one source by the first command that succeeds. Raises ToolError."""
    error = ToolError(f"{source.label}: no program for it; {process.INSTALL['nix']}")
    for argv in _commands(source):
        if not process.which(argv[0]):
            continue
        try:
            with waiting(f"{source.label} by {argv[0]}"):
                result = process.run(argv, seconds=seconds)
            return FetchedHash(source=source, hash=read_hash(source, result), fetcher=argv[0])
        except ToolError as reason:
            error = reason
    raise error


def fetch_all(wanted: Sequence[Source]) -> list[FetchedHash]:
    """Take the hash of every source; equal ones are fetched once. Raises ToolError."""
    fetched: list[FetchedHash] = []
    for source in wanted:
        same = next((it for it in fetched if it.source.origin == source.origin), None)
        fetched.append(structs.replace(same, source=source) if same else fetch(source))
    return fetched


def fetch_moved(old: Matrix, new: Matrix, release: str) -> list[FetchedHash]:
    """Take the hashes of the sources of a release that changed. Raises ToolError."""
    before = {(source.place, source.origin.revision) for source in old.sources()}
    moved = [
        source
        for source in new.sources()
        if source.release == release
        and source.recorded != source.origin.revision
        and (source.place, source.origin.revision) not in before
    ]
    return fetch_all(moved)


def hash_values(fetched: Sequence[FetchedHash]) -> dict[Trail, Value]:
    """Return the values of matrix.toml that record hashes."""
    values: dict[Trail, Value] = {}
    for item in fetched:
        values |= item.source.values(item.hash)
    return values


def from_log(path: Path, wanted: Sequence[Source]) -> list[FetchedHash]:
    """Return the sources whose old hash a build log reports as wrong, with their true hash.

    Raises BuildPytorchError for a log without such a hash, or with one that no source has.
    """
    log = files.read_input(path, files.LARGEST_LOG)
    pairs = hash_mismatches(log.decode("utf-8", errors="replace"))
    if not pairs:
        raise BuildPytorchError(f"{path}: no hash mismatch in it; is it the whole log?")
    fetched = []
    for pair in pairs:
        meant = [source for source in wanted if source.specified == pair.specified]
        if not meant:
            what = f"{pair.specified} is not a hash in matrix.toml; nothing was changed"
            raise BuildPytorchError(f"{path}: {what}; was the log made with this matrix?")
        if any(source.origin != meant[0].origin for source in meant):
            names = " and ".join(source.label for source in meant)
            raise BuildPytorchError(f"{path}: {names} have the same old hash; name one with --only")
        fetched += [FetchedHash(source=s, hash=pair.got, fetcher="build log") for s in meant]
    return fetched


def read_hash(source: Source, result: ProcessResult) -> str:
    """Return the hash, as SRI, that a program printed. Raises ToolError with the reason.

    The hash is a word, a value of a JSON object, or what Nix found in place of FAKE.
    """
    words = re.split(r"[\s\"',]+", result.stdout) if result.code == 0 else []
    found = {hash_ for word in words if (hash_ := to_sri(word))}
    found |= {pair.got for pair in hash_mismatches(result.stderr) if pair.specified == FAKE}
    found.discard(FAKE)
    if len(found) == 1 and not result.expired:
        return found.pop()
    causes = re.findall(r"(?:^|[\r\n]) *((?:fatal|curl): .+)", result.stderr)  # of Nix's error
    what = "its output has not one hash"
    if result.expired:
        what = f"not finished in {SECONDS // 60} minutes"
    elif causes:
        what = causes[-1].strip()
    elif re.search(r"error: *\S", result.stderr):
        what = message_of(result.stderr)
    if what.startswith(NO_DAEMON):
        raise ToolError(f"{source.label}: {what}")
    place = f"{mirrored(source.origin.address)} {source.origin.arguments.get('rev', '')}".strip()
    raise ToolError(f"{source.label}: {what}; check the network, and that {place} exists")
