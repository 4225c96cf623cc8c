"""The lines of matrix.toml that a variant needs and a matrix lacks. Pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from build_pytorch.matrix import known_hardware, matrix_editor, matrix_reader, rules
from build_pytorch.matrix.model import Matrix, Variant


def lines_for(matrix: Matrix, variant: Variant) -> str:
    """Return the tables to append to a matrix, so that it has a variant of one of its releases.

    A release that inherits its groups gets it from the release whose groups it has.
    """
    name = variant.release_name
    if name not in _with_groups(matrix) and name in matrix.releases:
        name = matrix.releases[name].like or name
    values = {"title": f"For {variant.short_id}", "kind": variant.kind}
    group: dict[str, Any] = {**values, "platform": variant.platform}
    group |= {"gpu": [variant.gpu_key]} if variant.gpu_key else {}
    group["cpu"] = [variant.cpu_key]
    blocks = [matrix_editor.block(("release", name, "group", 0), group)]
    known = known_hardware.load()
    if variant.gpu_key and variant.gpu_key not in matrix.gpus:
        table = known.table("gpu", variant.gpu_key)
        blocks.append(matrix_editor.block(("gpu", variant.gpu_key), table))
    if variant.cpu_key not in matrix.cpus:
        table = known.table("cpu", variant.cpu_key)
        blocks.append(matrix_editor.block(("cpu", variant.cpu_key), table))
    missing = missing_rules(matrix, [variant])
    return "\n".join([*blocks, *(matrix_editor.block(("rule", 0), rule) for rule in missing)])


@functools.cache
def _with_groups(matrix: Matrix) -> set[str]:
    """Return the releases that have groups of their own."""
    releases = matrix_reader.tables(matrix.text)["release"]
    return {name for name, values in releases.items() if "group" in values}


def missing_rules(matrix: Matrix, variants: Iterable[Variant]) -> Iterator[dict[str, Any]]:
    """Yield the tables of the known rules that hold for variants and that a matrix lacks.

    Their conditions name only hardware that the matrix or the variants have.
    """
    new, known = list(variants), known_hardware.load()
    have = {rule.id for rule in matrix.rules}
    hardware: dict[str, Collection[str | None]] = {
        "gpu": {*matrix.gpus, *(variant.gpu_key for variant in new)},
        "cpu": {*matrix.cpus, *(variant.cpu_key for variant in new)},
    }
    for rule, raw in zip(known.rule, known.raw["rule"], strict=True):
        is_possible = {*rule.effect.patches} <= matrix.patches.keys() and rule.id not in have
        if is_possible and any(
            rules.holds(rule.when, variant) and not rules.is_ended(rule, variant) for variant in new
        ):
            yield {
                key: {
                    name: [each for each in value if each in hardware[name]]
                    if name in hardware
                    else value
                    for name, value in part.items()
                }
                if key in {"when", "until"}
                else part
                for key, part in raw.items()
            }
