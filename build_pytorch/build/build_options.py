"""What a person may ask of a run of builds, and which variants that means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import select

BACKENDS: Final = ("flox", "nix")


class NothingToBuildError(BuildPytorchError):
    """All that was asked for is skipped: no machine, or not this one."""


class BuildOptions(Struct, frozen=True, kw_only=True):
    """What a person may ask. Zero and empty mean: decided by the machine."""

    patterns: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    isa: tuple[str, ...] = ()
    all: bool = False
    root: Path = paths.PROJECT
    backend: str = ""
    jobs: int = 1
    cores: int = 0
    builders: str = ""
    copy_to: str = ""
    secret_key: Path | None = None
    dry_run: bool = False
    fail_fast: bool = False
    fix_hashes: bool = False
    force: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        """Raise BuildPytorchError for what cannot be meant."""
        if self.jobs < 1 or self.cores < 0:
            raise BuildPytorchError("--jobs takes a number from 1, --cores one from 0 (decide)")
        if self.backend and self.backend not in BACKENDS:
            hint = near_miss(self.backend, BACKENDS) or f"; there are {' and '.join(BACKENDS)}"
            raise BuildPytorchError(f'--backend: no backend "{self.backend}"{hint}')
        if self.builders and self.backend == "flox":
            raise BuildPytorchError("--builders hands work to Nix; leave --backend flox out")
        if self.secret_key and not self.copy_to:
            raise BuildPytorchError("--secret-key signs what --copy-to pushes; name the cache, too")
        if self.fix_hashes and self.root.resolve() != paths.PROJECT:
            raise BuildPytorchError("--fix-hashes edits this matrix.toml; leave --root out")


def chosen(matrix: Matrix, options: BuildOptions) -> tuple[Variant, ...]:
    """The variants that are asked for, in matrix order.

    Raises BuildPytorchError where nothing is asked for (forty-four builds are days), and for a
    name that matches nothing.
    """
    if not (options.patterns or options.gpu or options.isa or options.all):
        raise BuildPytorchError(
            f"name what to build, such as {matrix.variants[0].id} or --gpu sm90; "
            f"--all builds all {len(matrix.variants)}"
        )
    _known("--gpu", options.gpu, [*matrix.gpus, "cpu"])
    _known("--isa", options.isa, list(matrix.cpus))
    found = tuple(
        variant
        for variant in select(matrix, options.patterns)
        if (not options.gpu or (variant.gpu_key or "cpu") in options.gpu)
        and (not options.isa or variant.cpu_key in options.isa)
    )
    if not found:
        asked = [*options.patterns, *options.gpu, *options.isa]
        raise BuildPytorchError(
            f"no variant is all of {', '.join(asked)}; docs/variants.md has all"
        )
    return found


def _known(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            hint = near_miss(name, known) or f"; there are {', '.join(known)}"
            raise BuildPytorchError(f'{option}: "{name}" is not in matrix.toml{hint}')
