"""The plan of a run: what becomes of each package, where, and what prevents it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import choose_backend
from build_pytorch.build.build_backend import BuildBackend, BuildSettings, Step
from build_pytorch.build.log_rules import HASH_MISMATCH
from build_pytorch.build.schedule import with_companions
from build_pytorch.build.usual_times import UsualTime, usual_times
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.tables import Build
from build_pytorch.nix import derivations, store
from build_pytorch.nix.derivations import Derivation, DerivationSet
from build_pytorch.nix.evaluation import UnreachablePinError
from build_pytorch.results import ledger, package_state
from build_pytorch.results.package_state import PackageState

_Results = Mapping[str, PackageState]


class BuildPlan(Struct, frozen=True, kw_only=True):
    """What a run would do. With obstacles it does nothing."""

    steps: tuple[Step, ...]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    backend: BuildBackend
    jobs: int = 1
    cores: int = 0
    limits: tuple[Build, ...] = ()  #: of the builds
    usual: Mapping[str, UsualTime] = {}  #: by name of the step

    @property
    def memory(self) -> float:
        """Memory in GiB that the builds need that run at once."""
        return max((limit.memory(self.jobs, self.cores) for limit in self.limits), default=0.0)

    @property
    def hours(self) -> float:
        """Hours of the whole run; a build of unknown time counts as none."""
        seconds = [usual.seconds for usual in self.usual.values()]
        return max(sum(seconds) / self.jobs, *seconds, 0.0) / 3600

    @property
    def disk(self) -> float:
        """Disk space in GiB that the builds need that run at once."""
        return self.jobs * max((s.variant.build.disk for s in self.builds), default=0.0)

    @property
    def builds(self) -> list[Step]:
        """What is to be built, in order."""
        return [step for step in self.steps if step.action == "build"]


def make_plan(matrix: Matrix, packages: Sequence[Package], settings: BuildSettings) -> BuildPlan:
    """Plan builds. Nothing is written, except derivations.

    The variant of each companion is planned as well, and the companion waits for it.
    Raises BuildPytorchError if the store does not answer, and without a backend; in a dry run that
    is an obstacle.
    """
    backend, missing = choose_backend(settings, store.settings())
    if missing and not settings.dry_run:
        raise ToolError(missing)
    wanted = with_companions(packages)
    history = ledger.read(settings.root)
    results = package_state.package_states(settings.root, wanted, history)
    skipped = _skipped(wanted, results, settings)
    rest = [p for p in wanted if not (_is_built(results[p.id]) or p.id in skipped)]
    obstacles = [missing] if missing else []
    obstacles += build_obstacles.before_evaluation(matrix, rest, settings)
    evaluated, notes = (DerivationSet({}, {}), ()) if obstacles else _evaluated(rest, backend)
    obstacles += build_obstacles.not_evaluated(evaluated.failures)
    found = evaluated.derivations
    there = store.valid_paths(sorted(derivation.output for derivation in found.values()))
    steps = [
        _step(results[p.id], found.get(p.attribute), there, backend, skipped.get(p.id, ""))
        for p in wanted
    ]
    if not (settings.retry or settings.force or settings.keep_failed):
        steps = list(_not_repeated(steps, results, there, settings))
    plan = BuildPlan(
        steps=tuple(_with_needs(steps)),
        obstacles=tuple(obstacles),
        warnings=(*notes, *build_obstacles.not_repeated(steps)),
        backend=backend,
    )
    plan = _with_limits(plan, results, there)
    estimates = _estimates(plan)
    return replace(plan, usual=usual_times(history.events, matrix.packages, plan.builds, estimates))


def _with_limits(plan: BuildPlan, results: _Results, there: set[str]) -> BuildPlan:
    """Return a plan with memory and compile jobs of its builds, and what they lack here.

    `there`: outputs that the store has.
    """
    backend, building, obstacles = plan.backend, plan.builds, plan.obstacles
    settings, jobs = backend.settings, max(1, min(backend.settings.jobs, len(building)))
    here = [step for step in building if not step.only_remote] or building
    limits = tuple(dict.fromkeys(step.variant.build for step in here))
    if building and not obstacles:
        obstacles = tuple(_obstacles(building, backend, results, there, limits))
    cores = (settings.cores or build_obstacles.most_cores(limits, jobs)) if building else 0
    return replace(
        plan,
        obstacles=tuple(dict.fromkeys(obstacles)),
        warnings=(*plan.warnings, *_warnings(building, backend, limits)),
        jobs=jobs,
        cores=cores,
        limits=limits,
    )


def _estimates(plan: BuildPlan) -> dict[str, float]:
    """Return the seconds of builds here by name, as matrix.toml estimates them."""
    here = [s for s in plan.builds if s.is_variant and not s.only_remote]
    return {s.name: 3600 * s.variant.build.core_hours / plan.cores for s in here}


def _evaluated(
    packages: Sequence[Package], backend: BuildBackend
) -> tuple[DerivationSet, Sequence[str]]:
    """Return the derivations of packages, none without Nix, and a note if a pin is unreachable.

    Raises ToolError; in a dry run not for a pin that is unreachable.
    """
    settings, nothing = backend.settings, DerivationSet({}, {})
    if not (packages and process.which(store.NIX_INSTANTIATE)):
        return nothing, ()
    try:
        return derivations.evaluate(settings.root, packages), ()
    except UnreachablePinError:
        if not settings.dry_run:
            raise
    return nothing, ("derivations not evaluated: the pin cannot be reached from here",)


def _obstacles(
    building: Sequence[Step],
    backend: BuildBackend,
    results: _Results,
    there: set[str],
    limits: Sequence[Build],
) -> Iterator[str]:
    """Yield what prevents builds whose recipes evaluate; `there`: outputs that the store has."""
    settings = backend.settings
    yield from build_obstacles.missing_features(building, backend)
    yield from backend.obstacles(building)
    if not settings.force:
        yield from build_obstacles.stopped_results(building, results, there)
        if local := len([step for step in building if not step.only_remote]):
            yield from build_obstacles.too_small(limits, min(settings.jobs, local), settings.cores)


def _warnings(
    building: Sequence[Step], backend: BuildBackend, limits: Sequence[Build]
) -> Iterator[str]:
    """Yield what a user should know before builds begin."""
    local = [step for step in building if not step.only_remote]
    yield from build_obstacles.local_packages(building)
    yield from build_obstacles.same_builds(building)
    if local and not backend.settings.cores:
        yield from build_obstacles.few_cores(limits, min(len(local), backend.settings.jobs))
    yield from build_obstacles.compiler_caches(building, backend)
    yield from build_obstacles.left_folders(local)


def _is_built(result: PackageState) -> bool:
    """Whether the result is that of the current recipe and reads no local checkout.

    Files of a local checkout change without a trace in the recipe: Nix decides then.
    """
    return bool(result.output and not derivations.local_checkout(result.package.variant))


def _skipped(
    packages: Sequence[Package], results: _Results, settings: BuildSettings
) -> dict[str, str]:
    """Return why packages are not built, by id: no machine, another variant's files, no hashes.

    If nothing else would be built, the missing hashes are an obstacle instead.
    """
    if settings.force:
        return {}
    found = {p.id: f"impossible-host: {p.impossible}" for p in packages if p.impossible}
    found |= dict(_same_builds(packages, results, settings))
    left = [p for p in packages if p.id not in found and not _is_built(results[p.id])]
    nightlies = [package for package in left if package.variant.release.torch.is_nightly]
    waiting = [p for p in nightlies if any(build_obstacles.missing_hashes(p, settings))]
    if len(waiting) < len(left):
        reason = "its sources have no hash yet; `invoke prefetch` takes them"
        found |= {package.id: reason for package in waiting}
    return found


def _not_repeated(
    steps: Sequence[Step], results: _Results, there: set[str], settings: BuildSettings
) -> Iterator[Step]:
    """Yield the steps; what would fail again as before, and its companions, are not built."""
    hopeless: dict[str, str] = {}
    for step in steps:
        result, why = results[step.id], hopeless.get(step.variant.path, "")
        last = result.fails_again
        if last and not (settings.fix_hashes and last.cause == HASH_MISMATCH):
            why = f"would fail again ({last.cause or 'compiler error'})"
        is_there = bool(step.derivation and step.derivation.output in there)
        if step.action == "build" and why and not is_there:
            if step.is_variant:
                hopeless[step.variant.path] = f"{step.id} failed, and this needs it"
            yield replace(step, action="failed", reason=why)
        else:
            yield step


def _same_builds(
    packages: Sequence[Package], results: _Results, settings: BuildSettings
) -> Iterator[tuple[str, str]]:
    """Yield packages, by id, whose files another variant has or gets, with that as the reason."""
    for package in packages:
        text, twin = build_obstacles.same_build(package), package.variant.same_build_as
        if text and twin and not _is_built(results[package.id]):
            state = package_state.package_states(settings.root, [twin])[twin.id]
            if twin.id in results or _is_built(state):
                yield package.id, text


def _step(
    result: PackageState,
    derivation: Derivation | None,
    there: Collection[str],
    backend: BuildBackend,
    skipped: str = "",
) -> Step:
    """Return what becomes of a package; `there`: the outputs that the store has.

    `skipped`: why it is not built.
    """
    action, reason, only_remote = _decision(result, derivation, there, backend)
    if skipped:
        action, reason, only_remote = "skipped", skipped, False
    return Step(
        package=result.package,
        local_packages=derivations.local_checkout(result.package.variant)
        if action == "build"
        else "",
        action=action,
        reason=reason,
        digest=result.digest,
        derivation=derivation,
        only_remote=only_remote,
    )


def _decision(
    result: PackageState,
    derivation: Derivation | None,
    there: Collection[str],
    backend: BuildBackend,
) -> tuple[Literal["build", "up to date", "skipped"], str, bool]:
    """Return the action, its reason, and whether only a remote builder can take it."""
    variant = result.package.variant
    system = derivation.system if derivation else variant.cpu.platform
    if _is_built(result):
        return "up to date", "the store has the current recipe's result", False
    local = derivations.local_checkout(result.package.variant)
    if derivation and derivation.output in there and not local:
        return "build", "in the store already, only the link is missing", False
    unable = ""
    if system not in backend.host.systems:
        unable = f"wrong platform: this machine builds no {system}; --builders names others"
    elif not backend.settings.force:
        unable = build_obstacles.wrong_cpu(variant)
    if unable and not backend.settings.builders:
        return "skipped", unable, False
    if local:
        return "build", f"with the CUDA packages of {local}", bool(unable)
    return (
        "build",
        "the result is of another recipe" if result.link else "not built yet",
        bool(unable),
    )


def _with_needs(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps; a companion that is built waits for its variant, if that is built, too."""
    built = {step.name for step in steps if step.action == "build"}
    for step in steps:
        torch = step.variant.attribute
        if step.name in built and torch in built and not step.is_variant:
            yield replace(step, needs=torch)
        else:
            yield step
