"""Ways to learn the hash of a source, best first. Each says which sources it can do here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.nix import quoting, store
from build_pytorch.nix.hashes import to_sri
from build_pytorch.nix.log_format import hash_mismatches
from build_pytorch.sources.source_list import Source

FAKE: Final = "sha256-" + "A" * 43 + "="

Run = Callable[[Sequence[str]], process.ProcessResult]
"""Runs a program with progress and a limit of time."""


class Backend(Protocol):
    """A tool, or Nix alone."""

    name: str

    def can(self, source: Source) -> bool:
        """Whether the tool is here and knows the source's fetcher."""

    def fetch(self, source: Source, run: Run) -> str:
        """The hash as SRI. Raises ToolError with one line on what went wrong."""


class NixPrefetch:
    """nix-prefetch, which runs any fetcher of nixpkgs."""

    name = "nix-prefetch"

    def can(self, source: Source) -> bool:
        """It knows every fetcher that nixpkgs has; fetchTarball is Nix's own."""
        return source.fetcher != "fetchTarball" and process.which(self.name) is not None

    def fetch(self, source: Source, run: Run) -> str:
        """Give the fetcher its arguments; the last line is the hash."""
        argv = [self.name, "--quiet", source.fetcher]
        if source.fetcher == "fetchFromGitHub":
            owner, repo = source.url.split("/")[-2:]
            argv += ["--owner", owner, "--repo", repo, "--rev", source.rev]
            argv += ["--fetchSubmodules"] if source.submodules else []
        else:
            argv += ["--name", source.patch_name, "--url", source.url]
        return _hash(source, run(argv))


class Nurl:
    """nurl, for sources in Git."""

    name = "nurl"

    def can(self, source: Source) -> bool:
        """Git sources only."""
        return source.fetcher == "fetchFromGitHub" and process.which(self.name) is not None

    def fetch(self, source: Source, run: Run) -> str:
        """Ask for the hash alone."""
        submodules = "true" if source.submodules else "false"
        argv = [self.name, "--hash", f"--submodules={submodules}", source.url, source.rev]
        return _hash(source, run(argv))


class NixPrefetchGit:
    """nix-prefetch-git, which answers in JSON."""

    name = "nix-prefetch-git"

    def can(self, source: Source) -> bool:
        """With submodules: without them fetchFromGitHub takes a tarball, which may differ."""
        is_git = source.fetcher == "fetchFromGitHub" and source.submodules
        return is_git and process.which(self.name) is not None

    def fetch(self, source: Source, run: Run) -> str:
        """Clone with submodules."""
        rev = source.rev if _is_full(source.rev) else f"refs/tags/{source.rev}"
        argv = [self.name, "--quiet", "--fetch-submodules", "--url", source.url, "--rev", rev]
        return _json_hash(source, run(argv))


class NixPrefetchGithub:
    """nix-prefetch-github, which answers in JSON."""

    name = "nix-prefetch-github"

    def can(self, source: Source) -> bool:
        """Sources on GitHub itself."""
        is_git = source.fetcher == "fetchFromGitHub" and source.url.startswith("https://github.com")
        return is_git and process.which(self.name) is not None

    def fetch(self, source: Source, run: Run) -> str:
        """Name owner and repository."""
        owner, repo = source.url.split("/")[-2:]
        argv = [self.name, owner, repo, "--rev", source.rev, "--json"]
        argv += ["--fetch-submodules"] if source.submodules else []
        return _json_hash(source, run(argv))


