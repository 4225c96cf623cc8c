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
from build_pytorch.base.console import Screen, prepare_streams, visible
from build_pytorch.base.errors import EXIT_BAD_INPUT, BuildPytorchError, end_at_signals
from build_pytorch.cli.describe_machine import described_machine
from build_pytorch.cli.recommend_document import answer
from build_pytorch.cli.recommend_screen import Offer
from build_pytorch.hardware import index
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
    measurements = [it for package in known.values() for it in package.comparisons]

    def offer_of(variant: Variant) -> Offer:
        return _offer(matrix, variant, known)

    return answer(options, matrix, described_machine(options, matrix), measurements, offer_of)


def _read(source: str | None) -> tuple[Matrix, Mapping[str, IndexedPackage]]:
    """Return the matrix and the packages of an index, or of what this file was made from.

    Raises BuildPytorchError.
    """
    if source is None:
        tables = json.loads(files.own_text("build_pytorch", "matrix.json"))
        matrix = matrix_reader.of_tables(tables, "matrix.json")
        return matrix, index.packages(matrix)
    if not source:
        raise BuildPytorchError("index: found an empty name, as from a variable that is not set")
    is_address = "://" in source
    data = _download(source) if is_address else files.read_input(Path(source), index.LARGEST)
    matrix, found = index.parse(data, files.input_name(source))
    return matrix, found.own.packages


def _download(address: str) -> bytes:
    """Return at most one byte more than an index may have. Raises BuildPytorchError."""
    from http.client import HTTPException, IncompleteRead
    from urllib.request import urlopen  # 40 ms

    try:
        _check_address(address)
        with urlopen(address, timeout=_SECONDS) as response:  # noqa: S310 - checked above
            _check_address(response.url)  # it may have led elsewhere
            data, end = b"", time.monotonic() + _WHOLE
            while len(data) <= index.LARGEST and (part := response.read1(1 << 16)):
                data += part
                if time.monotonic() > end:
                    break
            if len(data) > index.LARGEST or not (part or response.length):
                return data
            why = f"not complete after {_WHOLE} s"
            if not part:
                why = f"incomplete, {len(data)} of {len(data) + response.length} bytes; try again"
    except IncompleteRead:
        why = "incomplete; try again"
    except HTTPException as error:
        why = f"the server answers no HTTP: {error!r}"
    except (OSError, ValueError) as error:  # also of urllib
        why = _cause(error).partition("\n")[0]
    raise BuildPytorchError(f"{address}: cannot be read: {why}")


def _cause(error: Exception) -> str:
    """Return what the system says of an error, which urllib wraps, or the server's status."""
    reason = error if hasattr(error, "code") else getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or str(reason)


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
