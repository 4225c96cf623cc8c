"""What prevents builds, each with what to do, and what this machine has for them."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import psutil

from build_pytorch.base import files
from build_pytorch.base.file_plan import Tree, plan_text
from build_pytorch.build.backends.base_backend import BuildBackend, BuildSettings, Step
from build_pytorch.generate import rendering
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_SOURCE, CUDA_PACKAGES_VARIABLE
from build_pytorch.matrix.tables import Build
from build_pytorch.nix import cuda_checkout, store
from build_pytorch.results import artefacts
from build_pytorch.results.package_state import PackageState
from build_pytorch.verify import verification

_GIB: Final = 1 << 30
_CGROUP_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")  #: version 2, version 1


def before_evaluation(
    matrix: Matrix, packages: Sequence[Package], settings: BuildSettings
) -> Iterator[str]:
    """Yield a missing TMPDIR, taken names of links, sources without hash, recipes with errors."""
    root = settings.root
    if packages and not (folder := _temporary()).is_dir():
        yield f"TMPDIR: {folder} is no folder; create it, or unset TMPDIR"
    for package in packages:
        link = artefacts.link(root, package)
        if link.exists() and not link.is_symlink():
            yield f"{link.name}: not a link; move it away, the result link needs this name"
    yield from cuda_checkout.obstacles([package.variant for package in packages])
    if settings.force or not packages:
        return
    untaken = [source for package in packages for source in missing_hashes(package, settings)]
    for name, place in dict.fromkeys(untaken):
        fix = f"`invoke prefetch --only {name}` takes it"
        yield f"matrix.toml: {place} has no hash yet; {fix}"
    yield from _wrong_recipes(matrix, root, packages)


def _wrong_recipes(matrix: Matrix, root: Path, packages: Sequence[Package]) -> Iterator[str]:
    variants = {package.variant.path: package.variant for package in packages}
    found = verification.verify(matrix, root, variants=list(variants.values())).findings
    wrong: dict[str, list[str]] = {}
    stale = []
    for package in packages:
        ids = [f.check for f in found if f.severity == "error" and f.path == package.path]
        if ids and _is_stale(matrix, root, package):
            stale.append(package.id)
        elif ids:
            wrong[package.id] = ids
    if stale:
        yield f"{some(stale)}: the recipe is missing or out of date; run `invoke all`"
    for name, ids in wrong.items():
        yield (
            f"{name}: verification finds {', '.join(dict.fromkeys(ids))}; "
            f"`invoke verify {name.partition('+')[0]}` shows where, --force builds it anyway"
        )


def missing_hashes(package: Package, settings: BuildSettings) -> Iterator[tuple[str, str]]:
    """Yield the names and places of the sources without a hash for which no build begins.

    Nix takes a local checkout without one. With --fix-hashes the failed build tells those of
    sources that Nix fetches while it builds; it fetches CUDA packages before that.
    """
    is_local = bool(cuda_checkout.path_for(package.variant))
    for name, place in package.untaken_hashes:
        is_early = name == CUDA_PACKAGES_SOURCE
        if not (is_local if is_early else settings.fix_hashes):
            yield name, place


def local_packages(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the local checkout that CUDA packages of builds come from."""
    for path in dict.fromkeys(step.local_packages for step in steps if step.local_packages):
        ids = some([step.variant.id for step in steps if step.local_packages == path])
        variable = f"{CUDA_PACKAGES_VARIABLE}={path}"
        yield f"{ids}: CUDA packages of {variable}; the result is not for publishing"


def _is_stale(matrix: Matrix, root: Path, package: Package) -> bool:
    """Return whether `invoke all` would write the recipe, which nobody edited."""
    text = rendering.texts(matrix)[package.path]
    return plan_text(Tree(root), package.path, text).action.writes


def stopped_results(
    steps: Sequence[Step], results: Mapping[str, PackageState], there: set[str]
) -> Iterator[str]:
    """Yield results in the store whose build was stopped by a log rule."""
    for step in steps:
        cause = results[step.id].stopped_by
        output = step.derivation.output if step.derivation else ""
        if cause and output in there:
            yield (
                f"{step.id}: its build was stopped ({cause}), but the store has the "
                f"result: {store.delete_command(output)}"
            )


def not_evaluated(failures: Mapping[str, str]) -> Iterator[str]:
    """Yield why recipes do not evaluate; those with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, why in failures.items():
        names.setdefault(why, []).append(name)
    for why, same in names.items():
        yield f"{some(same)}: {why}"


def missing_features(steps: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield system features that recipes need and no machine has."""
    if (here := backend.host.features) is None:
        return
    missing: dict[str, list[str]] = {}
    for step in steps:
        drv = step.derivation
        if drv and not backend.builder(step.variant, drv):
            for feature in drv.features:
                missing.setdefault(feature, []).append(step.id)
    for feature, ids in missing.items():
        if feature not in here:
            yield (
                f"{some(ids)}: needs the system feature {feature}; add it to system-features in "
                "nix.conf, or a builder that has it with --builders"
            )


