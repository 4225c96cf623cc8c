"""Facts of matrix.toml, and known ones, that were compared with their source long ago."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.field_types import Trail, dotted
from build_pytorch.matrix.model import Matrix

_OLDEST: Final = dt.timedelta(days=365)


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
