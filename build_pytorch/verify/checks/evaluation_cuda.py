"""Checks that a recipe evaluates to the CUDA, the GPU architecture and the MAGMA of its variant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.recipe_facts import FACTS, PACKAGE_FACTS, Facts, equal

CHECKS: Final = CheckList(FACTS)


@CHECKS.add(
    id="eval-cuda-support",
    title="CUDA is enabled in GPU variants and in no other",
    why="An accidental CPU-only PyTorch costs three hours, and no build fails.",
    fix="(torch.override { cudaSupport = ...; }).overrideAttrs",
    word="cudaSupport",
)
def _cuda_support(variant: Variant, facts: Facts) -> Iterator[Finding]:
    yield from facts.expect({"cudaSupport": variant.gpu is not None})
    if variant.gpu is None:
        yield from equal("CUDA versions among the inputs", facts["cudaVersions"], [])


@CHECKS.add(
    PACKAGE_FACTS,
    id="eval-architecture",
    title="torch compiles for the GPU architecture of the variant alone",
    why="Another list compiles for hours and does not run, or takes nine times as long.",
    fix="gpuTargets = [ gpuArchSM ] with the dotted capability",
    word="gpuTargets",
)
def _architectures(package: Package, facts: Facts) -> Iterator[Finding]:
    variant = package.variant
    if package is variant and variant.gpu and facts["gpuTargets"] is not None:
        yield from facts.expect({"gpuTargets": list(variant.gpu.targets)})
    wanted = variant.gpu.arch_list if variant.gpu else None
    yield from equal("TORCH_CUDA_ARCH_LIST", facts["archList"], wanted)


@CHECKS.add(
    id="eval-cuda-version",
    title="torch, MAGMA and every input use the CUDA of the release",
    why="Two CUDA versions in one process crash at run time, not at build time.",
    fix="set cudaPackages in the first overlay",
    word="cudaPackages",
)
def _cuda_version(variant: Variant, facts: Facts) -> Iterator[Finding]:
    cuda = variant.cuda
    if cuda is None:
        yield from equal("CUDA of torch", facts["cudaVersion"], None)
        return
    found = [("torch", facts.value("cudaVersion")), ("MAGMA", facts.value("magma.cudaVersion"))]
    found += [("an input", version) for version in facts.list("cudaVersions")]
    # The pin decides the minor version of a package set that is named by its major version; the
    # model does not know it.
    is_model = facts.value("nixpkgs.url") is not None
    parts = 1 if is_model and cuda.package_set.count("_") == 1 else 2
    wanted = cuda.version.split(".")[:parts]
    for user, version in found:
        if str(version).split(".")[:parts] != wanted:
            yield from equal(f"CUDA of {user}", version, ".".join(wanted))


@CHECKS.add(
    id="eval-magma",
    title="The MAGMA that torch links has the patches of nixpkgs and that of the release",
    why="A patch that does not reach the static MAGMA leaves the compile error in place.",
    fix="patch `magma` in an overlay, with (oldAttrs.patches or []) ++ [ ... ]",
    word="magma",
)
def _magma(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.gpu is None:
        yield from facts.expect({"magma": None})
        return
    patches = [{"name": p.name, "url": p.url, "hash": p.hash} for p in variant.effects.patches]
    if facts["magma"] is None:
        yield Finding("torch links no MAGMA", "a static MAGMA")
    else:
        wanted = [*facts.list("pin.magmaPatches"), *patches]
        yield from facts.expect({"magma.static": True, "magma.patches": wanted})


@CHECKS.add(
    id="eval-libraries",
    title="NCCL and MAGMA have code for GPUs that nixpkgs leaves out, and are unchanged otherwise",
    why="Without code for a GPU, collectives and parts of torch.linalg fail on it at run time.",
    fix="makeFlags of nccl and cmakeFlags of magma in the overlays, if a rule has own-libraries",
    word="overlays",
)
def _libraries(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.gpu is None:
        return
    code = variant.gpu.code
    nccl, magma = facts.list("pin.ncclMakeFlags"), facts.list("pin.magmaCmakeFlags")
    if "own-libraries" in variant.effects.fixes:
        nccl = [*nccl, f"NVCC_GENCODE=-gencode=arch=compute_{code},code=sm_{code}"]
        magma = [*magma, f"-DCMAKE_CUDA_ARCHITECTURES={code}", f"-DMIN_ARCH={code}0"]
    yield from equal("makeFlags of NCCL", facts.list("ncclMakeFlags"), nccl)
    yield from equal("cmakeFlags of MAGMA", facts.list("magma.cmakeFlags"), magma)


@CHECKS.add(
    id="eval-cuda-packages",
    title="Four CUDA packages are from the source of the matrix in -wrapper recipes, not in others",
    why="A recipe that calls other files builds against a cuDNN or NCCL that nobody chose.",
    fix="call the files of release.*.cuda.packages_from in the overlay of cudaPackages",
    word="cudaPackages",
)
def _cuda_packages(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.cuda is None or facts.value("nixpkgs") is None:
        return  # only the model records the files of packages
    source = variant.packages_from
    for package in CUDA_PACKAGES:
        wanted = None
        if source:
            folder = f"{source.owner}/{source.repo}/archive/{source.rev}/hash/.flox/pkgs"
            folder = source.folder if source.is_copied else f"repositories/{folder}"
            wanted = f"{folder}/{variant.cuda.package_file(package)}"
        found = facts.text(f"cudaPackageFiles.{package}")
        if not found.endswith(f"/{wanted}") if wanted else found:
            shown = found or f"{package} of the pin"
            yield Finding(shown, wanted or f"{package} of the pin")
