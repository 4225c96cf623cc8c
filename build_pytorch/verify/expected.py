"""The facts that the matrix and the pinned nixpkgs make a package have.

A recipe changes the package of the pin as the matrix asks, and nothing else: the expected facts are
those of that package with the changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from build_pytorch.base import files, paths
from build_pytorch.matrix import rules
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.tables import CUDA_PACKAGES
from build_pytorch.matrix.versions import digits
from build_pytorch.verify import hooks
from build_pytorch.verify.hooks import FLAG, FLAGS, MACHINES, SOURCE, without_layout
from build_pytorch.verify.recipe_facts import CHECKOUT, Facts

_DESCRIBED: Final = ("GPU", "CPU", "CUDA", "PyTorch", "Driver", "Hardware")
"""Words of a long description."""
_OF_VARIANT: Final = re.compile(
    r"attr\.(?:postPatch|preConfigure|src)|path\.|torch\.|drvPath|meta\.|nixpkgs\."
)
"""Facts that are no part of what the pin's package has in common with a recipe."""
_NOT_COMPARED: Final = re.compile(r"attr\.(?:postPatch|preConfigure|src)|path\.|drvPath")
"""Texts of hooks, which run; the source, which has facts of its own; what other facts use."""
_AFTER_HOOKS: Final = re.compile(r"env\.|file\.|jobs\.|hook\.other ")

_FORGIVEN: Final = {
    "nixpkgs.config", "passthru.cudaCapabilities", "passthru.tests", "meta.broken",
    "brokenForOther", "env.TERM", "env.NVCC_APPEND_FLAGS", "hook.namesBuild",
    f"hook.other {hooks.CODEGEN}", f"hook.other {hooks.OPENSSL}",
}  # fmt: skip
"""Facts without which a package is poorer, and is built."""
_FORGIVEN_IF_ABSENT: Final = {
    "nixpkgs.platform", f"file.{hooks.DEPENDENCIES}", f"file.{hooks.CODEGEN}"
}  # fmt: skip
"""Facts that such a recipe may leave out: one that has them has them right."""


def compared(facts: Facts) -> Facts:
    """Return the facts to compare with those that are expected."""
    return {name: value for name, value in facts.items() if not _NOT_COMPARED.match(name)}


def is_forgiven(name: str, value: Any, pin: Facts) -> bool:  # noqa: ANN401 - a fact
    """Return whether a recipe that is written by hand builds with a fact that is not expected."""
    if name.startswith("jobs."):  # Nix's own number builds as well, given the memory
        return bool(value == pin.get(name))
    if name == f"file.{hooks.STUB}":  # by name, it works but for a folder of another spelling
        return "REMOVE_ITEM CMAKE_MODULE_PATH" in str(value)
    return name in _FORGIVEN or (name in _FORGIVEN_IF_ABSENT and value is None)


def expected(
    package: Package, pin: Facts, facts: Facts, torch: str, *, is_generated: bool
) -> Facts:
    """Return the expected facts of a package, from those of the pin's package.

    `facts` are those of the recipe: what only some ways of evaluation show is expected only if it
    is there. `torch` is the derivation path of its variant. A recipe that is not `is_generated` may
    describe itself in other words than those of the matrix.
    """
    wanted = {name: value for name, value in pin.items() if not _OF_VARIANT.match(name)}
    wanted |= _of_every_package(package, pin, facts) | _descriptions(package, facts, is_generated)
    if package.companion:
        wanted |= _of_companion(package, pin, facts, torch)
    else:
        wanted |= _of_variant(package, pin, facts, is_generated=is_generated)
    wanted |= _nixpkgs(package, facts) if "nixpkgs.config" in facts else {}
    if facts.get("hook.end"):  # nothing after it is known
        wanted = {name: v for name, v in wanted.items() if not _AFTER_HOOKS.match(name)}
    return wanted


