"""A release beside the one that moves, in the text of matrix.toml. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.matrix_lines import missing_rules
from build_pytorch.matrix.tables import Group
from build_pytorch.sources.release_move import ReleaseMove


def with_release(move: ReleaseMove) -> str:
    """Return the matrix with a release that has the moved values, and the rules that it needs.

    It has the groups of the other release, without what its CUDA does not compile for. Raises
    BuildPytorchError for a name in use.
    """
    matrix, name = move.matrix, move.beside
    if name in matrix.releases:
        raise BuildPytorchError(f'release "{name}" exists already; choose another name')
    table, groups = move.table(), _groups(move)
    place = ("release", list(matrix.releases)[-1])
    text = matrix_editor.with_table(move.with_pins(matrix.text), ("release", name), table, place)
    if groups != matrix.releases[table["like"]].group:
        for group in groups:
            header = ("release", name, "group", 0)
            text = matrix_editor.with_table(text, header, _table(group), header[:3])
    new = matrix_reader.parse(text, root=matrix.root)
    for rule in missing_rules(matrix, new.of_release(name)):
        text = matrix_editor.with_table(text, ("rule", 0), rule, ("rule", len(matrix.rules) - 1))
    return text


def _groups(move: ReleaseMove) -> tuple[Group, ...]:
    """Return the groups of a release; all of them if its new CUDA compiles for all its GPUs."""
    old, cuda, gpus = move.old, move.old.cuda, move.matrix.gpus
    cuda = cuda and structs.replace(cuda, version=move.wanted.cuda or cuda.version)
    kept = []
    for group in old.group:
        keys = tuple(
            key
            for key in group.gpu
            if compiles(cuda, gpus[key]) and group.platform in gpus[key].hosts
        )
        if keys or group.kind != "gpu":
            kept.append(structs.replace(group, gpu=keys, folder=None))
    is_same = [group.gpu for group in kept] == [group.gpu for group in old.group]
    return old.group if is_same else tuple(kept)


def _table(group: Group) -> dict[str, Any]:
    """Return a group as a table, without what is empty; its title comes first."""
    table: dict[str, Any] = msgspec.to_builtins(group)
    order = dict.fromkeys(("title", "kind", "platform", "gpu", "cpu", *table))
    return {key: table[key] for key in order if table[key] not in (None, False, (), [])}
