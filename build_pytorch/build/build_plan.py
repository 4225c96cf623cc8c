"""The plan of a run: what becomes of each variant, where, and what prevents it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.build import build_obstacles, cache_folder, seed_steps
from build_pytorch.build.backends import backend_registry
from build_pytorch.build.backends.base_backend import BuildBackend, BuildSettings, Step
from build_pytorch.build.build_obstacles import wrong_cpu
from build_pytorch.build.schedule import with_companions
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package
from build_pytorch.nix import cuda_checkout, derivations, store
from build_pytorch.nix.derivations import Derivation, DerivationSet
from build_pytorch.nix.nix_evaluation import UnreachablePinError
from build_pytorch.results import package_state
from build_pytorch.results.package_state import PackageState


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
        builds = [step for step in self.builds if step.is_variant]  # companions take minutes
        total = sum(step.variant.release.build.core_hours for step in builds)
        return total / (self.jobs * self.cores) if self.cores else 0.0

    @property
    def memory(self) -> float:
        """Memory in GiB that the builds need that run at once."""
        return max(
            (s.variant.release.build.memory(self.jobs, self.cores) for s in self.builds),
            default=0.0,
        )

    @property
    def disk(self) -> float:
        """Disk space in GiB that the builds need that run at once."""
        return self.jobs * max((s.variant.release.build.disk for s in self.builds), default=0.0)

    @property
    def builds(self) -> list[Step]:
        """What is to be built, in order."""
        return [step for step in self.steps if step.action == "build"]


def make_plan(matrix: Matrix, packages: Sequence[Package], settings: BuildSettings) -> BuildPlan:
    """Plan builds. Nothing is written, except derivations and a machines file for a backend.

    The variant of each companion is planned as well, and the companion waits for it.
    Raises BuildPytorchError if the store does not answer, and without a backend; in a dry run that
    is an obstacle.
    """
    backend, missing = _backend(matrix, settings)
    wanted = with_companions(packages)
    results = package_state.package_states(settings.root, wanted)
    skipped = _skipped(wanted, results, settings)
    rest = [p for p in wanted if not (_is_built(results[p.id]) or p.id in skipped)]
    obstacles = [*missing, *build_obstacles.before_evaluation(matrix, rest, settings)]
    evaluated, notes = (DerivationSet({}, {}), ()) if obstacles else _evaluated(rest, backend)
    obstacles += build_obstacles.not_evaluated(evaluated.failures)
    found = evaluated.derivations
    outputs = {d.output for each in found.values() for d in (each, *each.seeds.values())}
    there = store.valid_paths(sorted(outputs))
    in_order = [results[package.id] for package in wanted]
    steps = [
        _step(r, found.get(r.package.attribute), there, backend, skipped.get(r.package.id, ""))
        for r in in_order
    ]
    if settings.share:
        seeds, of_seeds = _seeds(matrix, steps, there, backend)
        steps, results = seed_steps.with_needs(matrix, steps, seeds), results | of_seeds
    steps = _with_variants(steps)
    building = [step for step in steps if step.action == "build"]
    if building and not obstacles:
        obstacles += _obstacles(building, backend, results, there)
    jobs = max(1, min(settings.jobs, len(building)))
    cores = (settings.cores or build_obstacles.most_cores(building, jobs)) if building else 0
    mixed = seed_steps.mixed(matrix, in_order, share=settings.share) if building else ()
    return BuildPlan(
        steps=tuple(steps),
        obstacles=tuple(dict.fromkeys(obstacles)),
        warnings=(*notes, *mixed, *_warnings(building, backend)),
        backend=backend,
        jobs=jobs,
        cores=cores,
    )


def _backend(matrix: Matrix, settings: BuildSettings) -> tuple[BuildBackend, Sequence[str]]:
    """Return the backend; in a dry run also a missing one, with the obstacle. Raises ToolError."""
    host = store.settings()
    try:
        return backend_registry.choose(settings, matrix, host), ()
    except ToolError as error:
        if not settings.dry_run:
            raise
        missing = error.lines
    likely = backend_registry.fitting(settings.backend, is_remote=bool(settings.builders))[0]
    return likely(settings, matrix, host), missing


def _evaluated(
    packages: Sequence[Package], backend: BuildBackend
) -> tuple[DerivationSet, Sequence[str]]:
    """Return the derivations of packages, none without Nix, and a note if a pin is unreachable.

    Raises ToolError; in a dry run not for a pin that is unreachable.
    """
    settings, nothing = backend.settings, DerivationSet({}, {})
    if not (packages and process.which(store.NIX_INSTANTIATE)):
        return nothing, ()
    write = backend.shares_process and not settings.dry_run
    try:
        return derivations.evaluate(settings.root, packages, write=write, share=settings.share), ()
    except UnreachablePinError:
        if not settings.dry_run:
            raise
    return nothing, ("derivations not evaluated: the pin cannot be reached from here",)


def _obstacles(
    building: Sequence[Step],
    backend: BuildBackend,
    results: Mapping[str, PackageState],
    there: set[str],
) -> Iterator[str]:
    """Yield what prevents builds whose recipes evaluate; `there`: outputs that the store has."""
    settings = backend.settings
    yield from build_obstacles.missing_features(building, backend)
    yield from backend.obstacles(building)
    if not settings.force:
        local = [step for step in building if not step.where]
        yield from build_obstacles.stopped_results(building, results, there)
        yield from build_obstacles.too_small(local, settings.jobs, settings.cores)


def _warnings(building: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield what a user should know before builds begin."""
    local = [step for step in building if not step.where]
    yield from build_obstacles.local_packages(building)
    if not backend.settings.cores:
        yield from build_obstacles.few_cores(local, backend.settings.jobs)
    yield from backend.warnings(building)
    yield from cache_folder.notes(building, backend)