def _of_every_package(package: Package, pin: Facts, facts: Facts) -> Facts:
    release, source = package.release, package.source
    python = f"python{release.python.version}"
    wanted: Facts = {
        "attr.pname": package.pname,
        "attr.version": package.version,
        "attr.name": f"{python}-{package.pname}-{package.version}",
        "attr.system": package.platform,
        "attr.requiredSystemFeatures": list(package.builder_features),
        "MAX_JOBS": str(release.build.max_jobs),
        "meta.platforms": [package.platform],
        "meta.broken": False,
        "meta.license": pin.get("meta.license"),
        "warnings": [],
        "passthru.tests": [],
        **{f"passthru.{name}": value for name, value in package.passthru.items()},
        **{f"env.{name}": value for name, value in _environment(package).items()},
    }
    for cores, processors in MACHINES:
        most = release.build.max_jobs
        limit = min(cores or processors, most)
        # nixpkgs sets MAX_JOBS again from the cores for torch alone.
        jobs = f"MAX_JOBS={most if package.companion else limit} NIX_BUILD_CORES={limit}"
        wanted[f"jobs.{cores} of {processors} cores"] = jobs
    # Facts of their own say what a recipe may change in these.
    changed = ("magma", "nccl", *(CUDA_PACKAGES if package.variant.packages_from else ()))
    wanted |= {n: facts[n] for n in facts if n.startswith("builds.") and n.endswith(changed)}
    if "release.isPossible" in facts:
        wanted |= {
            "release.name": facts["attr.name"],
            "release.system": package.platform,
            "release.isPossible": not package.impossible,
            # Only the model of nixpkgs has derivations within seconds.
            "release.drvPath": facts.get("release.drvPath") and facts["drvPath"],
        }
    if not source.is_of_pin:
        wanted |= {
            "src.owner": source.owner,
            "src.repo": source.repo,
            "src.rev": source.rev,
            "src.hash": source.hash,
            "src.fetchSubmodules": source.submodules,
        }
    keeps = package.companion and package.companion.patches != "clear"
    if not (source.is_of_pin or keeps):
        wanted["attr.patches"] = []
    return wanted


def _descriptions(package: Package, facts: Facts, is_generated: bool) -> Facts:
    """Return the facts of descriptions: texts of the matrix, and no other GPU or PyTorch."""
    variant = package.variant
    short, long = [variant.version], list(_DESCRIBED)
    if variant.cuda:
        long += [variant.cuda.version, variant.driver.partition(".")[0]]
    if is_generated and package.companion is None:
        cpu, gpu = variant.cpu, variant.gpu
        short += [cpu.title, *variant.products]
        long += [cpu.title, *cpu.cpus, *cpu.lacking, *([gpu.family] if gpu else [])]
        long += [variant.impossible] if variant.impossible else variant.products
    return {
        "meta.description": _with(facts, "meta.description", short),
        "meta.longDescription": _with(facts, "meta.longDescription", long),
        "meta.gpus": [it for it in facts["meta.gpus"] if it == variant.gpu_label],
        "meta.versions": [it for it in facts["meta.versions"] if it == variant.version],
    }


def _with(facts: Facts, name: str, parts: Sequence[str]) -> str:
    """Return a text if it has all parts, else what it should have."""
    text = facts.get(name) or ""
    missing = [part for part in parts if part not in text]
    return f"a text with {', '.join(missing)}" if missing else text


def _nixpkgs(package: Package, facts: Facts) -> Facts:
    """Return the arguments of nixpkgs; only the model records them."""
    variant = package.variant
    pin, effects = variant.pin, variant.effects
    source = {
        "nixpkgs.url": f"https://github.com/NixOS/nixpkgs/archive/{pin.rev}.tar.gz",
        "nixpkgs.sha256": pin.sha256 or None,
    }
    if package is not variant:  # it has the stdenv of its torch
        return {name: facts[name] for name in facts if name.startswith("nixpkgs.")} | source
    own = ("cudaCapabilities",) if "own-capabilities" in effects.fixes else ()
    has_magma = bool(effects.patches or "own-libraries" in effects.fixes)
    overlays = (variant.gpu is not None) + (has_magma and variant.gpu is not None)
    return source | {
        "nixpkgs.platform": variant.platform,
        "nixpkgs.config": sorted((*variant.config, *own)),
        "nixpkgs.overlays": overlays + (not variant.source.is_of_pin),
    }