class Nix:
    """Nix and Git, without any other tool."""

    name = "nix"

    def can(self, source: Source) -> bool:
        """Everything, where Nix is."""
        del source
        return process.which(store.NIX_INSTANTIATE) is not None

    def fetch(self, source: Source, run: Run) -> str:
        """Take the way that gives the hash the fetcher wants."""
        match source.fetcher:
            case "fetchTarball":
                return _hash(source, run(store.prefetch_tarball_argv(source.url)))
            case "fetchpatch":
                return self._patch(source, run)
            case "fetchFromGitHub":
                if not source.submodules:
                    archive = f"{source.url}/archive/{source.rev}.tar.gz"
                    return _hash(source, run(store.prefetch_tarball_argv(archive)))
                return self._tree(source, run)

    def _tree(self, source: Source, run: Run) -> str:
        """The narHash of a clone with submodules, which is the hash of its tree without .git."""
        ref = "allRefs = true;" if _is_full(source.rev) else ""
        ref += f" rev = {quoting.literal(source.rev)};" if ref else ""
        ref = ref or f"ref = {quoting.literal(f'refs/tags/{source.rev}')};"
        url = quoting.literal(source.url)
        expression = f"(builtins.fetchGit {{ url = {url}; {ref} submodules = true; }}).narHash"
        return _hash(source, run(store.evaluate_argv(expression)))

    def _patch(self, source: Source, run: Run) -> str:
        """Build nixpkgs' own fetchpatch with a fake hash, which fails and tells the right one."""
        expression = (
            f"with import (builtins.fetchTarball {quoting.literal(source.pin)}) {{ }}; "
            f"fetchpatch {{ name = {quoting.literal(source.patch_name)}; "
            f"url = {quoting.literal(source.url)}; hash = {quoting.literal(FAKE)}; }}"
        )
        result = run(store.build_expression_argv(expression))
        for pair in hash_mismatches(result.stderr):
            if pair.specified == FAKE:
                return pair.got
        raise ToolError(explain(source, result))


BACKENDS: Final[tuple[Backend, ...]] = (
    NixPrefetch(),
    Nurl(),
    NixPrefetchGit(),
    NixPrefetchGithub(),
    Nix(),
)


def backends_for(source: Source) -> Iterator[Backend]:
    """The backends that can do a source on this machine, best first."""
    return (backend for backend in BACKENDS if backend.can(source))


def explain(source: Source, result: process.ProcessResult) -> str:
    """One line on why a download failed, as far as the program's words tell."""
    # Nix warns of its binary cache as well; that is not what failed.
    text = re.sub(r"(?m)^warning: .*\n?", "", result.stderr)
    if result.expired:
        return f"{source.label}: not finished in the time that --timeout gives"
    if re.search(r"[Cc]ould ?n[o']t resolve|[Tt]emporary failure in name|unreachable", text):
        return f"{source.label}: no network: {source.url} cannot be reached"
    if re.search(r"Connection refused|Failed to connect|timed out", text):
        return f"{source.label}: {source.url} does not answer"
    missing = r"[Cc]ould ?n[o']t find remote ref|Remote branch \S+ not found|unknown revision"
    if source.rev and re.search(missing + r"|not our ref|cannot find Git revision|404", text):
        return f"{source.label}: {source.url} has no {source.rev}"
    if re.search(r"HTTP error 404|error: 404|Not Found", text):
        return f"{source.label}: {source.url} does not exist (404)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    errors += [line for line in lines if line.startswith("fatal")]  # Git's own word comes last
    said = (errors or lines or ["nothing said"])[-1]
    return f"{source.label}: {said}"


def _is_full(rev: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", rev) is not None


def _hash(source: Source, result: process.ProcessResult) -> str:
    """The hash on the last line of what a program printed."""
    lines = result.stdout.split()
    found = to_sri(lines[-1]) if lines else None
    if result.code or found is None:
        raise ToolError(explain(source, result))
    return found


def _json_hash(source: Source, result: process.ProcessResult) -> str:
    """The hash of a program that prints JSON, under the names that its versions gave it."""
    try:
        answer = json.loads(result.stdout) if result.code == 0 else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ToolError(explain(source, result))
    found = next((to_sri(str(answer[key])) for key in ("hash", "sha256") if key in answer), None)
    if found is None:
        raise ToolError(f"{source.label}: an answer without a hash")
    return found
