"""The facts that the matrix and the pinned nixpkgs make a package have.

A recipe changes the package of the pin as the matrix asks, and nothing else: the expected facts are
those of that package with the changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.base import files, paths
from build_pytorch.matrix import rules
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.tables import CUDA_PACKAGES
from build_pytorch.matrix.versions import digits
from build_pytorch.verify import hooks
from build_pytorch.verify.hooks import FIXED, FLAG, FLAGS, MACHINES, SOURCE, without_layout
from build_pytorch.verify.recipe_facts import CHECKOUT, Facts

_DESCRIBED: Final = ("GPU", "CPU", "CUDA", "PyTorch", "Driver", "Hardware")  #: in long ones
_AFTER_HOOKS: Final = ("env.", "file.", "jobs.", "hook.other ")
_OF_MODEL: Final = ("nixpkgs.", "cudaPackages.", "checkout.")  #: what only the model records
_NIXPKGS: Final = ("nixpkgs.platform", "nixpkgs.config", "nixpkgs.overlays")


def expected(package: Package, pin: Facts, facts: Facts, torch: str, *, by_hand: bool) -> Facts:
    """Return the expected facts of a package, from those of the pin's package.

    `facts` are those of the recipe: what only some ways of evaluation show is expected only if it
    is there. `torch` is the derivation path of its variant. A recipe that is written `by_hand` may
    describe itself in other words than those of the matrix.
    """
    wanted = pin | _of_every_package(package, facts)
    wanted |= _descriptions(package, facts, by_hand=by_hand)
    if package.companion:
        wanted |= _of_companion(package, pin, facts, torch)
    else:
        wanted |= _of_variant(package, pin, facts, by_hand=by_hand)
    after_hooks = _AFTER_HOOKS if facts.get("hook.end") else ()
    unknown = (*after_hooks, *(() if "nixpkgs.config" in facts else _OF_MODEL))
    return {name: value for name, value in wanted.items() if not name.startswith(unknown)}


def _of_every_package(package: Package, facts: Facts) -> Facts:
    release, source, variant = package.release, package.source, package.variant
    most = release.build.max_jobs
    wanted: Facts = {
        "attr.pname": package.pname,
        "attr.version": package.version,
        "attr.name": f"python{release.python.version}-{package.pname}-{package.version}",
        "attr.system": package.platform,
        "attr.requiredSystemFeatures": list(package.builder_features),
        "MAX_JOBS": str(most),
        "meta.platforms": [package.platform],
        "meta.broken": False,
        "warnings": [],
        "passthru.tests": [],
        "nixpkgs.url": f"https://github.com/NixOS/nixpkgs/archive/{variant.pin.rev}.tar.gz",
        "nixpkgs.sha256": variant.pin.sha256 or None,
        **{f"passthru.{name}": value for name, value in package.passthru.items()},
        **{f"env.{name}": value for name, value in _environment(package).items()},
    }
    for cores, processors in MACHINES:
        limit = min(cores or processors, most)
        # nixpkgs sets MAX_JOBS again from the cores for torch alone.
        jobs = f"MAX_JOBS={most if package.companion else limit} NIX_BUILD_CORES={limit}"
        wanted[f"jobs.{cores} of {processors} cores"] = jobs
    # Facts of their own say what a recipe may change in these.
    changed = ("magma", "nccl", *(CUDA_PACKAGES if variant.packages_from else ()))
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
        wanted |= {f"src.{name}": it for name, it in source.origin.arguments.items()}
        wanted["src.hash"] = source.hash
        if not package.companion or package.companion.patches == "clear":
            wanted["attr.patches"] = []
    return wanted


def _descriptions(package: Package, facts: Facts, *, by_hand: bool) -> Facts:
    """Return the facts of descriptions: texts of the matrix, and no other GPU or PyTorch."""
    variant = package.variant
    short, long = [variant.version], list(_DESCRIBED)
    if variant.cuda:
        long += [variant.cuda.version, variant.driver.partition(".")[0]]
    if not (by_hand or package.companion):
        cpu, gpu = variant.cpu, variant.gpu
        short += [cpu.title, *variant.products]
        long += [cpu.title, *cpu.cpus, *cpu.lacking, *([gpu.family] if gpu else [])]
        long += [variant.impossible] if variant.impossible else variant.products
    wanted: Facts = {
        "meta.gpus": [it for it in facts["meta.gpus"] if it == variant.gpu_label],
        "meta.versions": [it for it in facts["meta.versions"] if it == variant.version],
    }
    for name, parts in {"meta.description": short, "meta.longDescription": long}.items():
        text = facts.get(name) or ""
        missing = [part for part in parts if part not in text]
        wanted[name] = f"a text with {', '.join(missing)}" if missing else text
    return wanted


def _of_variant(variant: Variant, pin: Facts, facts: Facts, *, by_hand: bool) -> Facts:
    gpu, cuda, torch, effects = variant.gpu, variant.cuda, variant.release.torch, variant.effects
    own = ("cudaCapabilities",) if "own-capabilities" in effects.fixes else ()
    has_magma = bool(effects.patches or "own-libraries" in effects.fixes)
    wanted: Facts = {
        "attr.ninjaFlags": [f"-j{variant.release.build.max_jobs}"],
        "attr.cmakeFlags": sorted([*pin["attr.cmakeFlags"], *_cmake_flags(variant, pin)]),
        "cudaSupport": gpu is not None,
        "nixpkgs.platform": variant.platform,
        "nixpkgs.config": sorted((*variant.config, *own)),
        "nixpkgs.overlays": (1 + has_magma if gpu else 0) + (not torch.is_of_pin),
        **{f"file.{name}": text for name, text in _files(variant).items()},
        **{f"hook.other {name}": said for name, said in hooks.other_texts(variant).items()},
    }
    if "attr.env.PYTORCH_BUILD_VERSION" in pin:  # it follows the version
        wanted["attr.env.PYTORCH_BUILD_VERSION"] = torch.version
    if not torch.is_of_pin:
        wanted["file.version.txt"] = torch.version
    if gpu and cuda:
        # The model does not know the minor version of a set that is named by its major version.
        if "nixpkgs.config" not in facts or cuda.package_set.count("_") > 1:
            wanted["cudaVersion"] = cuda.version
        wanted |= _libraries(variant, pin, facts, by_hand=by_hand)
        wanted |= _foreign_packages(variant, facts)
        wanted["passthru.cudaCapabilities"] = [gpu.capability]
        wanted["brokenForOther"] = None if facts.get("brokenForOther") is None else True
        if "cccl-shim" in effects.fixes:
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
        library, headers = f"{pin['path.cuptiLib']}/lib/libcupti.so", pin["path.cuptiDev"]
        yield from (f"-D{name}={library}" for name in ("CUDA_cupti_LIBRARY", "CUPTI_LIBRARY_PATH"))
        yield f"-DCUDAToolkit_CUPTI_INCLUDE_DIR={headers}/include"
        yield f"-DCUPTI_INCLUDE_DIR={headers}/include"


def _libraries(variant: Variant, pin: Facts, facts: Facts, *, by_hand: bool) -> Facts:
    """Return the facts of NCCL and MAGMA.

    A recipe `by_hand` may have those of nixpkgs where they have code for its GPU.
    """
    effects, code = variant.effects, variant.gpu.code if variant.gpu else ""
    gencode = f"-gencode=arch=compute_{code},code=sm_{code}"
    nccl, magma = pin["nccl.makeFlags"], pin["magma.cmakeFlags"]
    if "own-capabilities" in effects.fixes:  # which nixpkgs passes on to both
        nccl = [re.sub("(?<=^NVCC_GENCODE=).*", gencode, flag) for flag in nccl]
        magma = [re.sub("(?<=_ARCHITECTURES:STRING=).*", code, flag) for flag in magma]
    is_of_pin = (facts.get("nccl.makeFlags"), facts.get("magma.cmakeFlags")) == (nccl, magma)
    may_be_of_pin = by_hand and not rules.lacks_code(variant)
    flags = None
    if "own-libraries" in effects.fixes and not (may_be_of_pin and is_of_pin):
        nccl = [*nccl, f"NVCC_GENCODE={gencode}"]
        magma = [*magma, f"-DCMAKE_CUDA_ARCHITECTURES={code}", f"-DMIN_ARCH={code}0"]
        flags = effects.environment.get("NVCC_APPEND_FLAGS")
    patches = [f"{p.name} {p.url} {p.hash} normalised" for p in effects.patches]
    return {
        "nccl.makeFlags": nccl,
        "nccl.nvccFlags": flags,
        "magma.nvccFlags": flags,
        "magma.cmakeFlags": magma,
        "magma.patches": [*pin["magma.patches"], *patches],
    }


def _foreign_packages(variant: Variant, facts: Facts) -> Facts:
    """Return the files of CUDA packages from elsewhere; they have any version."""
    source, cuda = variant.packages_from, variant.cuda
    if source is None or cuda is None:
        return {}
    repository = f"{source.owner}/{source.repo}/archive/{source.rev}/{source.hash}/.flox/pkgs"
    places = {"cudaPackages": source.folder or f"/repositories/{repository}"}
    if not source.folder:
        places["checkout"] = f"{CHECKOUT}/.flox/pkgs"
    own = {n: facts[n] for n in facts if n.startswith("input.") and n.endswith(CUDA_PACKAGES)}
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
        "attr.propagatedBuildInputs": [*pin["attr.propagatedBuildInputs"], "torch"],
        "torch.derivations": [torch] if torch else facts["torch.derivations"],
        "torch.installed": installed if "out" in installed else [*installed, "out"],
        # Under another name than python3Packages the set is that of nixpkgs.
        "torch.ofSet": facts["torch.ofSet"] and package.variant.version,
    }
    # nixpkgs takes the architectures of a companion from torch; the hook sets them again. Its
    # nixpkgs is that of its torch.
    own = ("attr.TORCH_CUDA_ARCH_LIST", "attr.env.TORCH_CUDA_ARCH_LIST", *_NIXPKGS)
    return wanted | {name: facts[name] for name in own if name in facts and name in pin}


def _environment(package: Package) -> dict[str, str]:
    """Return the variables that a recipe sets."""
    variant, release = package.variant, package.release
    wanted = dict.fromkeys(FLAGS, FLAG) | {"TERM": "dumb"}
    wanted["CXXFLAGS"] = wanted["CFLAGS"] = f"{' '.join(variant.cpu.flags)} {FLAG}"
    if variant.gpu:
        wanted["TORCH_CUDA_ARCH_LIST"] = variant.gpu.capability
    if package.companion:
        return wanted
    if not release.torch.is_of_pin:
        wanted["PYTORCH_BUILD_VERSION"] = release.torch.version
    wanted |= variant.effects.environment
    if variant.gpu is None:
        return wanted | {"USE_CUDA": "0"}
    if "cccl-shim" in variant.effects.fixes:
        wanted |= {name: f"-I/build/cccl-compat {wanted[name]}" for name in FLAGS}
    return wanted


def _files(variant: Variant) -> dict[str, str]:
    """Return the files of the source as the fixes of a variant leave them."""
    found: dict[str, str] = {}
    for fix in variant.source_fixes:
        found |= FIXED.get(fix, {})
    if variant.gpu and "codegen-condition" in variant.source_fixes:
        code, base = variant.gpu.code, digits(variant.gpu.codegen_base or "")
        before, own, after = SOURCE[hooks.CODEGEN].partition(f'"{code}a"')
        after = after.replace(f"compute_{base}.*", f"compute_({base}|{code}).*", 1)
        found[hooks.CODEGEN] = without_layout(f"{before}{own}{after}")
    return found