@functools.cache
def _cpu() -> tuple[str, tuple[str, ...]]:
    """Return the model and the flags of this machine's CPU, empty where they are unknown."""
    from build_pytorch.smoke import script  # 20 ms, and a plan without builds needs none of it

    facts = script.cpu_facts()
    return facts["model"] or "the CPU here", tuple(facts["flags"])


def missing_flags(variant: Variant) -> tuple[str, ...]:
    """Return the flags of a variant's ISA that the CPU of this machine lacks.

    None for another platform, which Nix emulates here, and where the CPU's flags are unknown.
    """
    flags = _cpu()[1]
    is_native = variant.cpu.platform == f"{platform.machine()}-{platform.system().lower()}"
    return missing_cpu_flags(variant.cpu, flags) if flags and is_native else ()


def wrong_cpu(variant: Variant, matrix: Matrix) -> str:
    """Return why this machine cannot build a variant, and which builders can, or an empty text.

    A build runs what it has built: tools in the source tree, and the import of torch at the end.
    """
    if not (missing := missing_flags(variant)):
        return ""
    feature = variant.cpu.builder_feature
    able = [
        builder.uri
        for builder in matrix.builders
        if variant.cpu.platform in builder.platforms and feature in {None, *builder.features}
    ]
    who = f"--builders matrix: {some(able)}" if able else f"no [[builder]] states {feature}"
    return (
        f"wrong CPU: a build runs what it compiles, and {_cpu()[0]} lacks {', '.join(missing)}; "
        f"{who}; --force builds here"
    )


def too_small(steps: Sequence[Step], jobs: int, cores: int) -> Iterator[str]:
    """Yield memory and disks that are too small for so many builds at once."""
    jobs, cores = min(jobs, len(steps)), max(1, cores)
    for build in _needs(steps):
        needed = build.memory(jobs, cores)
        free = min(psutil.virtual_memory().available / _GIB, _memory())
        if free < needed:
            yield (
                f"memory: {jobs} at once with {cores} compile jobs each need {needed:.0f} GiB, "
                f"{free:.0f} of {_memory():.0f} are free; end other programs, use fewer --jobs "
                "or --cores, a larger machine with --builders, or --force"
            )
        for place in dict.fromkeys((store.folder(), _temporary())):
            existing = next(path for path in (place, *place.absolute().parents) if path.exists())
            free = shutil.disk_usage(existing).free / _GIB
            if free < build.disk * jobs:
                yield (
                    f"disk: {place} has {free:.0f} GiB free, {jobs} at once need "
                    f"{build.disk * jobs:.0f}; `nix-collect-garbage`, fewer --jobs, or --force"
                )


def few_cores(steps: Sequence[Step], jobs: int) -> Iterator[str]:
    """Yield a warning where memory allows fewer compile jobs than there are CPUs."""
    jobs = max(1, min(jobs, len(steps)))
    share = _cpus() // jobs
    for build in _needs(steps):
        cores = build.cores(_memory() / jobs, share)
        if cores < min(share, build.max_jobs):
            yield (
                f"memory: {_memory():.0f} GiB allow {cores} compile jobs of {share}; "
                f"one needs up to {build.job_memory:g} GiB"
            )


def most_cores(steps: Sequence[Step], jobs: int) -> int:
    """Return the compile jobs of each build that memory and CPUs allow for so many at once."""
    return min(build.cores(_memory() / jobs, _cpus() // jobs) for build in _needs(steps))


def only_run(root: Path) -> AbstractContextManager[None]:
    """Hold the lock of the one run that builds or publishes in a checkout. Raises WriteError.

    Two builds would use memory that each counts on, two publications publish a result twice.
    """
    return files.exclusive_lock(root, "builds.lock", "builds or publishes")


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others."""
    rest = len(names) - most
    return " ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _needs(steps: Sequence[Step]) -> list[Build]:
    """Return what builds need, once for each release that differs."""
    return list(dict.fromkeys(step.variant.release.build for step in steps))


def _temporary() -> Path:
    """Return the folder in which Nix builds and writes temporary files."""
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Nix's own default


def _memory() -> float:
    """Return GiB of memory that builds may use: of the machine, or of the container if less."""
    total: int = psutil.virtual_memory().total
    for limit in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such limit, or "max"
            total = min(total, int(Path("/sys/fs/cgroup", limit).read_text()))
    return total / _GIB


def _cpus() -> int:
    """Return the number of CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1