def _of_variant(variant: Variant, pin: Facts, facts: Facts, *, is_generated: bool) -> Facts:
    gpu, torch = variant.gpu, variant.release.torch
    wanted: Facts = {
        "attr.ninjaFlags": [f"-j{variant.release.build.max_jobs}"],
        "attr.cmakeFlags": sorted([*pin["attr.cmakeFlags"], *_cmake_flags(variant, pin)]),
        "cudaSupport": gpu is not None,
        **{f"file.{name}": text for name, text in _files(variant).items()},
        **{f"hook.other {name}": said for name, said in hooks.other_texts(variant).items()},
    }
    if "attr.env.PYTORCH_BUILD_VERSION" in pin:  # it follows the version
        wanted["attr.env.PYTORCH_BUILD_VERSION"] = torch.version
    if not torch.is_of_pin:
        wanted["file.version.txt"] = torch.version
    if gpu and variant.cuda:
        # The model does not know the minor version of a set that is named by its major version.
        if "nixpkgs.config" not in facts or variant.cuda.package_set.count("_") > 1:
            wanted["cudaVersion"] = variant.cuda.version
        wanted |= _libraries(variant, pin, facts, is_generated=is_generated)
        wanted["passthru.cudaCapabilities"] = [gpu.capability]
        if facts.get("brokenForOther") is not None:
            wanted["brokenForOther"] = True
    if "cccl-shim" in variant.effects.fixes and variant.cuda:
        for name in ("cuda", "cub", "thrust", "nv"):
            link = f"-> {pin.get('path.cccl')}/include/{name}"
            wanted[f"file./build/cccl-compat/cccl/{name}"] = link
    if variant.release.build.cache:
        wanted |= _compiler_cache(variant.release.build.cache, pin)
    return wanted


def _cmake_flags(variant: Variant, pin: Facts) -> Iterator[str]:
    """Yield the flags beside those of nixpkgs. CMake finds the CUDA itself where it reads them."""
    torch = variant.release.torch
    if not torch.is_of_pin:
        yield f"-DTORCH_BUILD_VERSION={torch.version}"
    yield from variant.effects.cmake_flags
    if variant.cuda is None:
        yield "-DUSE_CUDA=OFF"
        return
    if "cmake-flags" not in variant.pin.has:
        yield f"-DCUDA_VERSION={variant.cuda.version}"
    if "cccl-shim" in variant.effects.fixes:
        yield "-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat"
    if variant.has_cupti_flags:
        library, headers = f"{pin.get('path.cuptiLib')}/lib/libcupti.so", pin.get("path.cuptiDev")
        yield from (f"-D{name}={library}" for name in ("CUDA_cupti_LIBRARY", "CUPTI_LIBRARY_PATH"))
        yield f"-DCUDAToolkit_CUPTI_INCLUDE_DIR={headers}/include"
        yield f"-DCUPTI_INCLUDE_DIR={headers}/include"


def _libraries(variant: Variant, pin: Facts, facts: Facts, *, is_generated: bool) -> Facts:
    """Return the facts of NCCL and MAGMA, and the files of foreign CUDA packages.

    A recipe that is not `is_generated` may have those of nixpkgs where they have code for its GPU.
    """
    gpu, effects = variant.gpu, variant.effects
    assert gpu  # noqa: S101 - only GPU variants link them
    gencode = f"-gencode=arch=compute_{gpu.code},code=sm_{gpu.code}"
    nccl, magma = pin.get("nccl.makeFlags") or [], pin.get("magma.cmakeFlags") or []
    if "own-capabilities" in effects.fixes:  # which nixpkgs passes on to both
        nccl = [re.sub("(?<=^NVCC_GENCODE=).*", gencode, flag) for flag in nccl]
        magma = [re.sub("(?<=_ARCHITECTURES:STRING=).*", gpu.code, flag) for flag in magma]
    flags = None
    may_be_of_pin = not is_generated and not rules.lacks_code(variant)
    is_of_pin = (facts["nccl.makeFlags"], facts["magma.cmakeFlags"]) == (nccl, magma)
    if "own-libraries" in effects.fixes and not (may_be_of_pin and is_of_pin):
        nccl = [*nccl, f"NVCC_GENCODE={gencode}"]
        magma = [*magma, f"-DCMAKE_CUDA_ARCHITECTURES={gpu.code}", f"-DMIN_ARCH={gpu.code}0"]
        flags = effects.environment.get("NVCC_APPEND_FLAGS")
    patches = [f"{p.name} {p.url} {p.hash} normalised" for p in effects.patches]
    return {
        "nccl.makeFlags": nccl,
        "nccl.nvccFlags": flags,
        "magma.nvccFlags": flags,
        "magma.cmakeFlags": magma,
        "magma.patches": [*(pin.get("magma.patches") or []), *patches],
        **_foreign_packages(variant, facts),
    }


def _foreign_packages(variant: Variant, facts: Facts) -> Facts:
    """Return the files of CUDA packages from elsewhere; they have any version."""
    source, cuda = variant.packages_from, variant.cuda
    if source is None or cuda is None:
        return {}
    repository = f"{source.owner}/{source.repo}/archive/{source.rev}/{source.hash}/.flox/pkgs"
    own = {n: facts[n] for n in facts if n.startswith("input.") and n.endswith(CUDA_PACKAGES)}
    if "nixpkgs.config" not in facts:  # only the model records the files
        return own | {n: facts[n] for n in facts if n.startswith("cudaPackages.")}
    places = {"cudaPackages": source.folder or f"/repositories/{repository}"}
    if not source.folder:
        places["checkout"] = f"{CHECKOUT}/.flox/pkgs"
    return own | {
        f"{fact}.{name}": f"{place}/{cuda.package_file(name)}"
        for fact, place in places.items()
        for name in CUDA_PACKAGES
    }


