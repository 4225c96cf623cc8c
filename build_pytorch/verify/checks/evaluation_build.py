"""Checks that a recipe evaluates to the build of its package: CUDA, libraries, flags, inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.base import files, paths
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.matrix.source_tables import CUDA_PACKAGES
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.recipe_facts import (
    COMPANIONS,
    FACTS,
    PACKAGE_FACTS,
    Facts,
    equal,
    without_hashes,
)

CHECKS: Final = CheckList(FACTS)

_OF_CUPTI: Final = (
    "CUDA_cupti_LIBRARY",
    "CUDAToolkit_CUPTI_INCLUDE_DIR",
    "CUPTI_LIBRARY_PATH",
    "CUPTI_INCLUDE_DIR",
)
_FLAGS_OF_NIXPKGS: Final = ("-DPYTHON_SIX", "-DCUDAToolkit", "-DCMAKE_CUDA_COMPILER_TOOLKIT")


@CHECKS.add(
    "CUDA is enabled in GPU variants and in no other",
    why="An accidental CPU-only PyTorch costs three hours, and no build fails.",
    fix="(torch.override { cudaSupport = ...; }).overrideAttrs",
    word="cudaSupport",
)
def eval_cuda_support(variant: Variant, facts: Facts) -> Iterator[Finding]:
    yield from facts.expect({"cudaSupport": variant.gpu is not None})
    if variant.gpu is None:
        yield from equal("CUDA versions among the inputs", facts["cudaVersions"], [])


@CHECKS.add(
    "torch, MAGMA and every input use the CUDA of the release",
    why="Two CUDA versions in one process crash at run time, not at build time.",
    fix="set cudaPackages in the first overlay",
    word="cudaPackages",
)
def eval_cuda_version(variant: Variant, facts: Facts) -> Iterator[Finding]:
    cuda = variant.cuda
    if cuda is None:
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
    "The MAGMA that torch links has the patches of nixpkgs and that of the release",
    why="A patch that does not reach the static MAGMA leaves the compile error in place.",
    fix="patch `magma` in an overlay, with (oldAttrs.patches or []) ++ [ (fetchpatch ...) ]",
    word="magma",
)
def eval_magma(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.gpu is None or facts["magma"] is None:
        yield from equal("torch links a MAGMA", facts["magma"] is not None, variant.gpu is not None)
        return
    wanted = facts.list("pin.magmaPatches") + [
        {"name": p.name, "url": p.url, "hash": p.hash, "isNormalised": True}
        for p in variant.effects.patches
    ]
    yield from facts.expect({"magma.static": True, "magma.patches": wanted})


@CHECKS.add(
    "NCCL and MAGMA have code for GPUs that nixpkgs leaves out, and are unchanged otherwise",
    why="Without code for a GPU, collectives and parts of torch.linalg fail on it at run time.",
    fix="makeFlags of nccl and cmakeFlags of magma in the overlays, if a rule has own-libraries",
    word="overlays",
)
def eval_libraries(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.gpu is None:
        return
    gpu = variant.gpu
    gencode = f"-gencode=arch=compute_{gpu.code},code=sm_{gpu.code}"
    nccl, magma = facts.list("pin.ncclMakeFlags"), facts.list("pin.magmaCmakeFlags")
    if "own-capabilities" in variant.effects.fixes:  # which nixpkgs passes on to both
        nccl = [re.sub("(?<=^NVCC_GENCODE=).*", gencode, flag) for flag in nccl]
        magma = [re.sub("(?<=_ARCHITECTURES:STRING=).*", gpu.code, flag) for flag in magma]
    if "own-libraries" in variant.effects.fixes:
        least = f"-DMIN_ARCH={gpu.code}0"
        nccl = [*nccl, f"NVCC_GENCODE={gencode}"]
        magma = [*magma, f"-DCMAKE_CUDA_ARCHITECTURES={gpu.code}", least]
    yield from equal("makeFlags of NCCL", facts.list("ncclMakeFlags"), nccl)
    yield from equal("cmakeFlags of MAGMA", facts.list("magma.cmakeFlags"), magma)


@CHECKS.add(
    "Four CUDA packages are from the source of the matrix in -wrapper recipes, not in others",
    why="A recipe that calls other files builds against a cuDNN or NCCL that nobody chose.",
    fix="call the files of release.*.cuda.packages_from in the overlay of cudaPackages",
    word="cudaPackages",
)
def eval_cuda_packages(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.cuda is None or facts.value("nixpkgs") is None:
        return  # only the model records the files of packages
    source = variant.packages_from
    for package in CUDA_PACKAGES:
        wanted = ""
        if source:
            folder = f"{source.owner}/{source.repo}/archive/{source.rev}/{source.hash}/.flox/pkgs"
            folder = source.folder if source.is_copied else f"repositories/{folder}"
            wanted = f"/{folder}/{variant.cuda.package_file(package)}"
        found = facts.text(f"cudaPackageFiles.{package}")
        if bool(found) != bool(wanted) or not found.endswith(wanted):
            of_pin = f"{package} of the pin"
            yield Finding(found or of_pin, wanted[1:] or of_pin)


@CHECKS.add(
    "cmakeFlags are those of the matrix, after those of nixpkgs",
    why="Version, CUDA and fixes reach CMake by them; a second value contradicts the first.",
    fix="(oldAttrs.cmakeFlags or []) ++ [ ... ]",
    word="cmakeFlags",
)
def eval_cmake_flags(variant: Variant, facts: Facts) -> Iterator[Finding]:
    wanted = _cmake_flags(variant)
    flags = list(map(str, facts.list("cmakeFlags")))
    for name in _OF_CUPTI if variant.has_cupti_flags else ():
        found = [flag for flag in flags if re.fullmatch(rf"-D{name}=/\S*-cuda_cupti\S*", flag)]
        if not found:
            yield Finding(f"cmakeFlags without -D{name}", "a path of cuda_cupti")
        wanted += found
    for flag in wanted:
        if flag not in flags:
            yield Finding(f"cmakeFlags without {flag}", flag)
        for other in flags:
            if other.partition("=")[0] == flag.partition("=")[0] and other != flag:
                yield Finding(f"{other} among cmakeFlags", flag)
    if not any("PYTHON_SIX_SOURCE_DIR" in flag for flag in flags):
        yield Finding("cmakeFlags without those of nixpkgs", "oldAttrs' ++ [ ... ]")
    for flag in flags if facts.value("nixpkgs") else ():  # flags of a real nixpkgs are unknown
        if flag not in wanted and not flag.startswith(_FLAGS_OF_NIXPKGS):
            yield Finding(f"{flag} among cmakeFlags", "no flag that no rule asks for")


def _cmake_flags(variant: Variant) -> list[str]:
    """Return the flags beside those of nixpkgs. CMake finds the CUDA itself where it reads them."""
    torch = variant.release.torch
    flags = [] if torch.is_of_pin else [f"-DTORCH_BUILD_VERSION={torch.version}"]
    flags += variant.effects.cmake_flags
    if variant.cuda is None:
        return [*flags, "-DUSE_CUDA=OFF"]
    if "cmake-flags" not in variant.pin.has:
        flags.append(f"-DCUDA_VERSION={variant.cuda.version}")
    if "cccl-shim" in variant.effects.fixes:
        flags.append("-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat")
    return flags


@CHECKS.add(
    "ninjaFlags and MAX_JOBS have the limit of parallel compile jobs",
    why="The build of nixpkgs reads neither, which hook-jobs shows; another build may.",
    fix="set ninjaFlags and MAX_JOBS to max_jobs of the release",
    word="MAX_JOBS",
)
def eval_jobs(variant: Variant, facts: Facts) -> Iterator[Finding]:
    jobs = variant.release.build.max_jobs
    yield from facts.expect({"ninjaFlags": [f"-j{jobs}"]})
    found = re.findall(r"(?m)^\s*export MAX_JOBS=[\"']?(\w+)", facts.text("preConfigure"))
    yield from equal("MAX_JOBS", found[-1] if found else "", str(jobs))


@CHECKS.add(
    "The build requires the system features of the matrix",
    PACKAGE_FACTS,
    why="Without big-parallel Nix may choose the smallest builder.",
    fix="take requiredSystemFeatures from matrix.toml",
    word="requiredSystemFeatures",
)
def eval_features(package: Package, facts: Facts) -> Iterator[Finding]:
    yield from facts.expect({"requiredSystemFeatures": list(package.builder_features)})


@CHECKS.add(
    "A companion is compiled with the derivation of its variant, and with no other torch",
    COMPANIONS,
    why="A torch that differs in one attribute is compiled once more, for hours, and two of them "
    "cannot be loaded into one process.",
    fix="import the recipe of the variant with the same nixpkgs_pinned, and pass it to .override",
    word="torch",
)
def eval_companion_torch(
    companion: CompanionPackage, facts: Facts, torch: str
) -> Iterator[Finding]:
    found = facts.list("torches")
    for path in found:
        if path != torch:
            expected = f"{torch}, of {companion.variant.path}"
            yield Finding(f"a torch of its own, {path}", expected)
    if torch not in found:
        yield Finding("no torch of the variant among the inputs", torch)
    if facts.value("setTorch"):  # only the model records it
        # The overlay changes python3Packages alone: under another name the set is that of nixpkgs.
        yield from equal("torch of the Python set", facts["setTorch"], companion.variant.version)


@CHECKS.add(
    "Whoever installs a companion gets the torch of its variant and what nixpkgs adds",
    COMPANIONS,
    why="torch has several outputs; with the headers alone, `import torch` fails.",
    fix="add torch_of_variant.out to oldAttrs.propagatedBuildInputs",
    word="propagatedBuildInputs",
)
def eval_companion_out(_: CompanionPackage, facts: Facts, __: str) -> Iterator[Finding]:
    outputs = facts.list("torchOutputs")
    if "out" not in outputs:
        found = f"the outputs {', '.join(map(str, outputs)) or 'of no torch'}"
        yield Finding(f"propagatedBuildInputs with {found}", "torch's out among them")
    for name in facts.list("pin.propagated"):
        if name not in facts.list("propagated"):
            yield Finding(f"propagatedBuildInputs without {name}", "oldAttrs' ++ [ ... ]")


@CHECKS.add(
    "All other attributes are those of the pin's torch",
    PACKAGE_FACTS,
    why="An attribute that nobody meant to change drops outputs, inputs or the import check.",
    fix="remove the attribute or the argument of override that changes it",
    word=".override",
)
def eval_unchanged(package: Package, facts: Facts) -> Iterator[Finding]:
    differing = facts.value("pin.differing")
    if not isinstance(differing, dict):
        return
    cache = package.release.build.cache if isinstance(package, Variant) else ""
    for name in _CACHE_ATTRIBUTES if cache else ():
        if name not in differing:
            yield Finding(f"{name} of the pin", f"{name} with the compiler cache in {cache}")
    for name, values in differing.items():
        found, wanted = (without_hashes(str(values[side])) for side in ("recipe", "pin"))
        if cache and name in _CACHE_ATTRIBUTES:
            found = re.sub(r"\S+/bin/ccache\n", "ccache\n", found)
            wanted = _with_cache(name, "" if values["pin"] is None else wanted, cache)
        if found != wanted:
            yield Finding(f"{name} = {found[:200]}", f"{name} = {wanted[:200]}")


_CACHE_ATTRIBUTES: Final = ("NIX_OUTPATH_USED_AS_RANDOM_SEED", "preBuild", "postBuild")
"""The attributes that the option `cache` of a release changes."""


def _with_cache(name: str, pinned: str, folder: str) -> str:
    """Return the value of one of the three attributes with the compiler cache in a folder."""
    if name == "NIX_OUTPATH_USED_AS_RANDOM_SEED":
        return "/build-pytorch"
    if name == "postBuild":
        return f"{pinned}\ncompilerCacheCounts\n"
    functions = files.read_named(paths.SHIPPED / paths.COMPILER_CACHE).decode()
    block = f"""if [ -w {folder} ] && [ -z "${{CCACHE_REMOTE_STORAGE-}}" ]; then
  export CCACHE_DIR={folder} CCACHE_UMASK=007
  compilerCache ccache
fi
"""
    return f"{functions}{block}{pinned}\ncompilerCacheForget\n"
