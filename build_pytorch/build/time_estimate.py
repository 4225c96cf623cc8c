"""How long builds take: the seconds of earlier builds, and an estimate of the rest of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.matrix.model import CompanionPackage, Package
from build_pytorch.results.ledger import AnyEvent, Ended

LONGEST_BUILD: Final = 1e8  #: seconds; a longer build in the ledger is a mistake
_ENOUGH: Final = 0.03  #: the part of ninja's steps after which their pace is used for an estimate


class TimedBuild(Struct, frozen=True):
    """A build whose duration is to be estimated."""

    subject: tuple[str, str]
    """Release and name in events of the ledger."""
    reads_seeds: bool
    kind: tuple[str, str, str] | None = None
    """Equal for builds that take about as long; None if no other build does."""


def kind_of(package: Package) -> tuple[str, str, str]:
    """Return release, group and companion: packages with the same ones take about as long."""
    name = package.name if isinstance(package, CompanionPackage) else ""
    return package.release_name, package.variant.group.title, name


def earlier_seconds(
    events: Iterable[AnyEvent], builds: Iterable[TimedBuild]
) -> dict[tuple[str, str], float]:
    """Return the seconds of the last finished build by subject: its own, else one of its kind.

    The events of a subject are oldest first. Builds with and without seeds are different.
    """
    wanted = {build.subject: build for build in builds}
    own: dict[tuple[str, str], float] = {}
    of_kind: dict[TimedBuild, float] = {}
    for event in events:
        build = wanted.get(event.subject)
        if not (build and isinstance(event, Ended) and event.outcome == "built" and event.steps):
            continue
        if event.shared == build.reads_seeds and 0 <= event.seconds < LONGEST_BUILD:
            own[build.subject] = of_kind[_any_of_kind(build)] = event.seconds
    found = {key: own.get(key, of_kind.get(_any_of_kind(it))) for key, it in wanted.items()}
    return {subject: seconds for subject, seconds in found.items() if seconds is not None}


def _any_of_kind(build: TimedBuild) -> TimedBuild:
    """Return a key that is equal for builds of one kind."""
    return replace(build, subject=("", "")) if build.kind else build


def remaining(
    elapsed: float, done: int, total: int, building: float, before: float | None
) -> float | None:
    """Estimate the seconds that a build still takes; None without data.

    From ninja's pace, `done` of `total` steps in `building` seconds, and from the seconds of an
    earlier build (`before`). The more steps are done, the more their pace counts.
    """
    part = done / total if total else 0.0
    by_pace = building / part - building if part >= _ENOUGH else None
    by_history = None if before is None else max(0.0, before - elapsed)
    if by_pace is None or by_history is None:
        return by_history if by_pace is None else by_pace
    return part * by_pace + (1 - part) * by_history
