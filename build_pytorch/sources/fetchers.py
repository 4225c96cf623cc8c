"""Programs that take the hash of a source. A new one is one entry of `FETCHERS`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.base.process import ProcessResult
from build_pytorch.nix import quoting, store
from build_pytorch.nix.hashes import to_sri
from build_pytorch.nix.log_format import hash_mismatches
from build_pytorch.sources.source_list import Source

FAKE: Final = "sha256-" + "A" * 43 + "="


def _is_full(rev: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", rev) is not None


def _nix_prefetch(source: Source) -> list[str]:
    """Return the command of nix-prefetch, which takes a function of nixpkgs and its arguments."""
    pairs = [(f"--{name}", value) for name, value in source.arguments.items() if value]
    words = [word for pair in pairs for word in pair if isinstance(word, str)]
    return ["nix-prefetch", "--quiet", source.function, *words]


def _nurl(source: Source) -> list[str]:
    submodules = "true" if source.shape == "tree" else "false"
    return ["nurl", "--hash", f"--submodules={submodules}", source.url, source.rev]


def _nix_prefetch_git(source: Source) -> list[str]:
    rev = source.rev if _is_full(source.rev) else f"refs/tags/{source.rev}"
    argv = ["nix-prefetch-git", "--quiet", "--fetch-submodules"]
    return [*argv, "--url", source.url, "--rev", rev]


def _nix_prefetch_github(source: Source) -> list[str]:
    if not source.url.startswith("https://github.com"):
        return []
    owner, repo = source.url.split("/")[-2:]
    argv = ["nix-prefetch-github", owner, repo, "--rev", source.rev, "--json"]
    return [*argv, "--fetch-submodules"] if source.shape == "tree" else argv


def _tarball(source: Source) -> list[str]:
    archive = f"{source.url}/archive/{source.rev}.tar.gz"
    return store.prefetch_tarball_argv(archive if source.shape == "archive" else source.url)


def _git_tree(source: Source) -> list[str]:
    """Return the command for the narHash of a clone, which is the hash of its tree without .git."""
    ref = f"ref = {quoting.literal(f'refs/tags/{source.rev}')};"
    if _is_full(source.rev):
        ref = f"allRefs = true; rev = {quoting.literal(source.rev)};"
    clone = f"builtins.fetchGit {{ url = {quoting.literal(source.url)}; {ref} submodules = true; }}"
    return store.evaluate_argv(f"({clone}).narHash")


def _fake_hash(source: Source) -> list[str]:
    """Return a build with a wrong hash: it fails, and Nix reports the right one."""
    arguments = {**source.arguments, "hash": FAKE}
    given = " ".join(f"{name} = {quoting.literal(value)};" for name, value in arguments.items())
    nixpkgs = f"import (builtins.fetchTarball {quoting.literal(source.pin)}) {{ }}"
    return store.build_expression_argv(f"with {nixpkgs}; {source.function} {{ {given} }}")


class Fetcher(NamedTuple):
    """A program that takes hashes of sources with one of some shapes.

    `argv` returns its command, or an empty list for a source that it cannot fetch.
    """

    name: str
    shapes: tuple[str, ...]
    argv: Callable[[Source], list[str]]


FETCHERS: Final = (
    Fetcher("nix-prefetch", ("tree", "archive", "other"), _nix_prefetch),
    Fetcher("nurl", ("tree", "archive"), _nurl),
    # Of a tree only: fetchFromGitHub takes an archive otherwise, which may differ from it.
    Fetcher("nix-prefetch-git", ("tree",), _nix_prefetch_git),
    Fetcher("nix-prefetch-github", ("tree", "archive"), _nix_prefetch_github),
    Fetcher("nix", ("tarball", "archive"), _tarball),
    Fetcher("nix", ("tree",), _git_tree),
    Fetcher("nix", ("other",), _fake_hash),
)
"""Every fetcher, best first. Those called `nix` need Nix and Git only."""


def fetchers_for(source: Source) -> Iterator[Fetcher]:
    """Yield the fetchers on this machine for a source, best first."""
    for fetcher in FETCHERS:
        if source.shape in fetcher.shapes:
            argv = fetcher.argv(source)
            if argv and process.which(argv[0]):
                yield fetcher


def read_hash(source: Source, result: ProcessResult) -> str:
    """Return the hash, as SRI, that a fetcher printed. Raises ToolError with the reason.

    The hash is the last word, a value of a JSON object, or what Nix found in place of FAKE.
    """
    words = re.split(r"[\s\"',]+", result.stdout) if result.code == 0 else []
    found = [hash_ for word in words if (hash_ := to_sri(word))]
    found += [pair.got for pair in hash_mismatches(result.stderr) if pair.specified == FAKE]
    if result.expired or not found:
        raise ToolError(explain(source, result))
    return found[-1]


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


def explain(source: Source, result: ProcessResult) -> str:
    """Return one line on why a download failed."""
    if result.expired:
        return f"{source.label}: not finished in the time that --timeout gives"
    # Nix also warns about its binary cache, which is not the failure.
    text = re.sub(r"(?m)^warning: .*\n?", "", result.stderr)
    for pattern, message in _FAILURES:
        if re.search(pattern, text) and (source.rev or "{rev}" not in message):
            return f"{source.label}: {message.format(url=source.url, rev=source.rev)}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    errors += [line for line in lines if line.startswith("fatal")]  # Git's own message comes last
    return f"{source.label}: {(errors or lines or ['the output has no hash'])[-1]}"
