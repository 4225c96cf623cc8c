"""What a run would build, where, and what stands in the way; made before the first build."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch import proc
from build_pytorch.builds import builders, derivations, machine, results
from build_pytorch.builds.derivations import Derivation
from build_pytorch.builds.options import Options
from build_pytorch.builds.order import ordered
from build_pytorch.builds.results import Result
from build_pytorch.errors import ToolError
from build_pytorch.model import Build, Matrix, Variant

_FIRST: Final = 3
"""So many names stand for many in one line."""


class Step(Struct, frozen=True, kw_only=True):
    """What becomes of one variant, and why."""

    variant: Variant
    action: Literal["build", "up to date", "skipped"]
    reason: str
    digest: str
    derivation: Derivation | None = None
    where: str = ""
    """The builder's address; empty for this machine."""

    @property
    def path(self) -> str:
        """What a printed plan names."""
        return self.variant.id

    @property
    def group(self) -> str:
        """What a printed plan shows together."""
        return ""


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


def make(matrix: Matrix, variants: Sequence[Variant], options: Options) -> Plan:
    """Plan builds. Nothing is changed, except that a list of builders may be written down.

    Raises BuildPytorchError where the machine cannot be asked.
    """
    root = options.root
    remote = None
    if options.builders:
        remote = builders.read(options.builders, matrix, root, write=not options.dry_run)
    backend = _backend(options, remote)
    known = results.look(root, variants)
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
    obstacles = [] if options.force else list(_unverified(matrix, root, open_ones))
    evaluated = derivations.Evaluated({}, {})
    if open_ones and not obstacles and proc.which("nix-instantiate"):
        evaluated = derivations.evaluate(root, open_ones, write=remote is not None)
        obstacles += [f"{package}: {why}" for package, why in evaluated.failures.items()]
    settings = derivations.settings()
    outputs = {d.output for d in evaluated.derivations.values()}
    there = derivations.valid(sorted(outputs))
    for variant in open_ones:
        found = evaluated.derivations.get(variant.package)
        steps[variant.package] = _step(known[variant.package], found, there, settings, remote)
    ready = [steps[v.package] for v in ordered(variants)]
    cores = 0
    warnings: list[str] = []
    building = [step for step in ready if step.action == "build"]
    if building and not obstacles:
        cores = options.cores or _cores(building, options.jobs)
        if backend == "flox":
            obstacles += _untracked(root, building)
        obstacles += _lacking(building, settings, remote)
        if remote is None and not options.force:
            obstacles += _too_small(building, options.jobs, options.cores)
            warnings += _tight(building, options.jobs, cores)
    return Plan(
        steps=tuple(ready),
        obstacles=tuple(obstacles),
        warnings=tuple(warnings),
        backend=backend,
        jobs=options.jobs,
        cores=cores,
        builders=remote,
    )


def _backend(options: Options, remote: builders.Builders | None) -> str:
    """Flox where it is on PATH, else Nix. Raises ToolError where what is needed is missing."""
    programs = {"flox": "flox", "nix": "nix-build"}
    wanted = "nix" if remote else options.backend
    for backend in [wanted] if wanted else programs:
        if proc.which(programs[backend]):
            return backend
    if wanted:
        raise ToolError(f"{programs[wanted]}: not found; install it or choose another --backend")
    raise ToolError("neither flox nor nix-build is installed; see https://flox.dev or nixos.org")


def _skip(result: Result, reason: str) -> Step:
    return Step(variant=result.variant, action="skipped", reason=reason, digest=result.digest)


