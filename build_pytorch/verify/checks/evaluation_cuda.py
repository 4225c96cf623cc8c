"""Checks that a recipe evaluates to the CUDA, GPU architecture and MAGMA of its variant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.checks.fact_checks import FACTS, equal, get, text_of
from build_pytorch.verify.recipe_evaluation import Facts

CHECKS: Final = CheckList(FACTS)


@CHECKS.add(
    id="eval-cuda-support",
    title="CUDA is enabled in GPU variants and in no other",
    why="An accidental CPU-only PyTorch costs three hours, and no build fails.",
    fix="(torch.override { cudaSupport = ...; }).overrideAttrs",
    word="cudaSupport",
)
def _cuda_support(variant: Variant, facts: Facts) -> Iterator[Finding]:
    yield from equal("cudaSupport", facts["cudaSupport"], variant.gpu is not None)
    if variant.gpu is None:
        yield from equal("CUDA versions among the inputs", facts["cudaVersions"], [])


@CHECKS.add(
    id="eval-architecture",
    title="torch compiles for the GPU architecture of the variant alone",
    why="Another list compiles for hours and does not run, or takes nine times as long.",
    fix="gpuTargets = [ gpuArchSM ] with the dotted capability",
    word="gpuTargets",
)
def _architectures(variant: Variant, facts: Facts) -> Iterator[Finding]:
    capability = variant.gpu.capability if variant.gpu else None
    if variant.gpu and facts["gpuTargets"] is not None:
        yield from equal("gpuTargets", facts["gpuTargets"], [capability])
    yield from equal("TORCH_CUDA_ARCH_LIST", facts["archList"], capability)


@CHECKS.add(
    id="eval-cuda-version",
    title="torch, MAGMA and every input use the CUDA of the release",
    why="Two CUDA versions in one process crash at run time, not at build time.",
    fix="set cudaPackages in the first overlay",
    word="cudaPackages",
)
def _cuda_version(variant: Variant, facts: Facts) -> Iterator[Finding]:
    cuda = variant.release.cuda
    if variant.gpu is None or cuda is None:
        yield from equal("CUDA of torch", facts["cudaVersion"], None)
        return
    # The pin decides the minor version of a package set that is named by its major version.
    is_exact = cuda.package_set.count("_") > 1
    wanted = cuda.version if is_exact else cuda.version.split(".")[0]

    def comparable(version: Any) -> Any:  # noqa: ANN401 - facts
        return version if is_exact else text_of(version).split(".")[0]

    yield from equal("CUDA of torch", comparable(facts["cudaVersion"]), wanted)
    yield from equal("CUDA of MAGMA", comparable(get(facts["magma"], "cudaVersion")), wanted)
    for version in facts["cudaVersions"] if isinstance(facts["cudaVersions"], list) else []:
        yield from equal("CUDA of an input", comparable(version), wanted)


@CHECKS.add(
    id="eval-magma",
    title="The MAGMA that torch links has the patch of the release and no other",
    why="A patch that does not reach the static MAGMA leaves the compile error in place.",
    fix="patch `magma` in an overlay: the static one is made from it",
    word="magma",
)
def _magma(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.gpu is None:
        yield from equal("MAGMA", facts["magma"], None)
        return
    patch = variant.release.magma_patch
    wanted = [{"name": patch.name, "url": patch.url, "hash": patch.hash}] if patch else []
    if facts["magma"] is None:
        yield Finding("torch links no MAGMA", "a static MAGMA")
        return
    yield from equal("static MAGMA", get(facts["magma"], "static"), expected=True)
    yield from equal("patches of MAGMA", get(facts["magma"], "patches"), wanted)
