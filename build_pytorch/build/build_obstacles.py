"""What prevents or slows builds, each with what to do: of recipes, and of the machine."""

from __future__ import annotations

import contextlib
import functools
import glob
import grp
import os
import platform
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from build_pytorch.base import files
from build_pytorch.base.console import counted, grouped, some
from build_pytorch.base.file_plan import Tree, plan_text
from build_pytorch.build.build_backend import BuildBackend, BuildSettings, Step
from build_pytorch.generate import recipes
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_SOURCE, CUDA_PACKAGES_VARIABLE
from build_pytorch.matrix.tables import Build
from build_pytorch.nix import derivations, store
from build_pytorch.nix.store import NixSettings
from build_pytorch.results import artefacts
from build_pytorch.results.package_state import PackageState
from build_pytorch.smoke import script
from build_pytorch.verify import verification


def before_evaluation(
    matrix: Matrix, packages: Sequence[Package], settings: BuildSettings
) -> Iterator[str]:
    """Yield a missing TMPDIR, taken names of links, sources without hash, recipes with errors."""
    root = settings.root
    if packages and not (folder := temporary_folder()).is_dir():
        yield f"TMPDIR: {folder} is no folder; create it, or unset TMPDIR"
    for package in packages:
        link = artefacts.link(root, package)
        if link.exists() and not link.is_symlink():
            yield f"{link.name}: not a link; move it away, the result link needs this name"
    yield from derivations.unreadable_checkouts([package.variant for package in packages])
    if settings.force or not packages:
        return
    untaken = [source for package in packages for source in missing_hashes(package, settings)]
    for name, place in dict.fromkeys(untaken):
        yield f"matrix.toml: {place} has no hash yet; `invoke prefetch --only {name}` takes it"
    yield from _wrong_recipes(matrix, root, packages)


def _wrong_recipes(matrix: Matrix, root: Path, packages: Sequence[Package]) -> Iterator[str]:
    """Yield recipes with errors: those that `invoke all` would write, and others."""
    variants = {package.variant.path: package.variant for package in packages}
    findings = verification.verify(matrix, root, variants=list(variants.values())).findings
    errors = [finding for finding in findings if finding.severity == "error"]
    texts = recipes.render(matrix) if errors else {}
    stale, wrong = [], []
    for package in packages:
        path = package.path
        if ids := dict.fromkeys(error.check for error in errors if error.path == path):
            if plan_text(Tree(root), path, texts[path]).action.writes:  # and nobody edited it
                stale.append(package.id)
                continue
            wrong.append(
                f"{package.id}: verification finds {', '.join(ids)}; "
                f"`invoke verify --packages {package.variant.id}` shows where, "
                "--force builds it anyway"
            )
    if stale:
        yield f"{some(stale)}: the recipe is missing or out of date; run `invoke all`"
    yield from wrong


def missing_hashes(package: Package, settings: BuildSettings) -> Iterator[tuple[str, str]]:
    """Yield the names and places of the sources without a hash for which no build begins.

    Nix takes a local checkout without one. With --fix-hashes the failed build tells those of
    sources that Nix fetches while it builds; it fetches CUDA packages before that.
    """
    is_local = bool(derivations.local_checkout(package.variant))
    for name, place in package.untaken_hashes:
        is_early = name == CUDA_PACKAGES_SOURCE
        if not (is_local if is_early else settings.fix_hashes):
            yield name, place


def same_build(package: Package) -> str:
    """Return which other variant yields the same files now; empty for none."""
    twin = package.variant.same_build_as
    if twin is None or derivations.local_checkout(package.variant):
        return ""
    return f"the same build as {twin.id}, unless {CUDA_PACKAGES_VARIABLE} names other CUDA packages"


