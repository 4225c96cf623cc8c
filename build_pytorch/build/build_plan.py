"""The plan of a run: what becomes of each package, where, and what prevents it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.console import counted, grouped, some
from build_pytorch.base.errors import ToolError
from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import (
    BuildAction,
    BuildBackend,
    BuildSettings,
    Step,
    choose_backend,
)
from build_pytorch.build.usual_times import UsualTime, group_of, usual_times
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.tables import CUDA_PACKAGES_SOURCE, CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import store
from build_pytorch.nix.evaluation import UnreachablePinError
from build_pytorch.nix.store import Derivation
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState, package_states


class BuildPlan(Struct, frozen=True, kw_only=True):
    """What a run would do. With obstacles it does nothing."""

    steps: tuple[Step, ...]
    obstacles: tuple[str, ...]
    notes: tuple[str, ...]
    backend: BuildBackend
    jobs: int = 1
    cores: int = 1
    memory: float = 0.0  #: GiB that the builds need that run at once
    disk: float = 0.0  #: GiB that they need
    usual: Mapping[str, UsualTime] = {}  #: by name of the step

    @property
    def builds(self) -> list[Step]:
        """What is to be built, in order."""
        return [step for step in self.steps if step.is_build]

    @property
    def hours(self) -> float:
        """Hours of the whole run; a build of unknown time counts as none."""
        seconds = [usual.seconds for usual in self.usual.values()]
        return max(sum(seconds) / self.jobs, *seconds, 0.0) / 3600


def in_order(packages: Iterable[Package]) -> list[Package]:
    """Return packages in the order of their builds; groups and releases keep the matrix order.

    The first variant of each group comes first: a fault that all recipes of the group share shows
    there. CPU-only variants come last. A companion comes after its variant, which is added where it
    is missing: the companion is compiled with its torch.
    """
    of_variant = grouped((package.variant.path, package) for package in packages)
    variants = {path: several[0].variant for path, several in of_variant.items()}
    groups = grouped((group_of(variant), variant) for variant in variants.values())
    blocks = sorted(groups.values(), key=lambda block: block[0].gpu is None)
    ordered = [block[0] for block in blocks] + [v for block in blocks for v in block[1:]]
    return [
        package
        for variant in ordered
        for package in (variant, *(p for p in of_variant[variant.path] if p is not variant))
    ]


def make_plan(matrix: Matrix, packages: Sequence[Package], settings: BuildSettings) -> BuildPlan:
    """Plan builds. Nothing is written, except derivations.

    Raises BuildPytorchError if the store does not answer, and without a backend; in a dry run that
    is an obstacle.
    """
    backend, missing = choose_backend(settings, store.settings())
    if missing and not settings.dry_run:
        raise ToolError(missing)
    wanted, history = in_order(packages), ledger.read(settings.root)
    twins = [twin for package in wanted if (twin := package.variant.same_build_as)]
    states = package_states(settings.root, [*wanted, *twins], history)
    asked = {package.id for package in wanted}
    covered = asked | {i for i, s in states.items() if s.output}
    skipped = {p.id: reason_to_skip(p, asked, covered, force=settings.force) for p in wanted}
    rest = [p for p in wanted if not (skipped[p.id] or _is_built(states[p.id]))]
    obstacles = [missing] if missing else []
    obstacles += build_obstacles.of_recipes(matrix, rest, force=settings.force)
    found: dict[str, Derivation] = {}
    notes: list[str] = []
    try:
        if not obstacles and process.which(store.NIX_INSTANTIATE):
            found, failures = store.evaluated_derivations(settings.root, rest)
            reasons = grouped((why, name) for name, why in failures.items())
            obstacles += [f"{some(names)}: {why}" for why, names in reasons.items()]
    except UnreachablePinError as error:
        if not settings.dry_run:
            raise
        notes.append(f"derivations not evaluated: {error}")
    present = store.valid_paths(sorted(derivation.output for derivation in found.values()))
    steps: dict[str, Step] = {}
    for package in wanted:
        state, derivation = states[package.id], found.get(package.attribute)
        torch, skip = steps.get(package.variant.id), skipped[package.id]
        action, reason = decide(state, backend, derivation, present, torch=torch, skip=skip)
        steps[package.id] = Step(
            package=package,
            action=action,
            reason=reason,
            digest=state.digest,
            derivation=derivation,
        )
    builds = [step for step in steps.values() if step.is_build]
    here = [step for step in builds if step.action is BuildAction.BUILD]
    jobs = max(1, min(settings.jobs, len(builds)))
    limits = list(dict.fromkeys(step.package.variant.build for step in here or builds))
    share, memory = build_obstacles.usable_cpus() // jobs, build_obstacles.memory() / jobs
    cores = settings.cores or min((limit.cores(memory, share) for limit in limits), default=1)
    if builds and not obstacles:
        obstacles += backend.obstacles(builds)
        if here and not settings.force:
            obstacles += build_obstacles.too_small(limits, min(jobs, len(here)), cores)
    paths = [step.derivation.drv_path for step in builds if step.derivation]
    work = store.missing_paths(paths) if settings.dry_run and paths else []
    estimates = estimated_seconds(here, cores, work)
    return BuildPlan(
        steps=tuple(steps.values()),
        obstacles=tuple(dict.fromkeys(obstacles)),
        notes=(*notes, *_notes(list(steps.values()), backend, work)),
        backend=backend,
        jobs=jobs,
        cores=cores,
        memory=max((limit.memory(jobs, cores) for limit in limits), default=0.0),
        disk=jobs * max((limit.disk for limit in limits), default=0.0),
        usual=usual_times(history.events, matrix.packages, builds, estimates),
    )


def estimated_seconds(
    steps: Sequence[Step], cores: int, work: Sequence[str] = ()
) -> dict[str, float]:
    """Return the estimates of matrix.toml for variants, by name of the step.

    The first variant of a GPU architecture compiles MAGMA and NCCL for it, which no cache has.
    `work`: what Nix says that it builds and fetches, if it was asked.
    """
    seconds: dict[str, float] = {}
    with_libraries: set[tuple[str, str]] = set()
    most = len(_magma(work)) if work else len(steps)
    for step in (step for step in steps if step.is_variant):
        variant, hours = step.package.variant, step.package.variant.build.core_hours
        key = (variant.release_name, variant.gpu_key or "")
        is_first = _compiles_libraries(step) and key not in with_libraries
        if is_first and len(with_libraries) < most:
            with_libraries.add(key)
            hours += variant.build.magma_core_hours
        seconds[step.name] = 3600 * hours / cores
    return seconds


def _magma(work: Sequence[str]) -> list[str]:
    """Return the derivations of MAGMA among those that Nix would build."""
    return [path for path in work if "-magma-" in path and path.endswith(".drv")]


def _compiles_libraries(step: Step) -> bool:
    """Whether the recipe compiles MAGMA and NCCL for its GPU, which no public cache has then."""
    fixes = step.package.variant.effects.fixes
    return step.is_variant and not {"own-libraries", "own-capabilities"}.isdisjoint(fixes)


def _is_built(state: PackageState) -> bool:
    """Whether nothing is left to build.

    Files of a local checkout change without a trace in the recipe: Nix decides then.
    """
    return bool(state.output) and not store.local_checkout(state.package.variant)


def reason_to_skip(
    package: Package, asked: Collection[str], covered: Collection[str], *, force: bool
) -> str:
    """Return why a package is not built, whatever is known of it; empty if it may be.

    `asked`: ids of what is asked for; `covered`: of what is built, or asked for.
    """
    if force:
        return ""
    if package.impossible:
        return f"impossible-host: {package.impossible}"
    checkout, twin = store.local_checkout(package.variant), package.variant.same_build_as
    if twin and twin.id in covered and not checkout:
        return f"the same build as {twin.id}, unless {CUDA_PACKAGES_VARIABLE} names others"
    if package.alias_of in asked:
        return f"an alias: as fast as for {package.cpu.same_as}; named alone it is built"
    for name, place in package.untaken_hashes:
        if not (name == CUDA_PACKAGES_SOURCE and checkout):
            return f"matrix.toml: {place} has no hash yet; `invoke prefetch --only {name}` takes it"
    return ""


def decide(  # noqa: PLR0913 - all that decides
    state: PackageState,
    backend: BuildBackend,
    derivation: Derivation | None,
    present: Collection[str],
    *,
    torch: Step | None,
    skip: str,
) -> tuple[BuildAction, str]:
    """Return what becomes of a package, and why.

    `present`: outputs that the store has. `torch`: the step of the variant of a companion. `skip`:
    why it is not built, whatever is known of it.
    """
    package, settings = state.package, backend.settings
    checkout = store.local_checkout(package.variant)
    if _is_built(state):
        return BuildAction.CURRENT, "the store has the current recipe's result"
    if skip:
        return BuildAction.SKIPPED, skip
    if torch and torch.action in {BuildAction.SKIPPED, BuildAction.FAILED}:
        return torch.action, f"{torch.package.id} {torch.action}, and this needs it"
    if derivation and derivation.output in present and not checkout:
        if state.stopped_by and not settings.force:
            what = f"its build was stopped ({state.stopped_by}), but the store has the result"
            return BuildAction.FAILED, f"{what}: {store.delete_command(derivation.output)}"
        return BuildAction.BUILD, "in the store already, only the link is missing"
    failed, again = state.fails_again, settings.retry or settings.force or settings.keep_failed
    if failed and not again:
        return BuildAction.FAILED, f"would fail again ({failed.cause or 'compiler error'})"
    system = derivation.system if derivation else package.platform
    unable = "" if settings.force else build_obstacles.wrong_cpu(package.variant)
    if system not in backend.host.systems:
        unable = f"wrong platform: this machine builds no {system}; --builders names others"
    if unable and not settings.builders:
        return BuildAction.SKIPPED, unable
    reason = "the result is of another recipe" if state.link else "not built yet"
    if checkout:
        reason = f"with the CUDA packages of {checkout}; the result is not for publishing"
    return BuildAction.REMOTE if unable else BuildAction.BUILD, reason


def _notes(steps: Sequence[Step], backend: BuildBackend, work: Sequence[str]) -> Iterator[str]:
    """Yield what a user should know before builds begin. `work`: what Nix would do."""
    if ids := [step.package.id for step in steps if step.action is BuildAction.FAILED]:
        number = f"{counted(len(ids), 'package')} failed, and the recipe is the same"
        yield f"{number}: `invoke diagnose {ids[0]}` says why, --retry builds again"
    builds = [step for step in steps if step.is_build]
    yield from build_obstacles.cache_notes(builds, backend.host)
    if work:
        built = sum(path.endswith(".drv") for path in work)
        yield f"Nix builds {counted(built, 'derivation')} and fetches {len(work) - built}"
    if (not work or _magma(work)) and any(map(_compiles_libraries, builds)):
        yield "MAGMA and NCCL are compiled before PyTorch, once for each GPU architecture"
