"""Releases and variants taken out of the text of matrix.toml. Pure."""

from __future__ import annotations

from msgspec import structs

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.tables import Group
from build_pytorch.sources.matrix_additions import Draft


class Removal(Draft):
    """A matrix from which releases and variants are taken one after the other."""

    def remove_release(self, name: str) -> None:
        """Take out a release. Raises BuildPytorchError if another one needs it, or none is left."""
        self._refuse_heirs(name, {"release"})
        if len(self.matrix.releases) == 1:
            raise BuildPytorchError(f"{name}: the only release; matrix.toml needs one")
        self._take(matrix_editor.without_table(self.text, ("release", name)), name)

    def remove_variant(self, variant: Variant) -> None:
        """Take a variant out of its group; raises BuildPytorchError if that breaks a release.

        Its wrapper goes with it. If neither its GPU nor its ISA is the only one of the group, the
        other variants of its GPU get a group of their own.
        """
        name, gpu, isa = variant.release_name, variant.gpu_key or "", variant.cpu_key
        if variant.is_wrapper:
            first = variant.id.removesuffix("-wrapper")
            raise BuildPytorchError(f"{variant.id}: comes with {first}; remove that one")
        self._refuse_heirs(name, {"group"})
        self.own_groups(name)
        groups = self.matrix.releases[name].group
        index = next(i for i, it in enumerate(groups) if _has(it, gpu, isa))
        group, place = groups[index], ("release", name, "group", index)
        gpus = [key for key in group.gpu if key != gpu]
        isas = [key for key in group.cpu if key != isa]
        if gpus or isas:
            trail: Trail = (*place, "gpu" if gpus else "cpu")
            text = matrix_editor.with_values(self.text, {trail: gpus or isas})
            self._take(text, variant.id)
            if gpus and isas:
                title = f"{group.title}, {gpu}"
                own = structs.replace(group, title=title, gpu=(gpu,), cpu=tuple(isas))
                self.append_group(name, structs.replace(own, impossible=()))
        elif len(groups) > 1:
            text = matrix_editor.without_element(self.text, place[:-1], index)
            self._take(text, variant.id)
        else:
            fix = f"`invoke remove {name}` takes out the release"
            raise BuildPytorchError(f"{variant.id}: the only variant of its release; {fix}")

    def _take(self, text: str, what: str) -> None:
        """Take a text, unless what is left of the matrix contradicts itself."""
        try:
            matrix_reader.parse(text, root=self.matrix.root)
        except BuildPytorchError as error:
            why = "what is left is not consistent"
            raise BuildPytorchError(f"{what}: cannot be removed; {why}: {error}") from None
        self.text = text

    def _refuse_heirs(self, name: str, kinds: set[str]) -> None:
        """Raise BuildPytorchError if a release is like this one, or has its groups."""
        heirs = [
            other
            for other, release in self.matrix.releases.items()
            if release.like == name
            and ("release" in kinds or "group" not in matrix_reader.own_values(self.text, other))
        ]
        if heirs:
            what = "like it" if "release" in kinds else "like it, with its variants"
            fix = f"`invoke remove {heirs[0]}` first, or write its own values"
            raise BuildPytorchError(f"{name}: release {', '.join(heirs)} is {what}; {fix}")


def _has(group: Group, gpu: str, isa: str) -> bool:
    return isa in group.cpu and (gpu in group.gpu if gpu else not group.gpu)