def _compiler_cache(folder: str, pin: Facts) -> Facts:
    """Return the attributes that the option `cache` of a release changes."""
    functions = files.read_named(paths.SHIPPED / paths.COMPILER_CACHE).decode()
    block = f"""if [ -w {folder} ] && [ -z "${{CCACHE_REMOTE_STORAGE-}}" ]; then
  export CCACHE_DIR={folder} CCACHE_UMASK=007
  compilerCache ccache
fi
"""
    env = "attr.env." if any(name.startswith("attr.env.") for name in pin) else "attr."
    return {
        f"{env}NIX_OUTPATH_USED_AS_RANDOM_SEED": "/build-pytorch",
        "attr.preBuild": f"{functions}{block}{pin['attr.preBuild']}\ncompilerCacheForget\n",
        "attr.postBuild": f"{pin.get('attr.postBuild') or ''}\ncompilerCacheCounts\n",
    }


def _of_companion(package: Package, pin: Facts, facts: Facts, torch: str) -> Facts:
    installed = facts["torch.installed"]
    wanted: Facts = {
        "attr.doInstallCheck": False,
        "attr.propagatedBuildInputs": [*(pin.get("attr.propagatedBuildInputs") or []), "torch"],
        "torch.derivations": [torch] if torch else facts["torch.derivations"],
        "torch.installed": installed if "out" in installed else [*installed, "out"],
    }
    if facts["torch.ofSet"] is not None:
        # The overlay changes python3Packages alone: under another name the set is that of nixpkgs.
        wanted["torch.ofSet"] = package.variant.version
    # nixpkgs takes the architectures of a companion from torch; the hook sets them again.
    names = ("attr.TORCH_CUDA_ARCH_LIST", "attr.env.TORCH_CUDA_ARCH_LIST")
    return wanted | {n: facts.get(n, pin[n]) for n in names if n in pin}


def _environment(package: Package) -> dict[str, str]:
    """Return the variables that a recipe sets."""
    variant, release = package.variant, package.release
    wanted = dict.fromkeys(FLAGS, FLAG) | {"TERM": "dumb"}
    wanted["CXXFLAGS"] = wanted["CFLAGS"] = f"{' '.join(variant.cpu.flags)} {FLAG}"
    if variant.gpu:
        wanted["TORCH_CUDA_ARCH_LIST"] = variant.gpu.capability
    if package.companion is None:
        if not release.torch.is_of_pin:
            wanted["PYTORCH_BUILD_VERSION"] = release.torch.version
        wanted |= variant.effects.environment
        if variant.gpu is None:
            wanted["USE_CUDA"] = "0"
            return wanted
        if "cccl-shim" in variant.effects.fixes:
            wanted |= {name: f"-I/build/cccl-compat {wanted[name]}" for name in FLAGS}
    return wanted


def _files(variant: Variant) -> dict[str, str]:
    """Return the files of the source as the fixes of a variant leave them."""
    found = {}
    fixes = variant.source_fixes
    if "find-cuda-toolkit-stub" in fixes:
        include = 'include("${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake")'
        found[hooks.STUB] = f"if(NOT CUDAToolkit_FOUND)\n{include}\nendif()"
    if "cupti-paths" in fixes:
        text = SOURCE[hooks.DEPENDENCIES]
        for folder, name in (("lib64", "LIBRARY"), ("include", "INCLUDE")):
            place = f"extras/CUPTI/{folder}"
            text = text.replace(place, f"{place} $ENV{{CUPTI_{name}_DIR}}")
        found[hooks.DEPENDENCIES] = text
    if "mkl-link-folders" in fixes:
        found[hooks.MKL] = SOURCE[hooks.MKL].partition("set_property(")[0]
    if variant.gpu and "codegen-condition" in fixes:
        code, base = variant.gpu.code, digits(variant.gpu.codegen_base or "")
        before, own, after = SOURCE[hooks.CODEGEN].partition(f'"{code}a"')
        after = after.replace(f"compute_{base}.*", f"compute_({base}|{code}).*", 1)
        found[hooks.CODEGEN] = f"{before}{own}{after}"
    return {name: without_layout(text) for name, text in found.items()}