def _is_built(result: PackageState) -> bool:
    """Whether the result is that of the current recipe and reads no local checkout.

    Files of a local checkout change without a trace in the recipe: Nix decides then.
    """
    is_local = result.local_packages or cuda_checkout.path_for(result.variant)
    return bool(result.output and not is_local)


def _skipped(
    packages: Sequence[Package], results: Mapping[str, PackageState], settings: BuildSettings
) -> dict[str, str]:
    """Return why packages are not built, by id: no machine, or a nightly without its hashes.

    If nothing else would be built, the missing hashes are an obstacle instead.
    """
    if settings.force:
        return {}
    found = {p.id: f"impossible-host: {p.impossible}" for p in packages if p.impossible}
    left = [p for p in packages if p.id not in found and not _is_built(results[p.id])]
    waiting = [
        package
        for package in left
        if package.variant.release.torch.is_nightly
        and any(build_obstacles.missing_hashes(package, settings))
    ]
    if len(waiting) < len(left):
        reason = "its sources have no hash yet; `invoke prefetch` takes them"
        found |= {package.id: reason for package in waiting}
    return found


def _with_variants(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, in which each companion needs its variant if that one is built."""
    built = {step.name for step in steps if step.is_variant and step.action == "build"}
    return [
        replace(step, needs=(*step.needs, step.variant.attribute))
        if step.companion and step.variant.attribute in built
        else step
        for step in steps
    ]


def _seeds(
    matrix: Matrix, steps: Sequence[Step], there: set[str], backend: BuildBackend
) -> tuple[list[Step], dict[str, PackageState]]:
    """Return the steps of the seeds that builds read, and what is known of them by name."""
    seeds = seed_steps.seeds_to_read(matrix, steps, there)
    known = package_state.seed_states(backend.settings.root, seeds.values())
    found = []
    for name in seeds:
        derivation = seed_steps.derivation_of(name, steps)
        result = seed_steps.current(known[name], derivation)
        found.append(replace(_step(result, derivation, there, backend), part=name))
    return found, known


def _why_built(result: PackageState) -> str:
    """Return why a variant without an up-to-date result is built."""
    if result.local_packages:
        return f"built with the CUDA packages of {result.local_packages}"
    return "the result is of another recipe" if result.stale else "not built yet"


def _step(
    result: PackageState,
    derivation: Derivation | None,
    there: set[str],
    backend: BuildBackend,
    skipped: str = "",
) -> Step:
    """Return what becomes of a package; `there`: the outputs that the store has.

    `skipped`: why it is not built.
    """
    variant = result.variant
    system = derivation.system if derivation else variant.cpu.platform
    action: Literal["build", "up to date", "skipped"] = "build"
    reason, where = _why_built(result), ""
    if skipped:
        action, reason = "skipped", skipped
    elif _is_built(result):
        action, reason = "up to date", "the store has the current recipe's result"
        if result.reads_seeds:
            reason += ", built with --share"
    elif derivation and derivation.output in there and not result.local_packages:
        reason = "in the store already, only the link is missing"
    elif system not in backend.host.systems:
        where = backend.builder(variant, derivation)
        if not where:
            action = "skipped"
            reason = f"wrong platform: this machine builds no {system}; {backend.no_builder}"
            if backend.is_remote and variant.cpu.builder_feature:
                reason += f" and states {variant.cpu.builder_feature}"
    elif not backend.settings.force and (why := wrong_cpu(variant, backend.matrix)):
        where = backend.builder(variant, derivation)
        if not where:
            action, reason = "skipped", why
    return Step(
        variant=variant,
        companion=result.package if isinstance(result.package, CompanionPackage) else None,
        local_packages=cuda_checkout.path_for(variant) if action == "build" else "",
        action=action,
        reason=reason,
        digest=result.digest,
        derivation=derivation,
        where=where,
    )
