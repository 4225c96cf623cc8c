"""Facts of matrix.toml that were compared with their source long ago."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.matrix_errors import dotted
from build_pytorch.matrix.model import Matrix, Trail

_OLDEST: Final = dt.timedelta(days=365)


def old_facts(matrix: Matrix, today: dt.date) -> Iterator[tuple[str, str]]:
    """Yield the tables whose `checked` is more than a year ago, each with that date."""
    dates: dict[Trail, str | None] = {("pin", key): pin.checked for key, pin in matrix.pins.items()}
    dates |= {("gpu", key): gpu.checked for key, gpu in matrix.gpus.items()}
    dates |= {
        ("release", name, "cuda"): release.cuda.checked
        for name, release in matrix.releases.items()
        if release.cuda
    }
    dates |= {("rule", index): rule.checked for index, rule in enumerate(matrix.rules)}
    limit = (today - _OLDEST).isoformat()
    for trail, checked in dates.items():
        if checked and checked < limit:
            yield dotted(trail), checked
