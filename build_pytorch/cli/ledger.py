"""`invoke ledger merge`: add what other machines recorded to the ledger of this checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import LedgerOptions
from build_pytorch.results import ledger_file
from build_pytorch.results.ledger import AnyEvent, Ledger


def run(options: LedgerOptions) -> int:
    """Read all files, then append the events that are new. Raises BuildPytorchError.

    What was killed in the middle is completed by the same command.
    """
    if options.what[:1] != ("merge",) or len(options.what) == 1:
        raise BuildPytorchError("write `invoke ledger merge FILE...`: ledgers of other machines")
    book, screen = Ledger(options.root), Screen(sys.stdout)
    known = {_identity(event) for event in book.events()}
    added: dict[bytes, AnyEvent] = {}
    for name in options.what[1:]:
        events = list(ledger_file.read(Path(name)))
        new = {key: event for event in events if (key := _identity(event)) not in known}
        known |= new.keys()
        added |= new
        screen.line(f"{name}: {counted(len(events), 'event')}, {len(new)} new")
    if added:
        book.extend(list(added.values()))
    return EXIT_OK


def _identity(event: AnyEvent) -> bytes:
    """Return what two records of one event have in common: older lines name no host."""
    return msgspec.json.encode(replace(event, host=""))
