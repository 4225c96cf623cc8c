"""`invoke prefetch`: take the hashes of all sources, write matrix.toml and generate again."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TextIO

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli import phases
from build_pytorch.cli.commands import PhaseOptions, PrefetchOptions
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.model import Phase
from build_pytorch.sources.source_fetch import FetchedHash, fetch_all, from_log, new_values
from build_pytorch.sources.source_list import sources


def run(options: PrefetchOptions) -> int:
    """Take the hashes, show what differs, write matrix.toml, the recipes and the docs.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a fetch fails.
    """
    fleet = matrix_reader.load()
    wanted = sources(fleet, options.only)
    fetched = (
        from_log(options.from_log, wanted)
        if options.from_log
        else fetch_all(wanted, options.timeout)
    )
    new = matrix_editor.edited(fleet.text, new_values(fetched))
    moved = [item for item in fetched if item.is_moved]
    refused = bool(moved) and not options.accept and not options.from_log
    differs = new != fleet.text
    screen = Screen(sys.stderr if options.json else sys.stdout)
    _print(screen, fetched, matrix_editor.change(paths.MATRIX, fleet.text, new).diff())
    if refused:
        for item in moved:
            screen.line(
                f"warning: {item.source.label} changed: the hash of {item.source.taken_for} was "
                f"{item.source.hash} and is {item.hash}. Find out why; --accept takes the new "
                "hash. Nothing was written."
            )
    code = EXIT_FINDINGS if refused or (options.check and differs) else EXIT_OK
    writes = differs and not (refused or options.check)
    if options.json:
        print_json(_document(fetched, code, written=writes), sys.stdout)
    if not writes:
        return code
    matrix_editor.write(paths.MATRIX, fleet.text, new)
    return max(code, generate(screen.stream))


def generate(stream: TextIO) -> int:
    """Write the recipes and docs that follow from the changed matrix.toml."""
    with redirect_stdout(stream):
        return phases.run(list(Phase), PhaseOptions())


def _print(screen: Screen, fetched: list[FetchedHash], diff: str) -> None:
    for item in fetched:
        source = item.source
        screen.line(f"{source.release}  {source.label}: {item.state}, {item.hash} ({item.fetcher})")
    screen.diff(diff)


def _document(fetched: list[FetchedHash], code: int, *, written: bool) -> dict[str, object]:
    return {
        "sources": [
            {
                "release": item.source.release,
                "name": item.source.name,
                "taken_for": item.source.taken_for,
                "old": item.source.hash,
                "hash": item.hash,
                "state": item.state,
                "fetcher": item.fetcher,
            }
            for item in fetched
        ],
        "written": written,
        "exit_code": code,
    }
