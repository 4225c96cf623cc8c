"""Take the hashes of sources: with nix-prefetch, with Nix alone, or from a build log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from build_pytorch.base import files, process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import BuildPytorchError, ToolError, near_miss
from build_pytorch.base.process import ProcessResult
from build_pytorch.base.versions import is_revision
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.hashed_sources import FAKE, Source
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.source_tables import GITHUB
from build_pytorch.nix import quoting, store
from build_pytorch.nix.log_format import hash_mismatches
from build_pytorch.nix.quoting import to_sri

GITHUB_VARIABLE: Final = "BUILD_PYTORCH_GITHUB"
"""Environment variable with another base URL for GitHub: a mirror, or a server in a test."""


def sources(matrix: Matrix, only: Sequence[str] = (), release: str = "") -> list[Source]:
    """Return the sources of all releases or of one, or those with some names.

    Raises BuildPytorchError for a name that none has, and for no such release.
    """
    found = matrix.sources()
    if release:
        require_release(matrix, release)
        found = [source for source in found if _is_of(matrix, release, source)]
    names = list(dict.fromkeys(source.name for source in found))
    for name in only:
        if name not in names:
            hint = near_miss(name, names) or f"; there are {', '.join(names)}"
            raise BuildPytorchError(f'no source "{name}"{hint}')
    return [source for source in found if not only or source.name in only]


def _is_of(matrix: Matrix, name: str, source: Source) -> bool:
    """Return whether a release uses a source; it may inherit its table."""
    release = matrix.releases[name]
    kind, key, *place = source.place
    if kind == "pin":
        return key == release.nixpkgs.pin
    if kind == "patch":
        return any(source.table in v.effects.patches for v in matrix.of_release(name))
    is_same = release.hashed.get(tuple(map(str, place))) == source.table
    return key in {name, release.like} and is_same


def mirrored(url: str) -> str:
    """Return a URL with the base URL for GitHub that is in use."""
    return url.replace(GITHUB, os.environ.get(GITHUB_VARIABLE, GITHUB).rstrip("/"), 1)


def arguments(source: Source) -> dict[str, str | bool]:
    """Return the arguments of the Nix function that fetches a source."""
    given = source.table.arguments
    return given | ({"url": mirrored(str(given["url"]))} if "url" in given else {})


def _rev(source: Source) -> str:
    """Return the revision of a Git source; empty for others."""
    return str(source.table.arguments.get("rev", ""))


def _commands(source: Source) -> list[list[str]]:
    """Return the commands that print the hash of a source, best first: nix-prefetch, then Nix."""
    table, url, rev = source.table, mirrored(source.table.address), _rev(source)
    if table.function == "fetchTarball":
        return [store.prefetch_tarball_argv(url)]
    pairs = [(f"--{name}", value) for name, value in arguments(source).items() if value]
    words = [word for pair in pairs for word in pair if isinstance(word, str)]
    if not rev:
        plain = _fake_hash(source)
    elif table.arguments["fetchSubmodules"]:
        plain = _git_tree(url, rev)
    else:
        plain = store.prefetch_tarball_argv(f"{url}/archive/{rev}.tar.gz")
    return [["nix-prefetch", "--quiet", table.function, *words], plain]


def _git_tree(url: str, rev: str) -> list[str]:
    """Return the command for the narHash of a clone, which is the hash of its tree without .git."""
    ref = f"ref = {quoting.literal(f'refs/tags/{rev}')};"
    if is_revision(rev):
        ref = f"allRefs = true; rev = {quoting.literal(rev)};"
    given = f"url = {quoting.literal(url)}; {ref} submodules = true;"
    return store.evaluate_argv(f"(builtins.fetchGit {{ {given} }}).narHash")


def _fake_hash(source: Source) -> list[str]:
    """Return a build with a wrong hash: it fails, and Nix reports the right one."""
    words = {**arguments(source), "hash": FAKE}.items()
    given = " ".join(f"{name} = {quoting.literal(value)};" for name, value in words)
    tarball = f"builtins.fetchTarball {quoting.literal(mirrored(source.pin.address))}"
    function = f"with import ({tarball}) {{ }}; {source.table.function}"
    return store.build_expression_argv(f"{function} {{ {given} }}")


class FetchedHash(Struct, frozen=True, kw_only=True):
    """The true hash of a source and the program that took it."""

    source: Source
    hash: str
    fetcher: str

    @property
    def is_moved(self) -> bool:
        """Whether the hash changed and the revision did not: a moved tag, or an attack."""
        is_same_rev = self.source.recorded == self.source.taken_for
        return is_same_rev and self.source.hash not in {"", self.hash}

    @property
    def state(self) -> str:
        """The difference from matrix.toml in one or two words."""
        if self.is_moved:
            return "moved"
        if self.source.hash == self.hash:
            return "as recorded" if self.source.recorded == self.source.taken_for else "confirmed"
        return "new" if self.source.hash else "taken"


def fetch(source: Source, minutes: float) -> FetchedHash:
    """Take the hash of one source by the first command that succeeds. Raises ToolError."""
    errors = []
    for argv in _commands(source):
        if not process.which(argv[0]):
            continue
        progress = ProgressLine(f"{source.label} by {argv[0]}", 0)
        try:
            result = process.start(argv).finish(minutes * 60, progress.at)
            found = _read_hash(source, result)
            return FetchedHash(source=source, hash=found, fetcher=argv[0])
        except ToolError as error:
            errors.append(f"{error} ({argv[0]})")
        finally:
            progress.end()
    tools = "install Nix (Debian: apt-get install nix-bin)"
    raise ToolError("; then ".join(errors) or f"{source.label}: no program for it here; {tools}")


def fetch_all(wanted: list[Source], minutes: float) -> list[FetchedHash]:
    """Take the hash of every source; equal requests are fetched once. Raises ToolError."""
    done: dict[tuple[str, ...], FetchedHash] = {}
    for source in wanted:
        if (request := _request(source)) not in done:
            done[request] = fetch(source, minutes)
    return [structs.replace(done[_request(source)], source=source) for source in wanted]


def _request(source: Source) -> tuple[str, ...]:
    """Return what is fetched. Sources with the same request are fetched once."""
    return source.table.function, source.table.address, *map(str, arguments(source).items())


def from_log(path: Path, wanted: list[Source]) -> list[FetchedHash]:
    """Return the sources whose old hash a build log reports as wrong, with their true hash.

    Raises BuildPytorchError for a log without such a hash, or with one that no source has.
    """
    log, path = files.read_input(path, files.LARGEST_LOG), Path(files.input_name(path))
    pairs = hash_mismatches(log.decode("utf-8", errors="replace"))
    if not pairs:
        raise BuildPytorchError(f"{path}: no hash mismatch in it; is it the whole log?")
    hashes = {source.specified for source in wanted}
    if unknown := [pair.specified for pair in pairs if pair.specified not in hashes]:
        what = f"{', '.join(unknown)} is not a hash in matrix.toml"
        hint = "nothing was changed; was the log made with this matrix?"
        raise BuildPytorchError(f"{path}: {what}; {hint}")
    fetched = []
    for pair in pairs:
        meant = [source for source in wanted if source.specified == pair.specified]
        if len({_request(source) for source in meant}) > 1:
            names = " and ".join(source.label for source in meant)
            raise BuildPytorchError(f"{path}: {names} have the same old hash; name one with --only")
        fetched += [FetchedHash(source=s, hash=pair.got, fetcher="build log") for s in meant]
    return fetched


def new_values(fetched: list[FetchedHash]) -> dict[Trail, Value]:
    """Return the values of matrix.toml that record the hashes."""
    values: dict[Trail, Value] = {}
    for item in fetched:
        values |= item.source.values(item.hash)
    return values


def _read_hash(source: Source, result: ProcessResult) -> str:
    """Return the hash, as SRI, that a program printed. Raises ToolError with the reason.

    The hash is a word, a value of a JSON object, or what Nix found in place of FAKE.
    """
    words = re.split(r"[\s\"',]+", result.stdout) if result.code == 0 else []
    found = {hash_ for word in words if (hash_ := to_sri(word))}
    found |= {pair.got for pair in hash_mismatches(result.stderr) if pair.specified == FAKE}
    if result.expired or not found - {FAKE}:
        raise ToolError(explain(source, result))
    if len(found) > 1:
        raise ToolError(f"{source.label}: the output has {len(found)} different hashes")
    return found.pop()


_FAILURES: Final = (
    (
        r"[Cc]ould ?n[o']t resolve|[Tt]emporary failure in name|unreachable",
        "no network: {url} cannot be reached",
    ),
    (r"Connection refused|Failed to connect|timed out", "{url} does not answer"),
    (
        r"[Cc]ould ?n[o']t find remote ref|Remote branch \S+ not found|unknown revision|not our ref"
        r"|cannot find Git revision|404",
        "{url} has no {rev}",
    ),
    (r"HTTP error 404|error: 404|Not Found", "{url} does not exist (404)"),
)
"""What a program writes to stderr, and the message for it; one with `rev` is for Git only."""


_NO_REASON: Final = re.compile(r"^\s*(error:)?\s*$|--:--:--|\d:\d\d:\d\d|% Total|Dload ")
"""Lines without a message: empty ones, heads of newer versions of Nix, curl's progress."""


def explain(source: Source, result: ProcessResult) -> str:
    """Return one line on why a download failed."""
    if result.expired:
        return f"{source.label}: not finished in an hour"
    # Nix also warns about its binary cache, which is not the failure.
    text = re.sub(r"(?m)^warning: .*\n?", "", result.stderr)
    for pattern, message in _FAILURES:
        if re.search(pattern, text) and (_rev(source) or "{rev}" not in message):
            url = mirrored(source.table.address)
            return f"{source.label}: {message.format(url=url, rev=_rev(source))}"
    lines = [line.strip() for line in text.splitlines() if not _NO_REASON.search(line)]
    errors = [line for line in lines if line.startswith("error: ")]
    errors += [line for line in lines if line.startswith(("fatal: ", "curl: "))]  # the cause of it
    return f"{source.label}: {(errors or lines or ['the output has no hash'])[-1]}"
