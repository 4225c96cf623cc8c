"""The forecast of `invoke build --dry-run`: hours of each build, the end by the clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from build_pytorch.base.console import Screen, counted, grouped, some, visible
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.forecast import Forecast, PlannedBuild
from build_pytorch.build.pace import Duration
from build_pytorch.nix.binary_caches import CacheReport

_MOST = 10  #: compiled dependencies
_SHOWN = 4  #: builds of the critical path


class HoursRow(Struct, frozen=True):
    """Hours of one build, or until the end, and what they come from."""

    low: float
    likely: float
    high: float
    reason: str = ""


class UntilRow(Struct, frozen=True, kw_only=True):
    """The builds by id that have ended at a time of the clock, and those that have not."""

    time: str
    built: list[str]
    at_any_rate: list[str]  #: of those built
    rest: list[str]


class ForecastDocument(Struct, frozen=True, kw_only=True):
    """The forecast in the document of --json. Times have a time zone."""

    builders: int
    hours: HoursRow
    ends: list[str]  #: at the earliest, likely, at the latest
    critical_path: list[str]
    packages: dict[str, HoursRow | None]  #: by id; null: neither a build nor an estimate
    until: UntilRow | UnsetType = UNSET  #: of --until


def next_moment(text: str, now: datetime) -> datetime | None:
    """Return when the clock shows `HH:MM` next, None for an empty text.

    Raises BuildPytorchError for any other text.
    """
    if not text:
        return None
    if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text, re.ASCII):
        raise BuildPytorchError(f'--until "{text}": allowed: a time of the day such as 08:00')
    hour, minute = map(int, text.split(":"))
    moment = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return moment if moment > now else moment + timedelta(days=1)


def document(found: Forecast, now: datetime, until: datetime | None) -> ForecastDocument:
    """Return the forecast of a run that begins now."""
    return ForecastDocument(
        builders=found.builders,
        hours=_row(found.end),
        ends=[
            (now + timedelta(seconds=s)).isoformat(timespec="minutes") for s in astuple(found.end)
        ],
        critical_path=found.critical_path,
        packages={
            build.step.id: _row(build.seconds, build.reason) if build.seconds else None
            for build in found.builds
        },
        until=_until(found.builds, now, until) if until else UNSET,
    )


def _row(seconds: Duration, reason: str = "") -> HoursRow:
    low, likely, high = (round(value / 3600, 2) for value in astuple(seconds))
    return HoursRow(low, likely, high, reason)


def print_forecast(screen: Screen, found: Forecast, now: datetime, until: datetime | None) -> None:
    """Print when a run that begins now ends, what decides that, and what is done until a time."""
    if not found.builds:
        return
    low, likely, high = (now + timedelta(seconds=s) for s in astuple(found.end))
    end = f"{_hours(found.end)}, ends {_day(likely, now)} ({_day(low, now)} to {_day(high, now)})"
    if not any(build.seconds for build in found.builds):
        end = "unknown"
    screen.fold("Forecast: ", f"{counted(found.builders, 'build')} at once, {end}", "bold")
    rows = grouped(((_hours(b.seconds), b.reason), b.step.id) for b in found.builds)
    for (hours, reason), ids in rows.items():
        screen.fold("  ", f"{hours}  {some(ids)}: {reason}", indent=6)
    if len(path := found.critical_path) > 1:
        rest = f" and {len(path) - _SHOWN} more" if len(path) > _SHOWN else ""
        text = f"decided by {' then '.join(path[:_SHOWN])}{rest}"
        screen.fold("  ", text, indent=6)
    if until:
        row = _until(found.builds, now, until)
        text = f"{len(row.built)} of {len(found.builds)} built"
        text += f", {len(row.at_any_rate)} of them at any rate"
        text += f"; not: {some(row.rest)}" if row.rest else ""
        screen.fold(f"Until {until:%H:%M}: ", text, "bold")


def _until(builds: Sequence[PlannedBuild], now: datetime, until: datetime) -> UntilRow:
    seconds = (until - now).total_seconds()
    known = [build for build in builds if build.seconds]
    done = [build.step.id for build in known if build.end.likely <= seconds]
    return UntilRow(
        time=until.isoformat(timespec="minutes"),
        built=done,
        at_any_rate=[build.step.id for build in known if build.end.high <= seconds],
        rest=[build.step.id for build in builds if build.step.id not in done],
    )


def _hours(seconds: Duration | None) -> str:
    """Such as `2.7 h (1.4 to 5.4)`."""
    if seconds is None:
        return "?"
    low, likely, high = (value / 3600 for value in astuple(seconds))
    return f"{likely:.1f} h ({low:.1f} to {high:.1f})"


def _day(moment: datetime, now: datetime) -> str:
    """The time of the day; with the date, if that is another one."""
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M}"


def print_caches(screen: Screen, found: CacheReport) -> None:
    """Print where dependencies come from, and the most expensive ones that are compiled."""
    parts = [f"{found.present} here"]
    parts += [f"{number} from {visible(url)}" for url, number in found.downloads.items()]
    size = f" ({found.download_gib:.1f} GiB to download)" if found.downloads else ""
    parts += [f"{counted(found.sources, 'source')} from elsewhere"] if found.sources else []
    parts += [f"{len(found.compiled)} compiled"]
    screen.fold("Dependencies: ", ", ".join(parts) + size, "bold")
    for url, why in found.problems.items():
        screen.fold("  ", f"{visible(url)} cannot be asked: {why}", "yellow", indent=6)
    for each in found.compiled[:_MOST]:
        size = f" ({each.source_mib:.0f} MiB of source)" if each.source_mib else ""
        screen.fold("  compiled ", visible(f"{each.name}{size}: {each.reason}"), indent=6)
    if rest := found.compiled[_MOST:]:
        screen.line(f"  and {len(rest)} more; --json has them")
