"""Checks that a companion is compiled and installed with the torch of its variant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import CompanionPackage
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.recipe_facts import COMPANIONS, Facts

CHECKS: Final = CheckList(COMPANIONS)


@CHECKS.add(
    id="eval-companion-torch",
    title="A companion is compiled with the derivation of its variant, and with no other torch",
    why="A torch that differs in one attribute is compiled once more, for hours, and two of them "
    "cannot be loaded into one process.",
    fix="import the recipe of the variant with the same nixpkgs_pinned, and pass it to .override",
    word="torch",
)
def _torch(companion: CompanionPackage, facts: Facts, torch: str) -> Iterator[Finding]:
    found = facts.list("torches")
    for path in found:
        if path != torch:
            expected = f"{torch}, of {companion.variant.path}"
            yield Finding(f"a torch of its own, {path}", expected)
    if torch not in found:
        yield Finding("no torch of the variant among the inputs", torch)


@CHECKS.add(
    id="eval-companion-out",
    title="Whoever installs a companion gets the torch of its variant and what nixpkgs adds",
    why="torch has several outputs; with the headers alone, `import torch` fails.",
    fix="add torch_of_variant.out to oldAttrs.propagatedBuildInputs",
    word="propagatedBuildInputs",
)
def _out(_: CompanionPackage, facts: Facts, torch: str) -> Iterator[Finding]:
    del torch
    outputs = facts.list("torchOutputs")
    if "out" not in outputs:
        found = f"the outputs {', '.join(map(str, outputs)) or 'of no torch'}"
        yield Finding(f"propagatedBuildInputs with {found}", "torch's out among them")
    found_names = facts.list("propagated")
    for name in facts.list("pin.propagated"):
        if name not in found_names:
            yield Finding(f"propagatedBuildInputs without {name}", "oldAttrs' ++ [ ... ]")


@CHECKS.add(
    id="eval-companion-patches",
    title="A companion has the patches of nixpkgs if and only if the matrix keeps them",
    why="They are for the version that nixpkgs ships; some change what its build reads.",
    fix="take the rule from release.*.companion.*.patches",
    word="patches",
)
def _patches(package: CompanionPackage, facts: Facts, torch: str) -> Iterator[Finding]:
    del torch
    wanted = [] if package.companion.patches == "clear" else facts.list("pin.patches")
    yield from facts.expect({"patches": wanted})
