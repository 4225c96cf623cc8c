"""What shared compilation saves: units of work, and time over several builders.

Everything here is a pure function of the matrix. One unit is the work of one GPU variant that is
built alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.seeds import Seed
from build_pytorch.matrix.tables import Work

BUILDERS: Final = (1, 2, 4, 8, 13)
"""Numbers of builders that a plan shows."""

ASSUMPTIONS: Final = (
    "each builder builds one thing at a time, is as fast as the others and runs every platform",
    "a variant waits for its seeds, a seed for NCCL and MAGMA",
    "copies between builders take no time",
    "a seed also configures the source and compiles its code generators, which is not counted",
    "no binary cache has NCCL and MAGMA; each import of nixpkgs compiles both once",
)


class Job(Struct, frozen=True, kw_only=True):
    """Something to build, with its work in units and the jobs that must be done before."""

    name: str
    units: float
    hours: float  #: core-hours
    needs: tuple[str, ...] = ()


class SharedWork(Struct, frozen=True, kw_only=True):
    """The work on some variants, with and without sharing."""

    seeds: tuple[Seed, ...]
    dependencies: tuple[Job, ...]  #: NCCL and MAGMA, the same in both
    shared: tuple[Job, ...]  #: seeds and variants
    unshared: tuple[Job, ...]

    @property
    def units(self) -> float:
        """Work of seeds and variants."""
        return sum(job.units for job in self.shared)

    @property
    def units_unshared(self) -> float:
        """Work of the variants, each built alone."""
        return sum(job.units for job in self.unshared)

    @property
    def units_dependencies(self) -> float:
        """Work on NCCL and MAGMA, which both ways have."""
        return sum(job.units for job in self.dependencies)

    def hours(self, builders: int, cores: int, *, is_shared: bool) -> float:
        """Return the hours until everything is built on machines with so many cores each."""
        jobs = self.shared if is_shared else self.unshared
        return makespan([*self.dependencies, *jobs], builders, unit="hours") / cores


def shared_work(
    variants: Sequence[Variant],
    work: Work,
    seeds: Mapping[str, Sequence[Seed]],
    imports: Mapping[str, str],
    there: Collection[str] = (),
) -> SharedWork:
    """Return the work on variants.

    `seeds`: those of `seeds_of`. `imports`: the import of nixpkgs of each recipe, by attribute; GPU
    variants with the same import use the same NCCL and MAGMA. `there`: names of seeds that are
    built already.
    """
    own = {variant.attribute: seeds.get(variant.attribute, ()) for variant in variants}
    needed = {seed.name: seed for found in own.values() for seed in found}
    # A seed is made from the recipe of a variant, which need not be one of those that are built.
    origins = ((v, *(seed.variant for seed in own[v.attribute])) for v in variants)
    users = {user.attribute: user for several in origins for user in several}
    libraries = {name: _libraries(v, work, imports.get(name, "")) for name, v in users.items()}
    dependencies: dict[str, Job] = {}
    for job in (job for jobs in libraries.values() for job in jobs):
        dependencies.setdefault(job.name, job)
    before = {name: tuple(job.name for job in jobs) for name, jobs in libraries.items()}
    unshared, shared = [], []
    for variant in variants:
        name, read = variant.attribute, own[variant.attribute]
        unshared.append(_job(name, _units(variant, work), variant, before[name]))
        needs = (*before[name], *(seed.name for seed in read if seed.name not in there))
        shared.append(_job(name, _units(variant, work, read), variant, needs))
    costs = {"cxx": work.cxx, "cuda": work.cuda}
    first = [
        _job(name, costs[seed.kind].share, seed.variant, before[seed.variant.attribute])
        for name, seed in needed.items()
        if name not in there
    ]
    return SharedWork(
        seeds=tuple(needed.values()),
        dependencies=_longest_first(dependencies.values()),
        shared=(*_longest_first(first), *shared),
        unshared=_longest_first(unshared),
    )


def _libraries(variant: Variant, work: Work, nixpkgs: str) -> list[Job]:
    """Return the builds of NCCL and MAGMA that a variant needs from an import of nixpkgs."""
    shares = {"nccl": work.nccl, "magma": work.magma} if variant.gpu_key else {}
    return [_job(f"{name}-{nixpkgs}", it.share, variant, ()) for name, it in shares.items()]


def _units(variant: Variant, work: Work, seeds: Sequence[Seed] = ()) -> float:
    """Return the work on a variant that reads seeds, or that is built alone without any."""
    parts = {"cxx": work.cxx.share, "cuda": work.cuda.share}
    if not variant.gpu_key:
        parts = {"cxx": work.cpu_only_cxx.share}
    kinds = {seed.kind for seed in seeds}
    units = sum(part for kind, part in parts.items() if kind not in kinds)
    if seeds:
        units += work.replay.share
        units += 0.0 if variant.gpu_key else work.cpu_only_miss.share
    return units + work.link.share


def _longest_first(jobs: Iterable[Job]) -> tuple[Job, ...]:
    return tuple(sorted(jobs, key=lambda job: -job.units))


def _job(name: str, units: float, variant: Variant, needs: tuple[str, ...]) -> Job:
    hours = units * variant.release.build.core_hours
    return Job(name=name, units=units, hours=hours, needs=needs)


def makespan(
    jobs: Sequence[Job], builders: int, *, unit: Literal["units", "hours"] = "units"
) -> float:
    """Return when the last job ends if each builder takes the first job that is ready.

    Raises ValueError if jobs need each other, or one that is missing.
    """
    waiting = list(jobs)
    done: dict[str, float] = {}
    running: list[tuple[float, str]] = []
    now = 0.0
    while waiting or running:
        ready = [job for job in waiting if all(name in done for name in job.needs)]
        for job in ready[: builders - len(running)]:
            heapq.heappush(running, (now + getattr(job, unit), job.name))
            waiting.remove(job)
        if not running:
            raise ValueError(f"{waiting[0].name} waits for ever")
        now, name = heapq.heappop(running)
        done[name] = now
    return now
