"""The nox sessions `build(VARIANT)`: one variant each, with options of `invoke build`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from build_pytorch.base.errors import EXIT_INTERRUPTED, BuildPytorchError
from build_pytorch.build.backends import backend_registry
from build_pytorch.cli import build
from build_pytorch.matrix import matrix_reader


class VariantSkipped(Exception):  # noqa: N818 - nox's word for it
    """The variant cannot be built here; the text is the reason."""


def run(package: str, arguments: Sequence[str], selected: int) -> int:
    """Build one variant. `selected` is the number of such sessions in this run of nox.

    Raises VariantSkipped for a variant that cannot be built here, and BuildPytorchError where all
    variants are selected without --all, as by an accidental `nox -s build`.
    """
    parser = argparse.ArgumentParser(prog='nox -s "build(VARIANT)" --')
    parser.add_argument("--backend", default="", choices=backend_registry.NAMES)
    parser.add_argument("--cores", type=int, default=0, metavar="N", help="compile jobs")
    parser.add_argument("--builders", default="", metavar="FILE", help="remote builders")
    parser.add_argument("--copy-to", "--store", default="", metavar="URL", help="binary cache")
    parser.add_argument("--secret-key", type=Path, metavar="FILE", help="sign what is pushed")
    parser.add_argument("--dry-run", action="store_true", help="show the plan")
    parser.add_argument("--fix-hashes", action="store_true", help="take hashes from the log")
    parser.add_argument("--force", action="store_true", help="build against obstacles")
    parser.add_argument("--all", action="store_true", help="really all variants")
    given = parser.parse_args(arguments)
    if _is_accident(arguments, selected):
        raise BuildPytorchError(
            f'`nox -s build` would build all {selected}; name one as in -s "build(sm120-avx512)", '
            "choose by tag as in -t sm120, or add -- --all"
        )
    options = build.BuildOptions(
        patterns=(package,),
        backend=given.backend,
        cores=given.cores,
        builders=given.builders,
        copy_to=given.copy_to,
        secret_key=given.secret_key,
        dry_run=given.dry_run,
        fix_hashes=given.fix_hashes,
        force=given.force,
    )
    try:
        return build.run(options)
    except build.NothingToBuildError as reason:
        raise VariantSkipped(str(reason)) from None


def ends_all(code: int, arguments: Sequence[str], selected: int) -> bool:
    """Whether a failed session ends the run of nox; if not, the next variant is built."""
    return selected == 1 or code >= EXIT_INTERRUPTED or _is_accident(arguments, selected)


def _is_accident(arguments: Sequence[str], selected: int) -> bool:
    return selected >= len(matrix_reader.load().variants) > 1 and "--all" not in arguments
