"""`invoke prefetch`: take the hashes of all sources, write matrix.toml and generate again."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli import phases
from build_pytorch.cli.commands import PhaseOptions, PrefetchOptions
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.sources.fetchers import FetchedHash, fetch_all, from_log, new_values, sources


def run(options: PrefetchOptions) -> int:
    """Take the hashes, show what differs, write matrix.toml, the recipes and the docs.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a fetch fails.
    """
    path = options.root / paths.MATRIX
    matrix = matrix_reader.load(options.root)
    wanted = sources(matrix, options.only, options.release)
    if options.from_log:
        fetched = from_log(options.from_log, wanted)
    else:
        fetched = fetch_all(wanted, options.timeout)
    new = matrix_editor.edited(matrix.text, new_values(fetched))
    screen = Screen(sys.stderr if options.json else sys.stdout)
    for item in fetched:
        text = f"{item.source.label}: {item.state}, {item.hash} ({item.fetcher})"
        screen.fold(f"{item.source.release}  ", text)
    screen.diff(matrix_editor.change(path, matrix.text, new).diff())
    refused = [item for item in fetched if item.is_moved and not options.accept]
    for item in refused:
        screen.fold(
            "warning: ",
            f"{item.source.label} changed: the hash of {item.source.taken_for} was "
            f"{item.source.hash} and is {item.hash}. Find out why; --accept takes the new "
            "hash. Nothing was written.",
        )
    differs = new != matrix.text
    code = EXIT_FINDINGS if refused or (options.check and differs) else EXIT_OK
    writes = differs and not (refused or options.check)
    if options.json:
        rows = [_row(item) for item in fetched]
        print_json({"sources": rows, "written": writes, "exit_code": code}, sys.stdout)
    if not writes:
        return code
    matrix_editor.write(path, matrix.text, new)
    with redirect_stdout(screen.stream):
        return max(code, phases.run(PhaseOptions(root=options.root)))


def _row(item: FetchedHash) -> dict[str, str]:
    """Return a hash for --json."""
    source = item.source
    return {
        "release": source.release,
        "name": source.name,
        "taken_for": source.taken_for,
        "old": source.hash,
        "hash": item.hash,
        "state": item.state,
        "fetcher": item.fetcher,
    }
