"""The lines of matrix.toml that a variant needs and a matrix lacks. Pure."""

from __future__ import annotations

import functools
from typing import Any

from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.model import Matrix, Variant


def lines_for(matrix: Matrix, variant: Variant) -> str:
    """Return the group to append to a matrix, so that it has a variant of one of its releases.

    A release that inherits its groups gets it from the release whose groups it has.
    """
    name = variant.release_name
    if name not in _with_groups(matrix) and name in matrix.releases:
        name = matrix.releases[name].like or name
    values = {"title": f"For {variant.short_id}", "kind": variant.kind}
    group: dict[str, Any] = {**values, "platform": variant.platform}
    group |= {"gpu": [variant.gpu_key]} if variant.gpu_key else {}
    group["cpu"] = [variant.cpu_key]
    return matrix_editor.block(("release", name, "group", 0), group)


@functools.cache
def _with_groups(matrix: Matrix) -> set[str]:
    """Return the releases that have groups of their own."""
    releases = matrix_reader.tables(matrix.text)["release"]
    return {name for name, values in releases.items() if "group" in values}
