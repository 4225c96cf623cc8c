"""The text of a matrix that is being changed, and the groups of its releases. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import known_hardware, matrix_editor, matrix_reader
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Group
from build_pytorch.sources.release_move import ReleaseMove

_PLATFORMS: Final = {"x86_64-linux": "x86", "aarch64-linux": "ARM", "aarch64-darwin": "Apple"}
_FIRST: Final = ("title", "kind", "platform", "gpu", "cpu")
"""The keys of a group, in this order; then the others."""


class DraftGroups:
    """A matrix whose releases get groups, and elements of groups, one after the other."""

    def __init__(self, matrix: Matrix) -> None:
        self.text = matrix.text
        self.todo: list[str] = []
        """What a person has to fill in or to check."""
        self._known = known_hardware.load()
        self._matrix = matrix

    @property
    def matrix(self) -> Matrix:
        """The matrix as it is now. Raises MatrixError if an addition contradicts it."""
        if self._matrix.text != self.text:
            self._matrix = matrix_reader.parse(self.text, root=self._matrix.root)
        return self._matrix

    def inherited_groups(self, move: ReleaseMove) -> tuple[Group, ...]:
        """Return the groups of a release, without what its new CUDA does not compile for.

        Nor what no machine has, and only those of wanted GPUs. Those of the release if all stay.

        Raises BuildPytorchError for a GPU that none of them has.
        """
        old, cuda, gpus = move.old, move.old.cuda, move.wanted.gpus
        cuda = cuda and structs.replace(cuda, version=move.wanted.cuda or cuda.version)
        groups = []
        for group in old.group:
            keys = [key for key in group.gpu if compiles(cuda, self.matrix.gpus[key])]
            keys = [key for key in keys if group.platform in self.matrix.gpus[key].hosts]
            keys = [key for key in keys if not gpus or key in gpus]
            if keys or (group.kind != "gpu" and not gpus):
                impossible = tuple(pair for pair in group.impossible if pair.gpu in keys)
                kept = structs.replace(group, gpu=tuple(keys), impossible=impossible, folder=None)
                groups.append(kept)  # in the folder of the new release
        has = dict.fromkeys(key for group in groups for key in group.gpu)
        for key in gpus:
            if key not in has:
                what = f'--gpu "{key[:60]}": not among those of release {move.name}'
                on = f" that CUDA {cuda.version} compiles for" if cuda else ""
                known = ", ".join(dict.fromkeys(key for group in old.group for key in group.gpu))
                raise BuildPytorchError(f"{what}{on}: {known}")
        is_same = [group.gpu for group in groups] == [group.gpu for group in old.group]
        return old.group if is_same else tuple(groups)

    def own_groups(self, name: str) -> None:
        """Write the groups that a release inherits, so that they can be changed."""
        if not matrix_editor.has(self.text, ("release", name, "group")):
            for inherited in self.matrix.releases[name].group:
                self.append_group(name, inherited)

    def join(self, name: str, index: int, axis: str, key: str) -> None:
        """Add a GPU architecture or an ISA to a group of a release, which may inherit its groups.

        An architecture keeps a descending order; an ISA that is lower than all others is the first.
        """
        group = self.matrix.releases[name].group[index]
        gpus, cpus = self.matrix.gpus, self.matrix.cpus
        if axis == "gpu":
            order = [numbers(gpus[each].capability) for each in group.gpu]
            is_descending = order == sorted(order, reverse=True)
            higher = sum(each > numbers(gpus[key].capability) for each in order)
            position = higher if is_descending else len(order)
        else:
            levels = [cpus[each].level for each in group.cpu]
            position = 0 if cpus[key].level < min(levels) else len(levels)
        self.own_groups(name)
        trail: Trail = ("release", name, "group", index, axis)
        self._edit(name, matrix_editor.with_element(self.text, trail, position, key))

    def new_group(self, name: str, gpu: str, platform: str, isas: Sequence[str]) -> Group:
        """Return a new group with a title of its own."""
        kind = "gpu" if gpu else "mps" if platform.endswith("-darwin") else "cpu-only"
        first = self.matrix.gpus[gpu].family if gpu else "CPU-only"
        title = "Apple" if kind == "mps" else f"{first} {_PLATFORMS[platform]}"
        taken = {group.title for group in self.matrix.releases[name].group}
        if title in taken:
            title = f"{title}, {gpu or 'CPU-only'} {' '.join(isas)}".strip()
        values = {"title": title, "kind": kind, "platform": platform, "cpu": isas}
        return msgspec.convert(values | ({"gpu": [gpu]} if gpu else {}), Group)

    def append_group(self, name: str, group: Group) -> None:
        """Add a group after those that the text of a release has."""
        table: dict[str, Any] = msgspec.to_builtins(group)
        order = dict.fromkeys((*_FIRST, *table))
        values = {key: table[key] for key in order if table[key] not in (None, False, (), [])}
        groups: Trail = ("release", name, "group")
        has = matrix_editor.has(self.text, groups)
        if has and not matrix_editor.is_header(self.text, groups):
            count = len(self.matrix.releases[name].group)
            text = matrix_editor.with_element(self.text, groups, count, values)
        else:
            place = groups if has else ("release", name)
            text = matrix_editor.with_table(self.text, (*groups, 0), values, place)
        self._edit(name, text)

    def _edit(self, name: str, text: str) -> None:
        """Take a text with other groups of a release.

        Its clean-up list replaces files that become recipes of variants, and deletes them no more.
        """
        self.text = text
        if name not in self._matrix.releases:
            return
        raw, names = matrix_reader.own_values(text, name), self._matrix.releases[name].names
        files = set()
        for group in raw.get("group", ()):
            stems = [f"{names.gpu}-{gpu}" for gpu in group.get("gpu", ())] or [names.cpu]
            files |= {f"{names.package}-{stem}-{isa}.nix" for stem in stems for isa in group["cpu"]}
        values: dict[Trail, matrix_editor.Value] = {
            ("release", name, "cleanup", index, "action"): "rewrite"
            for index, entry in enumerate(raw.get("cleanup", ()))
            if entry["action"] == "delete" and entry["file"] in files
        }
        if values:
            self.text = matrix_editor.edited(text, values)
