"""What a run would build, where, and what stands in the way; made before the first build."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.build import builders, obstacles, resources
from build_pytorch.build.build_options import BuildOptions
from build_pytorch.build.schedule import ordered
from build_pytorch.build.step import Step
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix import derivations, store
from build_pytorch.nix.derivations import Derivation
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult


class Plan(Struct, frozen=True, kw_only=True):
    """What a run would do. With obstacles it does nothing."""

    steps: tuple[Step, ...]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    backend: str
    jobs: int
    cores: int
    builders: builders.Builders | None

    @property
    def hours(self) -> float:
        """About how long all builds take on this machine, by the core-hours of the matrix."""
        at_once = min(self.jobs, len(self.builds)) * self.cores
        total = sum(step.variant.release.build.core_hours for step in self.builds)
        return total / at_once if at_once else 0.0

    @property
    def builds(self) -> list[Step]:
        """What is to be built, in order."""
        return [step for step in self.steps if step.action == "build"]


def make(matrix: Matrix, variants: Sequence[Variant], options: BuildOptions) -> Plan:
    """Plan builds. Nothing is changed, except that a list of builders may be written down.

    Raises BuildPytorchError where the machine cannot be asked.
    """
    root = options.root
    settings = store.settings()
    remote = None
    if options.builders:
        host = settings.systems[0]
        remote = builders.read(options.builders, matrix, root, host, write=not options.dry_run)
    backend = _backend(options, remote)
    known = evidence.look(root, variants)
    steps = {}
    open_ones = []
    for variant in ordered(variants):
        result = known[variant.package]
        if variant.impossible and not options.force:
            steps[variant.package] = _skip(result, f"impossible-host: {variant.impossible}")
        elif result.output:
            steps[variant.package] = Step(
                variant=variant,
                action="up to date",
                reason="the store has the current recipe's result",
                digest=result.digest,
            )
        else:
            open_ones.append(variant)
    blocked = list(obstacles.occupied(root, open_ones))
    if not options.force:
        blocked += obstacles.unverified(matrix, root, open_ones)
    evaluated = derivations.DerivationSet({}, {})
    if open_ones and not blocked and process.which(store.NIX_INSTANTIATE):
        writes = remote is not None and not options.dry_run
        evaluated = derivations.evaluate(root, open_ones, write=writes)
        blocked += [f"{package}: {why}" for package, why in evaluated.failures.items()]
    outputs = {d.output for d in evaluated.derivations.values()}
    there = store.valid_paths(sorted(outputs))
    for variant in open_ones:
        found = evaluated.derivations.get(variant.package)
        steps[variant.package] = _step(known[variant.package], found, there, settings, remote)
    ready = [steps[v.package] for v in ordered(variants)]
    building = [step for step in ready if step.action == "build"]
    local = [step for step in building if not step.where]
    cores = options.cores or _cores(building, options.jobs) if building else 0
    if building and not blocked:
        blocked += obstacles.lacking(building, settings, remote)
        blocked += obstacles.untracked(root, building) if backend == "flox" else ()
        blocked += () if options.force else obstacles.condemned(building, known, there)
        blocked += () if options.force else obstacles.too_small(local, options.jobs, options.cores)
    return Plan(
        steps=tuple(ready),
        obstacles=tuple(blocked),
        warnings=tuple(obstacles.tight(local, options.jobs, cores)),
        backend=backend,
        jobs=min(options.jobs, max(1, len(building))),
        cores=cores,
        builders=remote,
    )


def _backend(options: BuildOptions, remote: builders.Builders | None) -> str:
    """Flox where it is on PATH, else Nix. Raises ToolError where what is needed is missing."""
    programs = {"flox": "flox", "nix": store.NIX_BUILD}
    wanted = "nix" if remote else options.backend
    for backend in [wanted] if wanted else programs:
        if process.which(programs[backend]):
            return backend
    if wanted:
        raise ToolError(f"{programs[wanted]}: not found; install it or choose another --backend")
    raise ToolError("neither flox nor nix-build is installed; see https://flox.dev or nixos.org")


def _skip(result: VariantResult, reason: str) -> Step:
    return Step(variant=result.variant, action="skipped", reason=reason, digest=result.digest)


def _step(
    result: VariantResult,
    found: Derivation | None,
    there: set[str],
    settings: store.NixSettings,
    remote: builders.Builders | None,
) -> Step:
    """What becomes of a variant that is not known to be built."""
    variant = result.variant
    system = found.system if found else variant.cpu.platform
    where = ""
    reason = "the result is of another recipe" if result.stale else "not built yet"
    if found and found.output in there:
        reason = "in the store already, only the link is missing"
    elif system not in settings.systems:
        features = found.features if found else ()
        taker = remote.find(system, features) if remote else None
        if taker is None:
            why = (
                "no builder of --builders takes it"
                if remote
                else "--builders names machines that can"
            )
            return _skip(result, f"wrong platform: this machine builds no {system}; {why}")
        where = taker.uri
    return Step(
        variant=variant,
        action="build",
        reason=reason,
        digest=result.digest,
        derivation=found,
        where=where,
    )


def _cores(steps: Sequence[Step], jobs: int) -> int:
    """Compile jobs for each of so many builds at once."""
    jobs = min(jobs, len(steps))
    share = resources.cpus() // jobs
    return min(build.cores(resources.memory() / jobs, share) for build in obstacles.needs(steps))
