"""What this machine has for builds: CPU, memory, disks, and the folder of a compiler cache."""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from build_pytorch.base import files
from build_pytorch.base.console import some
from build_pytorch.build.build_backend import BuildBackend, Step
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import Build
from build_pytorch.nix import store
from build_pytorch.nix.store import NixSettings
from build_pytorch.smoke import script

_GIB: Final = 1 << 30
_CGROUP_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")  #: version 2, version 1
_WRITABLE: Final = stat.S_ISGID | stat.S_IRWXG
"""What the group of the builders needs, so that entries stay readable for all of them."""


@functools.cache
def _cpu() -> tuple[str, tuple[str, ...]]:
    """Return the model and the flags of this machine's CPU, empty where they are unknown."""
    facts = script.cpu_facts()
    return facts["model"] or "the CPU here", tuple(facts["flags"])


def wrong_cpu(variant: Variant, matrix: Matrix) -> str:
    """Return why this machine cannot build a variant, and which builders can, or an empty text.

    A build runs what it has built: tools in the source tree, and the import of torch at the end.
    Empty as well for another platform, which Nix emulates here, and for a CPU of unknown flags.
    """
    model, flags = _cpu()
    is_native = variant.cpu.platform == f"{platform.machine()}-{platform.system().lower()}"
    missing = missing_cpu_flags(variant.cpu, flags) if flags and is_native else ()
    if not missing:
        return ""
    feature = variant.cpu.builder_feature
    able = [
        builder.uri
        for builder in matrix.builders
        if variant.cpu.platform in builder.platforms and feature in {None, *builder.features}
    ]
    who = f"--builders matrix: {some(able)}" if able else f"no [[builder]] states {feature}"
    return (
        f"wrong CPU: a build runs what it compiles, and {model} lacks {', '.join(missing)}; "
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
        for place in dict.fromkeys((store.folder(), temporary_folder())):
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


def temporary_folder() -> Path:
    """Return the folder in which Nix builds and writes temporary files."""
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Nix's own default


def _needs(steps: Sequence[Step]) -> list[Build]:
    """Return what builds need, once for each release that differs."""
    return list(dict.fromkeys(step.variant.release.build for step in steps))


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


def compiler_caches(steps: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield for each folder of the option `cache` whether builds use it, and what to change."""
    for folder in sorted({step.variant.release.build.cache for step in steps} - {""}):
        if backend.is_remote:
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
