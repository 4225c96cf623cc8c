"""`invoke prefetch`: take the hashes of all sources and what pins contain; generate again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, project, words

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.matrix.hashed_sources import Source

_MINUTES = 60  #: maximum for one download


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
    json: bool = False,
) -> int:
    """Fetch the hashes of all sources for matrix.toml."""
    return take_hashes(
        words(only), check=check, release=release, accept=accept, from_log=from_log, json=json
    )


def take_hashes(
    only: Sequence[str] = (),
    *,
    check: bool = False,
    release: str = "",
    accept: bool = False,
    from_log: str = "",
    json: bool = False,
) -> int:
    """Take hashes, show what differs, write matrix.toml, the recipes and the docs.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a fetch fails.
    """
    from build_pytorch.base import paths
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
    from build_pytorch.matrix import matrix_editor, matrix_reader
    from build_pytorch.sources import fetchers
    from build_pytorch.tasks import phases

    root = project()
    path = root / paths.MATRIX
    matrix = matrix_reader.load(root, learning=True)
    wanted = fetchers.sources(matrix, only, release)
    if from_log:
        fetched = fetchers.from_log(Path(from_log), wanted)
    else:
        fetched = fetchers.fetch_all(wanted, _MINUTES)
    screen = Screen(sys.stderr if json else sys.stdout)
    new = matrix_editor.with_values(matrix.text, fetchers.new_values(fetched))
    for key in [] if from_log else _pins_to_ask(wanted, only):
        new = _with_contents(new, key, root, screen)
    matrix_reader.parse(new, root=root)
    for item in fetched:
        text = f"{item.source.label}: {item.state}, {item.hash} ({item.fetcher})"
        screen.fold(f"{item.source.release}  ", text)
    screen.diff(matrix_editor.change(path, matrix.text, new).diff())
    refused = [item for item in fetched if item.is_moved and not accept]
    for item in refused:
        screen.fold(
            "warning: ",
            f"{item.source.label} changed: the hash of {item.source.taken_for} was "
            f"{item.source.hash} and is {item.hash}. Find out why; --accept takes the new "
            "hash. Nothing was written.",
        )
    differs = new != matrix.text
    code = EXIT_FINDINGS if refused or (check and differs) else EXIT_OK
    writes = differs and not (refused or check)
    if json:
        rows = [
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
        ]
        print_json({"sources": rows, "written": writes, "exit_code": code}, sys.stdout)
    if not writes:
        return code
    matrix_editor.write(path, matrix.text, new)
    with redirect_stdout(screen.stream):
        return max(code, phases.run([1, 2, 3, 4, 5]))


def _pins_to_ask(wanted: Sequence[Source], only: Sequence[str]) -> list[str]:
    """Return the pins whose contents are not known, or not confirmed, or that are named."""
    from build_pytorch.matrix.source_tables import Pin
    from build_pytorch.sources import pin_facts

    pins = {str(source.place[-1]): source.table for source in wanted}
    return [
        key
        for key, pin in pins.items()
        if isinstance(pin, Pin)
        and (
            Pin.source_name in only
            or not pin_facts.is_known(pin)
            or (pin.facts and pin.facts.unconfirmed)
        )
    ]


def _with_contents(text: str, key: str, root: Path, screen: Screen) -> str:
    """Return the text of a matrix with what a pin contains.

    Raises ToolError if that is not known, and cannot be learned.
    """
    from build_pytorch.base.errors import ToolError
    from build_pytorch.matrix import consistency, matrix_reader
    from build_pytorch.matrix.field_types import listed
    from build_pytorch.sources import pin_facts

    matrix = matrix_reader.parse(text, root=root, learning=True)
    pin, label = matrix.pins[key], f"pin.{key}: "
    try:
        pin = pin_facts.learned(matrix, key, pin, _MINUTES)
    except ToolError as error:
        if not pin_facts.is_known(pin):
            raise ToolError(f"{error}; {consistency.or_assume(pin.rev)}") from None
        screen.fold(label, f"not evaluated, so its facts stay as they are: {error}")
        return text
    cuda = listed(dict.fromkeys(pin.cuda.values()))
    screen.fold(label, f"PyTorch {pin.torch}, Python {pin.python}, CUDA {cuda}")
    return pin_facts.written(text, key, pin)