def _step(
    result: Result,
    found: Derivation | None,
    there: set[str],
    settings: derivations.Settings,
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
        taker = (
            next((m for m in remote.machines if m.takes(system, features)), None)
            if remote
            else None
        )
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


def _unverified(matrix: Matrix, root: Path, variants: Sequence[Variant]) -> Iterator[str]:
    """Why recipes do not deserve hours: one line for each that verification finds wrong."""
    if not variants:
        return
    from build_pytorch import checks

    result = checks.verify(matrix, root, variants=variants)
    bad: dict[str, list[str]] = {}
    for finding in result.findings:
        if finding.problem.severity == "error":
            bad.setdefault(finding.problem.path, []).append(finding.check.id)
    for variant in variants:
        if ids := bad.get(variant.path):
            names = ", ".join(dict.fromkeys(ids))
            yield (
                f"{variant.id}: verification finds {names}; `nox -s verify -- {variant.id}` shows "
                "where, --force builds it all the same"
            )


def _untracked(root: Path, steps: Sequence[Step]) -> Iterator[str]:
    """Flox sees only what Git tracks."""
    listed = proc.capture(
        ["git", "-C", str(root), "ls-files", "--", *(step.variant.path for step in steps)],
        check=False,
    )
    if listed.code:
        yield f"{root}: not a Git checkout, and Flox builds only what Git tracks; use --backend nix"
        return
    tracked = set(listed.stdout.splitlines())
    missing = [step.variant.path for step in steps if step.variant.path not in tracked]
    if missing:
        yield f"Flox sees only files that Git tracks: git add {_some(missing)}"


def _lacking(
    steps: Sequence[Step],
    settings: derivations.Settings,
    remote: builders.Builders | None,
) -> Iterator[str]:
    """Features that recipes ask for and no machine has."""
    lacking: dict[str, list[str]] = {}
    for step in steps:
        needs = step.derivation.features if step.derivation else ()
        system = step.derivation.system if step.derivation else ""
        if remote and any(machine.takes(system, needs) for machine in remote.machines):
            continue
        for feature in needs:
            if settings.features is not None and feature not in settings.features:
                lacking.setdefault(feature, []).append(step.variant.id)
    for feature, ids in lacking.items():
        yield (
            f"{_some(ids)}: the system feature {feature} is needed and not there; add it "
            "to system-features in nix.conf, or a builder that has it with --builders"
        )


def _too_small(steps: Sequence[Step], jobs: int, cores: int) -> Iterator[str]:
    """Why this machine cannot take so many builds at once."""
    for build in _needs(steps):
        jobs = min(jobs, len(steps))
        memory = machine.memory()
        needed = (build.reserved_memory + build.job_memory * max(1, cores)) * jobs
        if memory < needed:
            yield (
                f"memory: {jobs} at once with {max(1, cores)} compile jobs each need "
                f"{needed:.0f} GiB, this machine has {memory:.0f}; fewer --jobs or --cores, "
                "a larger machine with --builders, or --force"
            )
        for place in dict.fromkeys((_store(), Path(os.environ.get("TMPDIR", "/tmp")))):  # noqa: S108 - where Nix builds
            free = machine.free_disk(place)
            if free < build.disk * jobs:
                yield (
                    f"disk: {place} has {free:.0f} GiB free, {jobs} at once need "
                    f"{build.disk * jobs:.0f}; `nix-collect-garbage`, fewer --jobs, or --force"
                )


def _tight(steps: Sequence[Step], jobs: int, cores: int) -> Iterator[str]:
    """What is allowed and takes longer than this machine's CPUs would need."""
    share = machine.cpus() // min(jobs, len(steps))
    for build in _needs(steps):
        if cores < min(share, build.max_jobs):
            yield (
                f"memory: {machine.memory():.0f} GiB allow {cores} compile jobs of {share}; "
                f"one takes up to {build.job_memory:g} GiB"
            )


def _needs(steps: Sequence[Step]) -> list[Build]:
    """The different needs of what is built: one for each release."""
    found: list[Build] = []
    for step in steps:
        if step.variant.release.build not in found:
            found.append(step.variant.release.build)
    return found


def _cores(steps: Sequence[Step], jobs: int) -> int:
    """Compile jobs for each of so many builds at once."""
    jobs = min(jobs, len(steps))
    share = machine.cpus() // jobs
    return min(build.cores(machine.memory() / jobs, share) for build in _needs(steps))


def _store() -> Path:
    return Path(os.environ.get("NIX_STORE_DIR", "/nix/store"))


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _FIRST
    return " ".join(names[:_FIRST]) + (f" and {rest} more" if rest > 0 else "")
