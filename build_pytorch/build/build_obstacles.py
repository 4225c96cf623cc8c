"""What prevents builds, each with what to do: of recipes, and of the machine."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from build_pytorch.base.console import grouped, some
from build_pytorch.build.backends import Step
from build_pytorch.hardware import detect
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.tables import Build
from build_pytorch.nix import store
from build_pytorch.nix.store import NixSettings
from build_pytorch.results import artefacts
from build_pytorch.verify import verification


def of_recipes(matrix: Matrix, packages: Sequence[Package], *, force: bool) -> Iterator[str]:
    """Yield taken names of links, and recipes with errors."""
    for package in packages:
        link = artefacts.link(matrix.root, package)
        if link.exists() and not link.is_symlink():
            yield f"{link.name}: not a link; move it away, the result link needs this name"
    variants = list({package.variant.path: package.variant for package in packages}.values())
    if force or not variants:
        return
    findings = verification.verify(matrix, matrix.root, variants=variants).findings
    checks = grouped((f.path, f.check) for f in findings if f.severity == "error")
    wrong = grouped(
        (", ".join(dict.fromkeys(checks[package.path])), package.id)
        for package in packages
        if package.path in checks
    )
    for names, ids in wrong.items():
        yield (
            f"{some(ids)}: verification finds {names}; `invoke all` writes recipes again, "
            f"`invoke verify --packages {ids[0]}` shows what is wrong, --force builds anyway"
        )


# --- the machine ---

_GIB: Final = 1 << 30
_CGROUP_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")  #: version 2, version 1


@functools.cache
def _cpu() -> tuple[str, tuple[str, ...]]:
    """Return the model and the flags of this machine's CPU, empty where they are unknown."""
    cpu = detect.parse_cpuinfo(detect.file_text(Path("/proc/cpuinfo")))
    return cpu.model or "the CPU here", tuple(cpu.flags.split())


def wrong_cpu(variant: Variant) -> str:
    """Return why this machine cannot build a variant, or an empty text.

    A build runs what it has built: tools in the source tree, and the import of torch at the end.
    Empty as well for another platform, which Nix emulates here, and for a CPU of unknown flags.
    """
    model, flags = _cpu()
    is_native = variant.cpu.platform == store.this_system()
    missing = missing_cpu_flags(variant.cpu, flags) if flags and is_native else ()
    if not missing:
        return ""
    why = f"{model} lacks {missing[0]}{' and others' if len(missing) > 1 else ''}"
    fix = "--builders names others, --force builds here"
    return f"wrong CPU: a build runs what it compiles, and {why}; {fix}"


def too_small(limits: Sequence[Build], jobs: int, cores: int) -> Iterator[str]:
    """Yield memory and disks that are too small for so many builds at once."""
    for build in limits:
        needed, whole = build.memory(jobs, cores), memory()
        free = min(psutil.virtual_memory().available / _GIB, whole)
        if free < needed:
            yield (
                f"memory: {jobs} at once with {cores} compile jobs each need {needed:.0f} GiB, "
                f"{free:.0f} of {whole:.0f} are free; end other programs, use fewer --jobs "
                "or --cores, a larger machine with --builders, or --force"
            )
        temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Nix's own default
        for place in dict.fromkeys((store.folder(), temporary)):
            existing = next(path for path in (place, *place.absolute().parents) if path.exists())
            free = shutil.disk_usage(existing).free / _GIB
            if free < build.disk * jobs:
                yield (
                    f"disk: {free:.0f} GiB free in {place}, {jobs} at once need "
                    f"{build.disk * jobs:.0f}; `nix-collect-garbage`, fewer --jobs, or --force"
                )


def memory() -> float:
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


def cache_notes(steps: Sequence[Step], host: NixSettings) -> Iterator[str]:
    """Yield for each folder of the option `cache` whether builds here see it, and what to do."""
    # A value of sandbox-paths is TARGET or TARGET=SOURCE, with ? if it may be missing.
    mounted = [path.removesuffix("?").partition("=")[0] for path in host.sandbox_paths]
    for name in sorted({step.package.variant.release.build.cache for step in steps} - {""}):
        if Path(name).is_dir() and any(map(Path(name).is_relative_to, mounted)):
            yield f"cache {name}: builds see it; any build can put wrong objects into it"
        else:
            fix = f"make it, and add `extra-sandbox-paths = {name}?` to nix.conf"
            yield f"cache {name}: not seen by builds of the Nix on PATH; {fix}"
