"""`invoke prefetch`: take the hashes of all sources and what pins contain; generate again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError, ToolError
from build_pytorch.cli import phases
from build_pytorch.cli.commands import PhaseOptions, PrefetchOptions
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.field_types import listed
from build_pytorch.matrix.hashed_sources import Source
from build_pytorch.matrix.source_tables import Pin
from build_pytorch.sources import pin_facts
from build_pytorch.sources.fetchers import FetchedHash, fetch_all, from_log, new_values, sources


class HashRow(Struct, frozen=True, kw_only=True):
    """The hash of a source: that of matrix.toml, and the one that was taken."""

    release: str
    name: str
    taken_for: str
    old: str
    hash: str
    state: str
    fetcher: str


class PrefetchDocument(Struct, frozen=True):
    """The document of --json."""

    sources: list[HashRow]
    written: bool
    exit_code: int


def run(options: PrefetchOptions) -> int:
    """Take the hashes, show what differs, write matrix.toml, the recipes and the docs.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a fetch fails.
    """
    path = options.root / paths.MATRIX
    matrix = matrix_reader.load(options.root, learning=True)
    wanted = sources(matrix, options.only, options.release)
    if options.from_log:
        fetched = from_log(options.from_log, wanted)
    else:
        fetched = fetch_all(wanted, options.timeout)
    screen = Screen(sys.stderr if options.json else sys.stdout)
    new = matrix_editor.with_values(matrix.text, new_values(fetched))
    for key in [] if options.from_log else _pins_to_ask(wanted, options):
        new = _with_contents(new, key, options, screen)
    matrix_reader.parse(new, root=options.root)
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
        print_json(PrefetchDocument(list(map(_row, fetched)), writes, code), sys.stdout)
    if not writes:
        return code
    matrix_editor.write(path, matrix.text, new)
    with redirect_stdout(screen.stream):
        return max(code, phases.run(PhaseOptions(root=options.root)))


def _pins_to_ask(wanted: Sequence[Source], options: PrefetchOptions) -> list[str]:
    """Return the pins whose contents are not known, or not confirmed, or that are named.

    With --assume, only the first kind; raises BuildPytorchError if there is none.
    """
    pins = {str(s.place[-1]): s.table for s in wanted if isinstance(s.table, Pin)}
    unknown = [key for key, pin in pins.items() if not pin_facts.is_known(pin)]
    if options.assume and not unknown:
        raise BuildPytorchError("--assume: it is known what each pin contains; leave it out")
    if options.assume or Pin.source_name in options.only:
        return unknown if options.assume else list(pins)
    unsure = (key for key, pin in pins.items() if pin.facts and pin.facts.unconfirmed)
    return list(dict.fromkeys((*unknown, *unsure)))


def _with_contents(text: str, key: str, options: PrefetchOptions, screen: Screen) -> str:
    """Return the text of a matrix with what a pin contains.

    Raises ToolError if that is not known, and cannot be learned.
    """
    matrix = matrix_reader.parse(text, root=options.root, learning=True)
    pin, label = matrix.pins[key], f"pin.{key}: "
    if options.assume:
        pin = pin_facts.assumed(matrix, pin, options.assume)
        screen.fold(label, f"assumed to contain what pin.{options.assume} does")
        return pin_facts.written(text, key, pin)
    try:
        pin = pin_facts.learned(matrix, key, pin, options.timeout)
    except ToolError as error:
        if not pin_facts.is_known(pin):
            raise ToolError(f"{error}; {pin_facts.OR_ASSUME}") from None
        screen.fold(label, f"not evaluated, so its facts stay as they are: {error}")
        return text
    cuda = listed(dict.fromkeys(pin.cuda.values()))
    screen.fold(label, f"PyTorch {pin.torch}, Python {pin.python}, CUDA {cuda}")
    return pin_facts.written(text, key, pin)


def _row(item: FetchedHash) -> HashRow:
    source = item.source
    return HashRow(
        release=source.release,
        name=source.name,
        taken_for=source.taken_for,
        old=source.hash,
        hash=item.hash,
        state=item.state,
        fetcher=item.fetcher,
    )
