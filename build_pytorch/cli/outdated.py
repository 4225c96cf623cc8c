"""`invoke outdated`: list newer versions of PyTorch and nixpkgs, and facts checked long ago."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import OutdatedOptions
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.field_types import Trail, dotted
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import require_release
from build_pytorch.sources.github import BRANCH, upstream_versions

_OLDEST: Final = dt.timedelta(days=365)


class OldFact(Struct, frozen=True, kw_only=True):
    """A table that was checked long ago, among the rows of --json."""

    name: str
    checked: str
    newer: bool = False


def today() -> dt.date:
    """Return the date in UTC."""
    return dt.datetime.now(dt.UTC).date()


def run(options: OutdatedOptions, clock: Callable[[], dt.date] = today) -> int:
    """List what is newer than the matrix; exit 1 with --check if something is. Raises ToolError."""
    matrix = matrix_reader.load(options.root)
    name, now = options.release, clock()
    if name:
        require_release(matrix, name)
    rows = list(upstream_versions(matrix, [name] if name else matrix.releases, now))
    old = list(old_facts(matrix, now, name))
    is_newer = any(row.newer for row in rows)
    code = EXIT_FINDINGS if options.check and is_newer else EXIT_OK
    if options.json:
        facts = [OldFact(name=place, checked=checked) for place, checked in old]
        print_json([*rows, *facts], sys.stdout)
        return code
    screen = Screen(sys.stdout)
    for row in rows:
        if not row.ours:
            screen.line(f"{row.release}  {row.name}: {row.newest} of {row.date}")
            continue
        state = f"{row.newest} is newer" if row.newer else "is the newest"
        branch = row.name if row.days is not None else BRANCH
        date = f" ({branch} of {row.date})" if row.date and row.newer else ""
        age = "" if row.days is None else f", {counted(row.days, 'day')} old"
        screen.line(f"{row.release}  {row.name} {row.ours}{age}: {state}{date}")
    for place, checked in old:
        screen.line(f"{place}: checked on {checked}, more than a year ago; check it again")
    return code


def old_facts(matrix: Matrix, today: dt.date, release: str = "") -> Iterator[tuple[str, str]]:
    """Yield the tables whose `checked` is more than a year ago, each with that date.

    Those of matrix.toml, and those of known_hardware.toml that it does not have; with a release,
    only its pin, its CUDA, its GPU architectures and the rules that apply to it.
    """
    dates: dict[Trail, str | None] = {("pin", key): pin.checked for key, pin in matrix.pins.items()}
    dates |= {("gpu", key): gpu.checked for key, gpu in matrix.gpus.items()}
    dates |= {
        ("release", name, "cuda"): release.cuda.checked
        for name, release in matrix.releases.items()
        if release.cuda
    }
    dates |= {("rule", index): rule.checked for index, rule in enumerate(matrix.rules)}
    known = known_hardware.load()
    for kind in ("gpu", "cpu", "cuda"):
        for key, fact in getattr(known, kind).items():
            dates.setdefault((kind, key), fact.checked)
    if release:
        of_it = _tables(matrix, release)
        dates = {trail: checked for trail, checked in dates.items() if trail in of_it}
    limit = (today - _OLDEST).isoformat()
    for trail, checked in dates.items():
        if checked and checked < limit:
            yield dotted(trail), checked


def _tables(matrix: Matrix, release: str) -> set[Trail]:
    """Return the tables with facts that a release uses."""
    variants = matrix.of_release(release)
    applied = {rule.id for variant in variants for rule in variant.effects.rules}
    return {
        ("pin", matrix.releases[release].nixpkgs.pin),
        ("release", release, "cuda"),
        *(("gpu", variant.gpu_key) for variant in variants if variant.gpu_key),
        *(("rule", index) for index, rule in enumerate(matrix.rules) if rule.id in applied),
    }
