"""The plan of a run: what becomes of each variant, where, and what prevents it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import backend_registry
from build_pytorch.build.backends.base_backend import BuildBackend, BuildSettings, Step
from build_pytorch.build.schedule import ordered
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix import derivations, store
from build_pytorch.nix.derivations import Derivation, DerivationSet
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult


class BuildPlan(Struct, frozen=True, kw_only=True):
    """What a run would do. With obstacles it does nothing."""

    steps: tuple[Step, ...]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    backend: BuildBackend
    jobs: int
    cores: int

    @property
    def hours(self) -> float:
        """About how long all builds take here, by the core-hours of the matrix."""
        at_once = min(self.jobs, len(self.builds)) * self.cores
        total = sum(step.variant.release.build.core_hours for step in self.builds)
        return total / at_once if at_once else 0.0

    @property
    def builds(self) -> list[Step]:
        """What is to be built, in order."""
        return [step for step in self.steps if step.action == "build"]


def make_plan(matrix: Matrix, variants: Sequence[Variant], settings: BuildSettings) -> BuildPlan:
    """Plan builds. Nothing is written, except derivations and a machines file for a backend.

    Raises BuildPytorchError where there is no backend or the store does not answer.
    """
    host = store.settings()
    backend = backend_registry.choose(settings, matrix, host)
    results = evidence.look(settings.root, variants)
    steps: dict[str, Step] = {}
    for result in results.values():
        variant = result.variant
        if variant.impossible and not settings.force:
            steps[variant.package] = _skipped(result, f"impossible-host: {variant.impossible}")
        elif result.output:
            steps[variant.package] = Step(
                variant=variant,
                action="up to date",
                reason="the store has the current recipe's result",
                digest=result.digest,
            )
    rest = [v for v in ordered(variants) if v.package not in steps]
    obstacles = list(build_obstacles.occupied(settings.root, rest))
    if not settings.force:
        obstacles += build_obstacles.unverified(matrix, settings.root, rest)
    evaluated = DerivationSet({}, {})
    if rest and not obstacles and process.which(store.NIX_INSTANTIATE):
        write = backend.needs_derivations and not settings.dry_run
        evaluated = derivations.evaluate(settings.root, rest, write=write)
        obstacles += [f"{package}: {why}" for package, why in evaluated.failures.items()]
    there = store.valid_paths(sorted(d.output for d in evaluated.derivations.values()))
    for variant in rest:
        derivation = evaluated.derivations.get(variant.package)
        steps[variant.package] = _step(results[variant.package], derivation, there, backend)
    ready = tuple(steps[variant.package] for variant in ordered(variants))
    building = [step for step in ready if step.action == "build"]
    local = [step for step in building if not step.where]
    cores = settings.cores or _cores(building, settings.jobs)
    if building and not obstacles:
        obstacles += _obstacles(building, local, results, there, backend)
    return BuildPlan(
        steps=ready,
        obstacles=tuple(obstacles),
        warnings=tuple(build_obstacles.few_cores(local, settings.jobs, cores)),
        backend=backend,
        jobs=min(settings.jobs, max(1, len(building))),
        cores=cores if building else 0,
    )


def _obstacles(
    building: Sequence[Step],
    local: Sequence[Step],
    results: Mapping[str, VariantResult],
    there: set[str],
    backend: BuildBackend,
) -> list[str]:
    settings = backend.settings
    found = [*build_obstacles.missing_features(building, backend), *backend.obstacles(building)]
    if not settings.force:
        found += build_obstacles.stopped_results(building, results, there)
        found += build_obstacles.too_small(local, settings.jobs, settings.cores)
    return found


def _skipped(result: VariantResult, reason: str) -> Step:
    return Step(variant=result.variant, action="skipped", reason=reason, digest=result.digest)


def _step(
    result: VariantResult, derivation: Derivation | None, there: set[str], backend: BuildBackend
) -> Step:
    """Return what becomes of a variant whose current result is not linked."""
    variant = result.variant
    system = derivation.system if derivation else variant.cpu.platform
    where = ""
    reason = "the result is of another recipe" if result.stale else "not built yet"
    if derivation and derivation.output in there:
        reason = "in the store already, only the link is missing"
    elif system not in backend.host.systems:
        where = backend.builder(system, derivation.features if derivation else ())
        if not where:
            why = f"wrong platform: this machine builds no {system}; {backend.no_builder}"
            return _skipped(result, why)
    return Step(
        variant=variant,
        action="build",
        reason=reason,
        digest=result.digest,
        derivation=derivation,
        where=where,
    )


def _cores(steps: Sequence[Step], jobs: int) -> int:
    """Return the compile jobs of each build that memory and CPUs allow."""
    jobs = max(1, min(jobs, len(steps)))
    share = build_obstacles.cpus() // jobs
    memory = build_obstacles.memory() / jobs
    return min((b.cores(memory, share) for b in build_obstacles.needs(steps)), default=0)
