"""torch-for-me.pyz: what `invoke recommend` says, for people without a checkout.

One file of the modules that decide, made by generate/standalone.py. It needs Python 3.11 or newer
and nothing else. Everything in an index from elsewhere fits its type before it is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from build_pytorch.base import files
from build_pytorch.base.console import Screen, prepare_streams, print_json, visible
from build_pytorch.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_FINDINGS,
    EXIT_OK,
    BuildPytorchError,
    end_at_signals,
)
from build_pytorch.cli.describe_machine import described_machine, print_machine
from build_pytorch.cli.recommend_document import document_of
from build_pytorch.cli.recommend_screen import Offer, show
from build_pytorch.hardware import index
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.index import IndexedPackage
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Variant

_SECONDS = 20
"""How long a server may be silent."""
_WHOLE = 60
"""How many seconds a download may take."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the answer. Returns the exit codes of `invoke recommend`."""
    end_at_signals()
    prepare_streams()
    options = _parser().parse_args(words)
    try:
        return _answer(options)
    except BuildPytorchError as error:
        lines, code = error.lines, error.exit_code
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more is written to it
        lines, code = [f"standard output: {error.strerror}"], EXIT_BAD_INPUT
    with contextlib.suppress(OSError):  # a closed terminal
        for line in lines:
            Screen(sys.stderr).line(f"error: {visible(line)}")
    return int(code)


def _parser() -> argparse.ArgumentParser:
    about = "Name the PyTorch build for this machine, and the commands that get it."
    parser = argparse.ArgumentParser(prog="torch-for-me.pyz", description=about, allow_abbrev=False)
    of = "file or https:// address of a variants.json; without one, what this file was made from"
    parser.add_argument("index", nargs="?", help=of)
    of_machine = "the description of a machine, as `invoke describe-machine` writes it"
    parser.add_argument("--machine", type=Path, metavar="FILE", help=of_machine)
    gpu = "number or name of a GPU ('RTX 4090'; none); may be repeated"
    parser.add_argument("--gpu", action="append", default=[], help=gpu)
    parser.add_argument("--cpu", default="", help="name of a CPU ('Ryzen 9 7950X') or an ISA")
    parser.add_argument("--driver", default="", help="version of the driver (550, 580.65.06)")
    parser.add_argument("--release", metavar="NAME", help="only builds of this release")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="also what does not run")
    return parser


def _answer(options: argparse.Namespace) -> int:
    """Print the answer. Returns the exit code. Raises BuildPytorchError."""
    matrix, known = _read(options.index)
    machine, number = described_machine(options, matrix)
    measurements = [it for package in known.values() for it in package.comparisons]
    choice = choose(matrix, machine, gpu=number, release=options.release, measurements=measurements)
    code = EXIT_OK if choice.runs else EXIT_FINDINGS

    def offer_of(variant: Variant) -> Offer:
        return _offer(matrix, variant, known)

    if options.json:
        print_json(document_of(matrix, offer_of, machine, choice, code), sys.stdout)
    else:
        screen = Screen(sys.stdout)
        print_machine(screen, machine, matrix.cpus.values())
        show(screen, machine, choice, offer_of, verbose=options.verbose)
    return code


def _read(source: str | None) -> tuple[Matrix, Mapping[str, IndexedPackage]]:
    """Return the matrix and the packages of an index, or of what this file was made from.

    Raises BuildPytorchError.
    """
    if source is None:
        tables = json.loads(files.own_text("build_pytorch", "matrix.json"))
        matrix = matrix_reader.of_tables(tables, "matrix.json")
        return matrix, index.packages(matrix)
    name = files.input_name(source) or "index"
    try:
        data = _download(source) if "://" in source else _local(source)
    except (OSError, ValueError) as error:  # also of urllib
        why = str(error if hasattr(error, "code") else _cause(error)).partition("\n")[0]
        raise BuildPytorchError(f"{name}: cannot be read: {why}") from None
    matrix, found = index.parse(data, name)
    return matrix, found.own.packages


def _cause(error: Exception) -> object:
    """Return what the system says of an error; urllib wraps it."""
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or reason


def _local(source: str) -> bytes:
    if not source:
        raise ValueError("found an empty name, as from a variable that is not set")
    return files.read_named(Path(source), index.LARGEST, or_stdin=True)


def _download(address: str) -> bytes:
    """Return at most one byte more than an index may have. Raises OSError and ValueError."""
    from http.client import HTTPException, IncompleteRead
    from urllib.request import urlopen  # 40 ms

    _check_address(address)
    try:
        with urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - checked above
            _check_address(answer.url)  # it may have led elsewhere
            data, end = b"", time.monotonic() + _WHOLE
            while len(data) <= index.LARGEST and (part := answer.read1(1 << 16)):
                data += part
                if time.monotonic() > end:
                    raise ValueError(f"not complete after {_WHOLE} s")
            missing = 0 if part else answer.length or 0
    except IncompleteRead:
        raise ValueError("the answer is incomplete; try again") from None
    except HTTPException as error:
        raise ValueError(f"the server answers no HTTP: {error!r}") from None
    if missing:
        of = f"{len(data)} of {len(data) + missing} bytes"
        raise ValueError(f"the answer is incomplete, {of}; try again")
    return data


def _check_address(address: str) -> None:
    """Raise ValueError for an address that anybody on the way could answer."""
    parts = urlsplit(address)
    is_here = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        found = f"{parts.scheme}://{parts.hostname}"
        raise ValueError(f"found {found}; allowed: https://, or http:// of localhost")


def _offer(matrix: Matrix, variant: Variant, known: Mapping[str, IndexedPackage]) -> Offer:
    """Return how to get a build of the matrix with Flox and with Nix.

    Nix takes a result that one of its caches has.
    """
    package = known.get(variant.id) or index.packages(matrix)[variant.id]
    clone, place = "", package.environment
    if matrix.repository:
        clone = f"git clone {matrix.repository} builds && cd builds && "
    nix = f"{clone}nix-build release.nix -A {package.attribute or package.package}"
    flox = f"{clone}flox build{'' if place == '.' else f' --dir {place}'} {package.package}"
    published = [name for name in package.organizations if name]
    says = "a recipe; the index knows of no build of it, and building takes hours"
    if published:
        says = f"built and published by {published[0]}"
        flox = f"flox install {published[0]}/{package.package}"
    elif package.output:
        says = f"built: {package.output}"
    commands = {"Flox": flox, "Nix": nix}
    return Offer(says=says, first=commands, every={key: [it] for key, it in commands.items()})


if __name__ == "__main__":
    sys.exit(main())
