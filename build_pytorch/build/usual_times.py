"""How long builds take: the last ones of their kind in the ledger, else matrix.toml's estimate."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import grouped
from build_pytorch.build.backends import Step
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.results.ledger import HOST, Event, subject_of

_LAST: Final = 3  #: builds of a kind that count
_SHORT: Final = 60.0  #: seconds; a shorter build only found its result
_SOURCES: Final = ("estimate of matrix.toml", "the last", "the last two", "the last three")


def clock(seconds: float) -> str:
    """Return a duration as `0:07`, `12:34` or `2:34:56`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class UsualTime(Struct, frozen=True):
    """Seconds of a build: the median of so many earlier builds, an estimate without any."""

    seconds: float
    builds: int = 0

    @property
    def source(self) -> str:
        """What the seconds come from."""
        return f"{_SOURCES[self.builds]}{' of its kind' if self.builds else ''}"


def group_of(variant: Variant) -> tuple[str, str]:
    """Return the key of variants whose recipes differ in values only, so that they fail alike."""
    return variant.release_name, variant.group.title


def _kind_of(package: Package) -> tuple[str, str, str]:
    """Return release, group and companion: what packages with the same ones take is alike."""
    name = package.name if package.companion else ""
    return *group_of(package.variant), name


def usual_times(
    events: Iterable[Event],
    packages: Iterable[Package],
    steps: Sequence[Step],
    estimates: Mapping[str, float],
) -> dict[str, UsualTime]:
    """Return how long steps take, by name; what was never built and has no estimate is left out.

    Builds of this machine count, by release, group and companion. `events` are in their order,
    `estimates` seconds by name.
    """
    kinds = {subject_of(package): _kind_of(package) for package in packages}
    built = grouped(
        (kinds.get(event.subject), event.seconds)
        for event in events
        if event.outcome == "built" and event.host in {"", HOST} and event.seconds >= _SHORT
    )
    found = {name: UsualTime(seconds) for name, seconds in estimates.items()}
    for step in steps:
        if last := built.get(_kind_of(step.package), [])[-_LAST:]:
            found[step.name] = UsualTime(statistics.median(last), len(last))
    return found
