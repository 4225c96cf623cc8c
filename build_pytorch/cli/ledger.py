"""`invoke ledger merge`: add what other machines recorded to the ledger of this checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base import files
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import LedgerOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.results import ledger_file
from build_pytorch.results.ledger import AnyEvent, Ledger


class MergedFile(Struct, frozen=True, kw_only=True):
    """One file, with the numbers of its events and of those that were new."""

    file: str
    events: int
    new: int


class MergeDocument(Struct, frozen=True):
    """What --json prints."""

    files: tuple[MergedFile, ...]


def run(options: LedgerOptions) -> int:
    """Read all files, then append the events that are new. Raises BuildPytorchError.

    What was killed in the middle is completed by the same command.
    """
    if options.what[:1] != ("merge",) or len(options.what) == 1:
        raise BuildPytorchError(
            "write `invoke ledger merge FILE...`: ledgers or signed tests of other machines"
        )
    trusted_keys = matrix_reader.load(options.root).trusted_keys
    book, merged = Ledger(options.root), []
    known = {_identity(event) for event in book.events()}
    added: dict[bytes, AnyEvent] = {}
    for name in options.what[1:]:
        events = list(ledger_file.read(Path(name), trusted_keys))
        new = {key: event for event in events if (key := _identity(event)) not in known}
        known |= new.keys()
        added |= new
        merged.append(MergedFile(file=files.input_name(name), events=len(events), new=len(new)))
    if added:
        book.extend(added.values())
    if options.json:
        print_json(MergeDocument(tuple(merged)), sys.stdout)
    for each in () if options.json else merged:
        line = f"{each.file}: {counted(each.events, 'event')}, {each.new} new"
        Screen(sys.stdout).line(line)
    return EXIT_OK


def _identity(event: AnyEvent) -> bytes:
    """Return what two records of one event have in common: older lines name no host."""
    return msgspec.json.encode(replace(event, host=""))
