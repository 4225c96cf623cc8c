"""`invoke prefetch`: take the hashes of all sources and what pins contain; generate again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, ToolError
from build_pytorch.tasks.command import command, project, words

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Matrix


@command(
    texts={
        "only": "names of sources (torch, nixpkgs, patch), with commas: only these",
        "check": "write nothing; exit 1 if a hash differs",
        "release": "only the sources of this release",
    }
)
def prefetch(
    c: Context,
    only: str = "",
    check: bool = False,
    release: str = "",
    accept: bool = False,
    from_log: str = "",
) -> int:
    """Fetch the hashes of all sources for matrix.toml."""
    from build_pytorch.base import file_plan
    from build_pytorch.matrix import matrix_reader, matrix_text
    from build_pytorch.sources import fetchers
    from build_pytorch.sources.pin_facts import is_known
    from build_pytorch.tasks import phases

    root = project()
    matrix = matrix_reader.load(root, learning=True)
    wanted = fetchers.sources(matrix, words(only), release)
    screen = Screen(sys.stdout)
    fetched = fetchers.from_log(Path(from_log), wanted) if from_log else fetchers.fetch_all(wanted)
    text = matrix_text.with_values(matrix.text, fetchers.hash_values(fetched))
    for source in [] if from_log else wanted:
        pin = source.pin
        if source.place[0] == "pin" and (only or pin.doubts or not is_known(pin)):
            text = _with_contents(matrix, text, str(source.place[-1]), screen)
    matrix_reader.parse(text, root=root)
    for item in fetched:
        row = f"{item.source.label}: {item.state}, {item.hash} ({item.fetcher})"
        screen.fold(f"{item.source.release}  ", row)
    change = matrix_text.change(matrix.text, text)
    screen.diff(change.diff())
    refused = [item for item in fetched if item.state == "moved" and not accept]
    for item in refused:
        what = f"{item.source.label} changed: the hash of {item.source.origin.revision} was "
        what += f"{item.source.hash} and is {item.hash}"
        fix = "Find out why; --accept takes the new hash. Nothing was written."
        screen.fold("warning: ", f"{what}. {fix}")
    differs = change.action.writes
    if refused or check or not differs:
        return EXIT_FINDINGS if refused or (check and differs) else EXIT_OK
    file_plan.apply(root, [change])
    return phases.run([1, 2, 3, 4, 5])


def _with_contents(matrix: Matrix, text: str, key: str, screen: Screen) -> str:
    """Return a text of the matrix with what a pin contains.

    Raises ToolError if that is not known, and cannot be learned.
    """
    from build_pytorch.matrix.field_types import listed
    from build_pytorch.sources import pin_facts

    before = matrix.pins[key]
    try:
        pin = pin_facts.learned(matrix, before)
    except ToolError as error:
        if not pin_facts.is_known(before):
            raise
        screen.fold(f"pin.{key}: ", f"its facts stay as they are: {error}")
        return text
    cuda = listed(dict.fromkeys(pin.cuda.values()))
    screen.fold(f"pin.{key}: ", f"PyTorch {pin.torch}, Python {pin.python}, CUDA {cuda}")
    return pin_facts.written(text, key, pin, before)
