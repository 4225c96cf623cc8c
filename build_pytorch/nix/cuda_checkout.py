"""A local checkout in place of the repository from which `-wrapper` recipes take CUDA packages.

The recipes read its path from an environment variable when Nix evaluates them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES, CUDA_PACKAGES_VARIABLE

FOLDER = ".flox/pkgs"
"""The folder of the files in the repository and in a checkout of it."""


def path_for(variant: Variant) -> str:
    """Return the checkout that a build of the variant reads now; empty for none."""
    packages = variant.packages_from
    is_read = packages is not None and not packages.is_copied
    return os.environ.get(CUDA_PACKAGES_VARIABLE, "") if is_read else ""


def missing_files(folder: Path, variant: Variant) -> list[str]:
    """Return the names of the files of packages that a folder does not have."""
    cuda = variant.cuda
    names = [cuda.package_file(package) for package in CUDA_PACKAGES] if cuda else []
    return [name for name in names if not (folder / name).is_file()]


def obstacles(variants: Sequence[Variant]) -> Iterator[str]:
    """Yield why the checkout that builds of variants would read cannot be read."""
    for variant in variants:
        path = path_for(variant)
        if path and not Path(path).is_absolute():
            yield f'{CUDA_PACKAGES_VARIABLE}: found "{path}"; allowed: an absolute path'
            return
        if path and (missing := missing_files(Path(path, FOLDER), variant)):
            what = f"{path}/{FOLDER} has no {', '.join(missing)}"
            fix = "name a checkout that has them, or unset the variable"
            yield f"{CUDA_PACKAGES_VARIABLE}: {what}; {fix}"
            return
