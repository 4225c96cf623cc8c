"""That a package has the CUDA, the architecture and the MAGMA of its variant, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import Check, Problem
from build_pytorch.verify.checks.evaluation_kinds import FactCheck, equal, get, text_of
from build_pytorch.verify.recipe_evaluation import Facts


def _cuda_support(variant: Variant, facts: Facts) -> Iterator[Problem]:
    yield from equal("cudaSupport", facts.cuda_support, variant.gpu is not None)
    if variant.gpu is None:
        yield from equal("CUDA versions among the inputs", facts.cuda_versions, [])


def _architectures(variant: Variant, facts: Facts) -> Iterator[Problem]:
    if variant.gpu is None:
        yield from equal("TORCH_CUDA_ARCH_LIST", facts.arch_list, None)
        return
    if facts.gpu_targets is not None:
        yield from equal("gpuTargets", facts.gpu_targets, [variant.gpu.capability])
    yield from equal("TORCH_CUDA_ARCH_LIST", facts.arch_list, variant.gpu.capability)


def _cuda_version(variant: Variant, facts: Facts) -> Iterator[Problem]:
    cuda = variant.release.cuda
    if variant.gpu is None or cuda is None:
        yield from equal("CUDA of torch", facts.cuda_version, None)
        return
    # A package set named by its major version is the minor one that the pin has.
    is_exact = cuda.package_set.count("_") > 1
    wanted = cuda.version if is_exact else cuda.version.split(".")[0]

    def reached(version: Any) -> Any:  # noqa: ANN401 - the same
        return version if is_exact else text_of(version).split(".")[0]

    yield from equal("CUDA of torch", reached(facts.cuda_version), wanted)
    yield from equal("CUDA of MAGMA", reached(get(facts.magma, "cudaVersion")), wanted)
    for version in facts.cuda_versions if isinstance(facts.cuda_versions, list) else []:
        yield from equal("CUDA of an input", reached(version), wanted)


def _magma(variant: Variant, facts: Facts) -> Iterator[Problem]:
    if variant.gpu is None:
        yield from equal("MAGMA", facts.magma, None)
        return
    patch = variant.release.magma_patch
    wanted = [{"name": patch.name, "url": patch.url, "hash": patch.hash}] if patch else []
    if facts.magma is None:
        yield Problem(found="torch links no MAGMA", expected="a static MAGMA")
        return
    yield from equal("static MAGMA", get(facts.magma, "static"), expected=True)
    yield from equal("patches of MAGMA", get(facts.magma, "patches"), wanted)


CHECKS: tuple[Check, ...] = (
    FactCheck(
        id="eval-cuda-support",
        title="CUDA is on in GPU variants and nowhere else",
        why="A CPU-only PyTorch by accident costs three hours and fails nobody's build.",
        fix="(torch.override { cudaSupport = ...; }).overrideAttrs",
        source="seed 003, Root Cause",
        test=_cuda_support,
        word="cudaSupport",
    ),
    FactCheck(
        id="eval-architecture",
        title="torch compiles for the variant's architecture alone",
        why="Another list compiles for hours and does not run, or takes nine times as long.",
        fix="gpuTargets = [ gpuArchSM ] with the dotted capability",
        source="seed 003, Key Changes 2; seed 002, What to Preserve",
        test=_architectures,
        word="gpuTargets",
    ),
    FactCheck(
        id="eval-cuda-version",
        title="torch, MAGMA and every input are on the release's CUDA",
        why="Two CUDA versions in one process crash at run time, not at build time.",
        fix="set cudaPackages in the first overlay",
        source="seed 002, Key elements 2",
        test=_cuda_version,
        word="cudaPackages",
    ),
    FactCheck(
        id="eval-magma",
        title="The MAGMA that torch links has the release's patch and no other",
        why="A patch that does not reach the static MAGMA leaves the compile error in place.",
        fix="patch `magma` in an overlay: the static one is made from it",
        source="seed 002, Verification 1",
        test=_magma,
        word="magma",
    ),
)
