"""`invoke rebuild`: build finished packages again with Nix, and compare."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.console import (
    ProgressLine,
    Screen,
    clock,
    counted,
    grouped,
    print_json,
    some,
    visible,
)
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.build.build_outcome import cache_counts
from build_pytorch.build.file_differences import FileDifference, file_differences
from build_pytorch.cli.commands import RebuildOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.nix import store
from build_pytorch.results import artefacts
from build_pytorch.results.ledger import only_run
from build_pytorch.results.package_selection import chosen_packages
from build_pytorch.results.package_state import PackageState, package_states

_DIFFERS: Final = re.compile(r"output '?(/[\w./+-]+)'? differs from '?(/[\w./+-]+)")
"""How Nix names an output and what the second build made of it, which it keeps."""
_MOST: Final = 30  #: files of unknown reason that are printed; --json has all


class Rebuilt(Struct, frozen=True, kw_only=True):
    """What became of one package."""

    variant: str
    outcome: Literal["same", "different", "not built", "failed"]
    seconds: float = 0.0
    message: str = ""
    second: str = ""  #: what the second build made, if it differs
    differences: tuple[FileDifference, ...] = ()


class RebuildDocument(Struct, frozen=True, kw_only=True):
    """The document of --json."""

    variants: tuple[Rebuilt, ...]
    exit_code: int


def run(options: RebuildOptions) -> int:
    """Build again and compare. Return 1 if a package differs or could not be compared.

    Raises BuildPytorchError for wrong names, without Nix, and while another run builds.
    """
    matrix = matrix_reader.load(options.root)
    if not options.selection.is_narrow:
        raise BuildPytorchError(f"name what to build again, such as {matrix.variants[0].id}")
    states = package_states(options.root, chosen_packages(matrix, options.selection))
    if not process.which(store.NIX_BUILD):
        raise process.start_error(store.NIX_BUILD, FileNotFoundError())
    screen = Screen(sys.stderr if options.json else sys.stdout)
    rows = []
    with only_run(options.root):
        for state in states.values():
            rows.append(_rebuilt(options, state))
            print_rebuilt(screen, rows[-1])
    code = EXIT_OK if all(row.outcome == "same" for row in rows) else EXIT_FINDINGS
    if options.json:
        print_json(RebuildDocument(variants=tuple(rows), exit_code=code), sys.stdout)
    return code


def _rebuilt(options: RebuildOptions, state: PackageState) -> Rebuilt:
    package, root = state.package, options.root
    if artefacts.find(root, package) is None:
        message = artefacts.absence(root, package)
        return Rebuilt(variant=package.id, outcome="not built", message=message)
    link = artefacts.link_of(root, package.attribute).name
    argv = store.build_argv(package.path, link, options.cores)
    if state.reads_seeds:
        argv = store.build_shared_argv(package.attribute, link, options.cores)
    began = time.monotonic()
    with ProgressLine(f"{package.id}: built again", 0) as progress:
        result = process.start([*argv, *store.CHECK], cwd=root).finish(callback=progress.at)
    seconds = round(time.monotonic() - began, 3)
    hits, misses = cache_counts(os.fsencode(result.stderr))
    copies = f"{hits} of {hits + misses} objects are copies from a compiler cache" if hits else ""
    if found := _DIFFERS.search(result.stderr):
        differences = tuple(file_differences(Path(found[1]), Path(found[2])))
        files = f"{counted(len(differences), 'file')} of {found[1]}"
        return Rebuilt(
            variant=package.id,
            outcome="different",
            seconds=seconds,
            message="; ".join(filter(None, (files, copies))),
            second=found[2],
            differences=differences,
        )
    message = result.last_line if result.code else copies
    outcome: Literal["same", "failed"] = "failed" if result.code else "same"
    return Rebuilt(variant=package.id, outcome=outcome, seconds=seconds, message=message)


def print_rebuilt(screen: Screen, row: Rebuilt) -> None:
    """Print what became of a package, and the files that differ by reason."""
    took = f" in {clock(row.seconds)}" if row.seconds else ""
    reason = f": {visible(row.message)}" if row.message else ""
    screen.fold(f"{row.variant}: ", f"{row.outcome}{took}{reason}")
    by_reason = grouped((each.why, visible(each.path)) for each in row.differences)
    for why in sorted(by_reason):  # those that are not known come first, and nearly all of them
        paths = by_reason[why]
        named = some(paths, 3 if why else _MOST)
        reason = why or "not known why; `diffoscope` shows it"
        screen.fold("  ", f"{counted(len(paths), 'file')}: {reason}: {named}", indent=4)
    if row.second:
        screen.fold("  ", f"the second build: {row.second}", indent=4)
