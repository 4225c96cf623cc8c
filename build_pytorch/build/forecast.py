"""When builds are done: from earlier builds of their kind, else by the estimate of the matrix."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base.console import counted
from build_pytorch.build.build_backend import Step
from build_pytorch.build.log_rules import OUT_OF_MEMORY
from build_pytorch.build.pace import Curve, Duration, is_curve
from build_pytorch.build.schedule import Schedule, kind_of
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.tables import Build
from build_pytorch.results.evidence import subject_of
from build_pytorch.results.ledger import HOST, AnyEvent, Ended, Started

LONGEST_BUILD: Final = 1e8  #: seconds; a longer build in the ledger is a mistake
_LAST: Final = 5  #: builds of a kind that count
_UNCERTAIN: Final = 0.4  #: the range around one build; that of n builds is narrower by sqrt(n)
_OTHER_MACHINE: Final = 1.5  #: by which the range is wider, if cores or machine are others
_CACHED: Final = 0.8  #: part of the objects that came from a compiler cache: such a build is short
_SHORT: Final = 60.0  #: seconds; a shorter build without steps only found its result
_MOST_CORES, _MOST_GIB = 4096, 1024  #: compile jobs, memory of one; more is a mistake
_GIB: Final = 1 << 30
_ESTIMATE: Final = 2.0  #: by which an estimate of the matrix may be wrong

NO_BUILD: Final = "no build recorded"


class _EndedBuild(Struct, frozen=True):
    """A build that ended, and the compile jobs that it had (0: unknown)."""

    ended: Ended
    cores: int

    @property
    def hits(self) -> float:
        """The part of its objects that came from a compiler cache."""
        hits, misses = max(0, self.ended.cache_hits), max(0, self.ended.cache_misses)
        return hits / max(1, hits + misses)

    def seconds(self, cores: int) -> float:
        """Return how long it would have taken with so many compile jobs and nothing cached.

        As if all objects took equally long. Those that differ between variants take longer: of
        PyTorch 2.6.0 with MKL, 68 % came from the cache of OpenBLAS, and were half of the work.
        """
        return self.least(cores) / (1 - self.hits if self.hits < _CACHED else 1)

    def least(self, cores: int) -> float:
        """Return how long it would have taken with so many compile jobs and the same cache."""
        return self.ended.seconds * (self.cores / cores if self.cores and cores else 1)


class BuildHistory:
    """Earlier builds by kind: release, group and companion; builds with seeds apart.

    What is no package, such as a seed, has a kind of its own.
    """

    def __init__(self, events: Iterable[AnyEvent], packages: Iterable[Package]) -> None:
        self._kinds = {subject_of(package): kind_of(package) for package in packages}
        self._built: dict[object, list[_EndedBuild]] = {}
        self._memory: dict[object, list[_EndedBuild]] = {}
        begun: dict[str, int] = {}
        for event in events:
            if isinstance(event, Started):
                begun[event.attempt] = event.cores if 0 < event.cores <= _MOST_CORES else 0
            elif isinstance(event, Ended):
                record = _EndedBuild(event, 0 if event.where else begun.get(event.attempt, 0))
                is_whole, kind = self._is_whole(event), self._kinds.get(event.subject)
                if is_whole:
                    key = self._key(event.subject, event.shared)
                    self._built.setdefault(key, []).append(record)
                if (is_whole and record.hits < _CACHED) or event.cause == OUT_OF_MEMORY:
                    self._memory.setdefault(kind, []).append(record)
        for records in (*self._built.values(), *self._memory.values()):
            records.sort(key=lambda record: record.ended.at)

    def _key(self, subject: tuple[str, str], shared: bool) -> object:
        return self._kinds.get(subject, subject), shared

    @staticmethod
    def _is_whole(event: Ended) -> bool:
        """Whether a package was built, and not only found."""
        is_long = bool(event.steps) or ("+" in event.variant and event.seconds > _SHORT)
        return event.outcome == "built" and is_long and 1 <= event.seconds < LONGEST_BUILD

    def duration(
        self, subject: tuple[str, str], cores: int, *, shared: bool
    ) -> tuple[Duration, str] | None:
        """Return how long a build takes with so many compile jobs (0: unknown), and the reason.

        Builds on this machine with as many compile jobs count before others, and those that
        compiled before those that found nearly everything in a cache.
        """
        records = self._built.get(self._key(subject, shared), [])
        alike = [r for r in records if r.ended.host in {"", HOST} and r.cores == cores]
        recent = (alike or records)[-_LAST:]
        cached = [record for record in recent if record.hits >= _CACHED]
        is_cached = 2 * len(cached) > len(recent)
        used = cached if is_cached else [record for record in recent if record not in cached]
        if not used:
            return None
        seconds = [record.seconds(cores) for record in used]
        spread = 1 + _UNCERTAIN / len(seconds) ** 0.5
        spread *= 1 if alike else _OTHER_MACHINE
        likely = statistics.median(seconds)
        low = min([likely / spread, *(record.least(cores) for record in used)])
        high = max([likely * spread, *seconds])
        reason = counted(len(used), "build") + " of its kind"
        reason += "" if alike else " on another machine or with other --cores"
        if is_cached:
            high = max([high, *(r.seconds(cores) for r in recent if r not in cached)])
            reason += ", most of it from a compiler cache"
        return Duration(low, likely, high), reason

    def curve(self, subject: tuple[str, str], *, shared: bool) -> Curve:
        """Return the curve of the last build of a kind that has one; empty: there is none."""
        records = self._built.get(self._key(subject, shared), [])
        curves = (r.ended.curve for r in reversed(records))
        return next((curve for curve in curves if is_curve(curve)), ())

    def limits(self, package: Package, memory: float) -> tuple[Build, str]:
        """Return the limits of a build that has so many GiB, and why they are not the matrix's.

        One compile job needs what it needed in earlier builds with no more of them, and no build
        has as many as one that ran out of memory here since the last that did not.
        """
        limits, note = package.variant.build, ""
        records = self._memory.get(kind_of(package), [])
        known = [record for record in records[-_LAST:] if record.cores]
        peaks = ((record.ended.peak_memory / _GIB / record.cores, record.cores) for record in known)
        job, jobs = max((peak for peak in peaks if 0 < peak[0] < _MOST_GIB), default=(0.0, 0))
        is_enough = (memory - limits.reserved_memory) / max(job, 1e-9) >= jobs
        if job and (is_enough or job > limits.job_memory):
            limits = replace(limits, job_memory=job)
        failed: _EndedBuild | None = None
        for record in (r for r in records if r.cores and r.ended.host in {"", HOST}):
            if record.ended.outcome != "built":
                failed = record
            elif failed and record.cores >= failed.cores:
                failed = None
        if failed:
            fewer = max(1, failed.cores // 2)
            limits = replace(limits, max_jobs=min(limits.max_jobs, fewer))
            when = failed.ended.at[:10]
            jobs_then = counted(failed.cores, "compile job")
            note = f"memory: {jobs_then} needed too much on {when}: {fewer} now"
        return limits, note


class PlannedBuild(Struct, frozen=True, kw_only=True):
    """How long a build is expected to take, why, and when it ends after the start of the run.

    Without a build and an estimate `seconds` is None, and the build counts as no time.
    """

    step: Step
    seconds: Duration | None
    reason: str
    is_recorded: bool
    curve: Curve = ()  #: of the last build of its kind that has one
    end: Duration = Duration(0, 0, 0)
    after: str = ""  #: the id of the build whose end it waits for; empty at the beginning


class Forecast(Struct, frozen=True, kw_only=True):
    """What a run is expected to take, with so many builds at once."""

    builds: tuple[PlannedBuild, ...] = ()
    builders: int = 1

    @property
    def end(self) -> Duration:
        """Seconds from the start of the run to its end."""
        ends = [msgspec.structs.astuple(build.end) for build in self.builds] or [(0, 0, 0)]
        return Duration(*map(max, zip(*ends, strict=True)))

    @property
    def critical_path(self) -> list[str]:
        """The ids of the builds that wait for each other and decide the end."""
        by_id = {build.step.id: build for build in self.builds}
        last = max(self.builds, key=lambda build: build.end.likely, default=None)
        found: list[str] = []
        while last:
            found.insert(0, last.step.id)
            last = by_id.get(last.after)
        return found


def forecast(
    history: BuildHistory,
    steps: Sequence[Step],
    cores: int,
    builders: int,
    core_hours: Mapping[str, float],
) -> Forecast:
    """Return when builds with so many compile jobs are done, in the order of a run.

    `core_hours`: the estimates of the matrix by name of the step.
    """
    builds = []
    for step in steps:
        here = 0 if step.builders else cores
        found = history.duration(step.subject, here, shared=step.reads_seeds)
        seconds, reason = found or (None, NO_BUILD)
        if not found and here and (estimate := core_hours.get(step.name)):
            likely = 3600 * estimate / cores
            seconds = Duration(likely / _ESTIMATE, likely, likely * _ESTIMATE)
            reason += "; estimate of matrix.toml"
        reason += "" if seconds else ", counts as no time"
        curve = history.curve(step.subject, shared=step.reads_seeds)
        planned = PlannedBuild(
            step=step, seconds=seconds, reason=reason, is_recorded=bool(found), curve=curve
        )
        builds.append(planned)
    return Forecast(builds=tuple(_timed(builds, builders)), builders=builders)


def _timed(builds: Sequence[PlannedBuild], builders: int) -> Iterator[PlannedBuild]:
    """Yield builds with their ends, in the order in which the schedule of a run begins them."""
    by_name = {build.step.name: build for build in builds}
    schedule = Schedule([b.step for b in builds], builders, 1, 0.0, is_shared=False)
    running: list[tuple[float, int, PlannedBuild]] = []
    ended: list[Variant] = []
    now, last, number = Duration(0, 0, 0), "", 0
    while True:
        steps = [each[2].step for each in running]
        begun = schedule.take(now.likely, steps, ended, len(running))
        for build in (by_name[step.name] for step in begun):
            timed = replace(build, end=now.plus(build.seconds or Duration(0, 0, 0)), after=last)
            number += 1
            heapq.heappush(running, (timed.end.likely, number, timed))
            yield timed
        if not (begun or running):
            return
        if not begun:
            _, _, timed = heapq.heappop(running)
            now, last = timed.end, timed.step.id
            ended += [timed.step.variant] if timed.step.is_variant else []