def same_builds(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the builds that make what another variant makes, under another name."""
    yield from (f"{step.id}: {text}" for step in steps if (text := same_build(step.package)))


def not_repeated(steps: Sequence[Step]) -> Iterator[str]:
    """Yield what to do about builds that failed before and would fail again."""
    if ids := [step.id for step in steps if step.action == "failed"]:
        number = f"{counted(len(ids), 'package')} failed, and the recipe is the same"
        yield f"{number}: `invoke diagnose {ids[0]}` says why, --retry builds again"


def local_packages(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the local checkout that CUDA packages of builds come from."""
    for path in dict.fromkeys(step.local_packages for step in steps if step.local_packages):
        ids = some([step.variant.id for step in steps if step.local_packages == path])
        variable = f"{CUDA_PACKAGES_VARIABLE}={path}"
        yield f"{ids}: CUDA packages of {variable}; the result is not for publishing"


def stopped_results(
    steps: Sequence[Step], results: Mapping[str, PackageState], there: set[str]
) -> Iterator[str]:
    """Yield results in the store whose build was stopped by a log rule."""
    for step in steps:
        cause = results[step.id].stopped_by
        output = step.derivation.output if step.derivation else ""
        if cause and output in there:
            how = store.delete_command(output)
            yield f"{step.id}: its build was stopped ({cause}), but the store has the result: {how}"


def not_evaluated(failures: Mapping[str, str]) -> Iterator[str]:
    """Yield why recipes do not evaluate; those with the same reason together."""
    for why, names in grouped((why, name) for name, why in failures.items()).items():
        yield f"{some(names)}: {why}"


def missing_features(steps: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield system features that recipes need and this machine lacks; a builder may have them."""
    if (here := backend.host.features) is None or backend.settings.builders:
        return
    missing = grouped(
        (feature, step.id)
        for step in steps
        if step.derivation
        for feature in set(step.derivation.features) - set(here)
    )
    for feature, ids in sorted(missing.items()):
        yield (
            f"{some(ids)}: needs the system feature {feature}; add it to system-features in "
            "nix.conf, or a builder that has it with --builders"
        )


# --- the machine ---

_GIB: Final = 1 << 30
_CGROUP_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")  #: version 2, version 1
_WRITABLE: Final = stat.S_ISGID | stat.S_IRWXG
"""What the group of the builders needs, so that entries stay readable for all of them."""


@functools.cache
def _cpu() -> tuple[str, tuple[str, ...]]:
    """Return the model and the flags of this machine's CPU, empty where they are unknown."""
    facts = script.cpu_facts()
    return facts["model"] or "the CPU here", tuple(facts["flags"])


def wrong_cpu(variant: Variant) -> str:
    """Return why this machine cannot build a variant, or an empty text.

    A build runs what it has built: tools in the source tree, and the import of torch at the end.
    Empty as well for another platform, which Nix emulates here, and for a CPU of unknown flags.
    """
    model, flags = _cpu()
    is_native = variant.cpu.platform == f"{platform.machine()}-{platform.system().lower()}"
    missing = missing_cpu_flags(variant.cpu, flags) if flags and is_native else ()
    if not missing:
        return ""
    why = f"{model} lacks {missing[0]}{' and others' if len(missing) > 1 else ''}"
    fix = "--builders names others, --force builds here"
    return f"wrong CPU: a build runs what it compiles, and {why}; {fix}"


def _free_gib(place: Path) -> int:
    existing = next(path for path in (place, *place.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free // _GIB


def too_small(limits: Sequence[Build], jobs: int, cores: int) -> Iterator[str]:
    """Yield memory and disks that are too small for so many builds at once."""
    cores = max(1, cores)
    for build in limits:
        needed = build.memory(jobs, cores)
        free = min(psutil.virtual_memory().available / _GIB, _memory())
        if free < needed:
            yield (
                f"memory: {jobs} at once with {cores} compile jobs each need {needed:.0f} GiB, "
                f"{free:.0f} of {_memory():.0f} are free; end other programs, use fewer --jobs "
                "or --cores, a larger machine with --builders, or --force"
            )
        places = dict.fromkeys((store.folder(), temporary_folder()))
        for gib, full in grouped((_free_gib(place), str(place)) for place in places).items():
            if gib < build.disk * jobs:
                yield (
                    f"disk: {gib} GiB free in {' and '.join(full)}, {jobs} at once need "
                    f"{build.disk * jobs:.0f}; `nix-collect-garbage`, fewer --jobs, or --force"
                )


def few_cores(limits: Sequence[Build], jobs: int) -> Iterator[str]:
    """Yield a warning where memory allows fewer compile jobs than there are CPUs."""
    share = usable_cpus() // jobs
    for build in limits:
        cores = build.cores(_memory() / jobs, share)
        if cores < min(share, build.max_jobs):
            yield (
                f"memory: {_memory():.0f} GiB allow {cores} compile jobs of {share}; "
                f"one needs up to {build.job_memory:.2g} GiB"
            )


def most_cores(limits: Sequence[Build], jobs: int) -> int:
    """Return the compile jobs of each build that memory and CPUs allow for so many at once."""
    return min(build.cores(_memory() / jobs, usable_cpus() // jobs) for build in limits)


def temporary_folder() -> Path:
    """Return the folder in which Nix builds and writes temporary files."""
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Nix's own default


def left_folders(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the size of the build folders of these packages: a killed Nix leaves its own."""
    found = [(step, Path(step.derivation.drv_path)) for step in steps if step.derivation]
    for step, drv in found:  # its name without the hash: of any recipe of the package
        start = f"nix-build-{drv.name.partition('-')[2]}-"
        size = 0
        for folder in temporary_folder().glob(f"{glob.escape(start)}*"):
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):  # deleted meanwhile
                    size += path.lstat().st_blocks * 512
        if size > _GIB // 20:
            what = f"{size / _GIB:.1f} GiB of builds that run or were killed"
            folders = f"{shlex.quote(str(temporary_folder() / start))}*"
            yield f"{step.id}: {what}; if none runs: rm -rf {folders}"


def _memory() -> float:
    """Return GiB of memory that builds may use: of the machine, or of the container if less."""
    total: int = psutil.virtual_memory().total
    for limit in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such limit, or "max"
            total = min(total, int(Path("/sys/fs/cgroup", limit).read_text()))
    return total / _GIB


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def compiler_caches(steps: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield for each folder of the option `cache` whether builds use it, and what to change."""
    for folder in sorted({step.variant.release.build.cache for step in steps} - {""}):
        if backend.settings.builders:
            said = ["each builder uses its own, if its nix.conf mounts the folder"]
        else:
            used = "builds use it; any build can put wrong objects into it"
            said = list(_cache_problems(Path(folder), backend.host)) or [used]
        yield from (f"cache {folder}: {text}" for text in said)


def _cache_problems(folder: Path, host: NixSettings) -> Iterator[str]:
    group = host.build_users_group or "nixbld"
    if not folder.is_dir():
        yield f"not used, no such folder; install -d -m 2770 -g {group} {folder}"
        return
    # A value of sandbox-paths is TARGET or TARGET=SOURCE, with ? if it may be missing.
    mounted = (path.removesuffix("?").partition("=")[0] for path in host.sandbox_paths)
    if host.features is None:
        yield "unknown whether it is used: nix is not on PATH to show the settings of the daemon"
    elif not host.sandbox:
        yield "not shared by variants without a sandbox, because paths differ; set sandbox = true"
    elif not any(map(folder.is_relative_to, mounted)):
        yield (
            f"not used, builds do not see it; add `extra-sandbox-paths = {folder}?` to "
            "/etc/nix/nix.conf and restart nix-daemon"
        )
    if host.build_users_group and not _is_writable(folder, group):
        yield f"not writable for builds; chgrp {group} {folder} && chmod 2770 {folder}"
    try:
        settings = files.read_named(folder / "ccache.conf", files.LARGEST_TEXT)
    except OSError:
        settings = b""
    if not re.search(rb"(?m)^\s*max_size\s*=", settings):
        yield f"ccache keeps 5 GiB; echo 'max_size = 20G' >{folder}/ccache.conf"


def _is_writable(folder: Path, group: str) -> bool:
    found = folder.stat()
    with contextlib.suppress(KeyError):
        if found.st_gid == grp.getgrnam(group).gr_gid:
            return found.st_mode & _WRITABLE == _WRITABLE
    return bool(found.st_mode & stat.S_IWOTH)
