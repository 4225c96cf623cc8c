"""`invoke attest verify`: who tested what, and where, by statements that trusted keys signed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import AttestOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.nix import store
from build_pytorch.results import ledger_file
from build_pytorch.results.evidence import distrust
from build_pytorch.results.ledger import SignedFacts, Tested

_SHORT: Final = len("sha256:") + 12  #: characters of a digest that are shown


class VerifiedLine(Struct, frozen=True, kw_only=True):
    """One line of a file: its test, if a trusted key signed it, and why it does not hold."""

    file: str
    line: int
    problem: str
    test: Tested | None


class AttestDocument(Struct, frozen=True):
    """What --json prints."""

    tests: tuple[VerifiedLine, ...]
    exit_code: int


def run(options: AttestOptions) -> int:
    """Verify signed tests and print what they say. Returns 1 if one does not hold, else 0.

    Raises BuildPytorchError for a file that cannot be read.
    """
    if options.what[:1] != ("verify",) or len(options.what) == 1:
        raise BuildPytorchError("write `invoke attest verify FILE...`: files that --sign wrote")
    keys = matrix_reader.load(options.root).trusted_keys
    lines = tuple(line for name in options.what[1:] for line in _lines(name, keys))
    code = EXIT_FINDINGS if any(line.problem for line in lines) else EXIT_OK
    if options.json:
        print_json(AttestDocument(lines, code), sys.stdout)
        return code
    screen = Screen(sys.stdout)
    for line in lines:
        if line.problem:
            screen.fold(f"{line.file}:{line.line}: does not hold: ", line.problem, "red")
        elif line.test and line.test.signed:
            for head, text in _facts(line.test, line.test.signed):
                screen.fold(head, text, indent=12)
    return code


def _lines(name: str, keys: Sequence[str]) -> Iterator[VerifiedLine]:
    """Yield what is in a file. Files of the store that are here must be those that were tested."""
    for number, found in enumerate(ledger_file.signed_tests(Path(name), keys), 1):
        test = found if isinstance(found, Tested) else None
        why = distrust(test, keys, store.nar_hashes([test.output])) if test else str(found)
        yield VerifiedLine(file=files.input_name(name), line=number, problem=why, test=test)


def _facts(test: Tested, told: SignedFacts) -> Iterator[tuple[str, str]]:
    """Yield what a test that holds says, each fact with its name."""
    why = test.reason and f": {test.reason}"
    yield f"{test.release}/{test.variant}: ", f"{test.by} {test.outcome} at {test.at}{why}"
    is_here = "the same here" if Path(test.output).exists() else "not here"
    yield "  result    ", f"{test.output} ({told.nar_hash}, {is_here})"
    yield "  signed by ", f"{test.signer}, which matrix.toml trusts"
    driver = told.driver and f"driver {told.driver}"
    yield "  on        ", ", ".join(filter(None, (test.host, told.gpu, driver, told.cpu)))
    counts = ", ".join(f"{number} {outcome}" for outcome, number in told.counts.items())
    yield "  tests     ", f"{counts or 'none ran'}; suite {told.suite[:_SHORT]}"
    state = f"commit {told.commit[:12]}, {'dirty' if told.dirty else 'clean'}"
    state = state if told.commit else "no commit"
    depends = f"recipe {test.digest[:_SHORT]}, matrix {told.matrix[:_SHORT]}"
    yield "  by        ", f"build-pytorch {told.version} ({state}); {depends}"
