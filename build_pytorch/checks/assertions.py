"""What each variant must evaluate to, held against the matrix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from build_pytorch.checks.base import Check, Context, Outcome, Problem, Recipe, outcome_by_recipe
from build_pytorch.checks.evaluation import Facts, evaluated, failures, prepare
from build_pytorch.model import Variant

__all__ = ["CHECKS", "prepare"]

_STUB: Final = "cmake/Modules/FindCUDAToolkit.cmake"


class Evaluates(Check, frozen=True, kw_only=True):
    """Every recipe gives a package."""

    def run(self, context: Context) -> Outcome:
        """Ask what came of each recipe."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return Outcome(check=self, not_run=_all(context), reason=evaluation.reason)
        return outcome_by_recipe(
            self,
            {
                recipe.path: (variant, failures(evaluation.results[recipe.path]))
                for variant, recipe in context.present()
            },
        )


class FactCheck(Check, frozen=True, kw_only=True):
    """A rule about what a recipe evaluates to. `word` is where it stands in the recipe."""

    test: Callable[[Variant, Facts], Iterable[Problem]]
    word: str

    def run(self, context: Context) -> Outcome:
        """Look at every recipe that gave facts."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return Outcome(check=self, not_run=_all(context), reason=evaluation.reason)
        tested: dict[str, tuple[Variant, Iterable[Problem]]] = {}
        unknown = []
        for variant, recipe in context.present():
            facts = evaluation.results[recipe.path].facts
            if facts is None:
                unknown.append(recipe.path)
            else:
                problems = self.test(variant, facts)
                tested[recipe.path] = (variant, self._placed(recipe, problems))
        return outcome_by_recipe(self, tested, unknown, "does not evaluate")

    def _placed(self, recipe: Recipe, problems: Iterable[Problem]) -> Iterator[Problem]:
        """The problems at the line where the recipe speaks of the matter."""
        for problem in problems:
            offset = recipe.code.find(self.word)
            yield Problem(
                line=recipe.line_of(max(offset, 0)),
                found=problem.found,
                expected=problem.expected,
                severity=problem.severity,
            )


class DistinctDerivations(Check, frozen=True, kw_only=True):
    """No two variants are the same build."""

    def run(self, context: Context) -> Outcome:
        """Compare the derivation paths of all recipes."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return Outcome(check=self, not_run=_all(context), reason=evaluation.reason)
        first: dict[str, str] = {}
        tested: dict[str, tuple[Variant, Iterable[Problem]]] = {}
        unknown = []
        for variant, recipe in context.present():
            facts = evaluation.results[recipe.path].facts
            if facts is None or facts.drv_path is None:
                unknown.append(recipe.path)
                continue
            other = first.setdefault(facts.drv_path, recipe.path)
            found = f"the same derivation as {other}"
            same = [Problem(found=found, expected="a build of its own")]
            tested[recipe.path] = (variant, [] if other == recipe.path else same)
        return outcome_by_recipe(self, tested, unknown, "does not evaluate")


class NoWarnings(Check, frozen=True, kw_only=True):
    """Nix evaluates without a warning."""

    def run(self, context: Context) -> Outcome:
        """Look at what Nix said beside its answer."""
        evaluation = evaluated(context)
        if evaluation.reason:
            return Outcome(check=self, not_run=_all(context), reason=evaluation.reason)
        said: dict[str, list[Problem]] = {path: [] for path in evaluation.results}
        for warned in evaluation.warnings:
            path = warned.path if warned.path in said else next(iter(said))
            said[path].append(
                Problem(severity="warning", found=warned.text, expected="no warning of Nix")
            )
        tested = {
            recipe.path: (variant, said[recipe.path]) for variant, recipe in context.present()
        }
        return outcome_by_recipe(self, tested)


def _all(context: Context) -> tuple[str, ...]:
    return tuple(recipe.path for _, recipe in context.present()) or ("tree",)


def _equal(name: str, found: Any, expected: Any) -> Iterator[Problem]:  # noqa: ANN401 - facts
    if found != expected:
        yield Problem(found=f"{name} = {found!r}", expected=f"{name} = {expected!r}")


def _get(facts: Any, name: str) -> Any:  # noqa: ANN401 - facts of foreign recipes are anything
    return facts.get(name) if isinstance(facts, dict) else None


def _text(value: Any) -> str:  # noqa: ANN401 - the same
    return value if isinstance(value, str) else ""


def _names(variant: Variant, facts: Facts) -> Iterator[Problem]:
    release = variant.release
    yield from _equal("pname", facts.pname, variant.pname)
    yield from _equal("version", facts.version, release.torch.version)
    # The Python in front is the one that nixpkgs has; here it would be the model's.
    name = _text(facts.name).partition("-")[2]
    yield from _equal("name", name, f"{variant.pname}-{release.torch.version}")


def _pin(variant: Variant, facts: Facts) -> Iterator[Problem]:
    pin = variant.release.nixpkgs
    url = _get(facts.nixpkgs, "url")
    if url is None:
        return  # only the model tells where a package comes from
    if pin.rev not in url:
        yield Problem(found=f"nixpkgs from {url}", expected=f"nixpkgs {pin.rev}")
    yield from _equal("sha256 of nixpkgs", _get(facts.nixpkgs, "sha256"), pin.sha256)


def _cuda_support(variant: Variant, facts: Facts) -> Iterator[Problem]:
    yield from _equal("cudaSupport", facts.cuda_support, variant.gpu is not None)
    if variant.gpu is None:
        yield from _equal("CUDA versions among the inputs", facts.cuda_versions, [])


def _architectures(variant: Variant, facts: Facts) -> Iterator[Problem]:
    if variant.gpu is None:
        yield from _equal("TORCH_CUDA_ARCH_LIST", facts.arch_list, None)
        return
    if facts.gpu_targets is not None:
        yield from _equal("gpuTargets", facts.gpu_targets, [variant.gpu.capability])
    yield from _equal("TORCH_CUDA_ARCH_LIST", facts.arch_list, variant.gpu.capability)


def _cuda_version(variant: Variant, facts: Facts) -> Iterator[Problem]:
    cuda = variant.release.cuda
    if variant.gpu is None or cuda is None:
        yield from _equal("CUDA of torch", facts.cuda_version, None)
        return
    # A package set named by its major version is the minor one that the pin has.
    is_exact = cuda.package_set.count("_") > 1
    wanted = cuda.version if is_exact else cuda.version.split(".")[0]

    def reached(version: Any) -> Any:  # noqa: ANN401 - the same
        return version if is_exact else _text(version).split(".")[0]

    yield from _equal("CUDA of torch", reached(facts.cuda_version), wanted)
    yield from _equal("CUDA of MAGMA", reached(_get(facts.magma, "cudaVersion")), wanted)
    for version in facts.cuda_versions if isinstance(facts.cuda_versions, list) else []:
        yield from _equal("CUDA of an input", reached(version), wanted)


def _magma(variant: Variant, facts: Facts) -> Iterator[Problem]:
    if variant.gpu is None:
        yield from _equal("MAGMA", facts.magma, None)
        return
    patch = variant.release.magma_patch
    wanted = [{"name": patch.name, "url": patch.url, "hash": patch.hash}] if patch else []
    if facts.magma is None:
        yield Problem(found="torch links no MAGMA", expected="a static MAGMA")
        return
    yield from _equal("static MAGMA", _get(facts.magma, "static"), expected=True)
    yield from _equal("patches of MAGMA", _get(facts.magma, "patches"), wanted)


def _source(variant: Variant, facts: Facts) -> Iterator[Problem]:
    torch = variant.release.torch
    for name, wanted in (
        ("owner", torch.owner),
        ("repo", torch.repo),
        ("hash", torch.hash),
        ("fetchSubmodules", torch.submodules),
    ):
        yield from _equal(f"src.{name}", _get(facts.src, name), wanted)
    rev = _text(_get(facts.src, "rev")).removeprefix("refs/tags/")
    yield from _equal("src.rev", rev, torch.rev)


def _patches(variant: Variant, facts: Facts) -> Iterator[Problem]:
    del variant
    yield from _equal("patches", facts.patches, [])


def _cmake_flags(variant: Variant, facts: Facts) -> Iterator[Problem]:
    release = variant.release
    wanted = [f"-DTORCH_BUILD_VERSION={release.torch.version}"]
    if variant.gpu and release.cuda:
        if "cccl-shim" in release.cuda.fixes:
            wanted.append("-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat")
        wanted.append(f"-DCUDA_VERSION={release.cuda.version}")
    else:
        wanted.append("-DUSE_CUDA=OFF")
    flags = facts.cmake_flags if isinstance(facts.cmake_flags, list) else []
    for flag in wanted:
        if flag not in flags:
            yield Problem(found=f"cmakeFlags without {flag}", expected=flag)
        name = flag.partition("=")[0]
        for other in flags:
            if _text(other).partition("=")[0] == name and other != flag:
                yield Problem(found=f"{other} among cmakeFlags", expected=flag)
    if not any("CUDAToolkit_VERSION" in _text(flag) for flag in flags):
        yield Problem(found="cmakeFlags without those of nixpkgs", expected="oldAttrs' ++ [ ... ]")


def _isa(variant: Variant, facts: Facts) -> Iterator[Problem]:
    script = _text(facts.pre_configure)
    flags = " ".join(variant.cpu.flags)
    for name in ("CXXFLAGS", "CFLAGS"):
        found = re.findall(rf'(?m)^\s*export {name}="([^"\n]*)"', script)
        machine = [word for line in found for word in line.split() if word.startswith("-m")]
        if sorted(set(machine)) != sorted(set(variant.cpu.flags)):
            yield Problem(
                found=f"{name} with {' '.join(machine) or 'no machine flags'}",
                expected=f'export {name}="{flags} ${name}"',
            )
        if any(f"${name}" not in line and f"${{{name}" not in line for line in found):
            yield Problem(found=f"{name} that forgets what it was", expected=f"... ${name}")


def _cccl(variant: Variant, facts: Facts) -> Iterator[Problem]:
    cuda = variant.release.cuda
    script = _text(facts.pre_configure)
    if variant.gpu is None or cuda is None or "cccl-shim" not in cuda.fixes:
        if "cccl-compat" in script:
            yield Problem(found="a CCCL shim", expected="none in this variant")
        return
    for name in ("CXXFLAGS", "CFLAGS", "CUDAFLAGS"):
        if not re.search(rf'(?m)^\s*export {name}="[^"\n]*-I/build/cccl-compat\b', script):
            yield Problem(
                found=f"{name} without -I/build/cccl-compat",
                expected=f'export {name}="-I/build/cccl-compat ${name}"',
            )
    linked = re.search(r"for \w+ in ([\w ]+);", script)
    words = set((linked[1] if linked else "").split())
    words |= set(re.findall(r"/build/cccl-compat/cccl/(\w+)", script))
    if missing := {"cuda", "cub", "thrust", "nv"} - words:
        yield Problem(
            found=f"no link for {', '.join(sorted(missing))}",
            expected="/build/cccl-compat/cccl/{cuda,cub,thrust,nv}",
        )
    if not re.search(r"ln -s\w* \S*cuda_cccl\S*/include/", script):
        yield Problem(found="no link to cuda_cccl", expected="links to ${cuda_cccl}/include/...")


def _build_version(variant: Variant, facts: Facts) -> Iterator[Problem]:
    script = _text(facts.pre_configure)
    version = variant.release.torch.version
    exported = re.findall(r"(?m)^\s*export PYTORCH_BUILD_VERSION=\"?([^\"\s]*)", script)
    if (exported or [None])[-1] != version:
        yield Problem(
            found=f"PYTORCH_BUILD_VERSION={(exported or ['(of nixpkgs)'])[-1]}",
            expected=f"export PYTORCH_BUILD_VERSION={version}",
        )
    written = re.findall(r"echo \"?([^\"\s]*)\"? ?> ?version\.txt", script)
    if (written or [None])[-1] != version:
        yield Problem(
            found=f"version.txt with {(written or ['nothing'])[-1]}",
            expected=f'echo "{version}" > version.txt',
        )


def _nixpkgs_hooks(variant: Variant, facts: Facts) -> Iterator[Problem]:
    """What nixpkgs does in its hooks has to stay: recipes append to them."""
    if variant.gpu is None:
        if "export USE_CUDA=0" not in _text(facts.pre_configure):
            yield Problem(
                severity="warning",
                found="USE_CUDA left to the environment",
                expected="export USE_CUDA=0: setup.py reads that, not cmakeFlags",
            )
        return
    if "CUDNN_INCLUDE_DIR" not in _text(facts.pre_configure):
        yield Problem(
            found="preConfigure without that of nixpkgs", expected="oldAttrs.preConfigure + ..."
        )
    if "--replace-fail" not in _text(facts.post_patch):
        yield Problem(
            found="postPatch without that of nixpkgs", expected="oldAttrs.postPatch + ..."
        )


def _jobs(variant: Variant, facts: Facts) -> Iterator[Problem]:
    jobs = variant.release.build.max_jobs
    script = _text(facts.pre_configure)
    yield from _equal("ninjaFlags", facts.ninja_flags, [f"-j{jobs}"])
    exported = re.findall(r"(?m)^\s*export MAX_JOBS=(\S+)", script)
    yield from _equal("MAX_JOBS", (exported or [None])[-1], str(jobs))
    if not re.search(r"NIX_BUILD_CORES=\S", script):
        yield Problem(
            severity="warning",
            found="MAX_JOBS alone, which nixpkgs sets again from NIX_BUILD_CORES",
            expected=f"NIX_BUILD_CORES limited to {jobs}",
        )


def _stub(variant: Variant, facts: Facts) -> Iterator[Problem]:
    cuda = variant.release.cuda
    script = _text(facts.post_patch)
    written = re.search(rf">\s*{re.escape(_STUB)}", script)
    if variant.gpu is None or cuda is None or "find-cuda-toolkit-stub" not in cuda.fixes:
        if written:
            yield Problem(found="a FindCUDAToolkit stub", expected="none in this variant")
        return
    if written is None:
        yield Problem(found="no FindCUDAToolkit stub", expected=f"{_STUB} written in postPatch")
        return
    if f"rm {_STUB}" in script[written.end() :]:
        yield Problem(
            found="the stub written before nixpkgs removes the file",
            expected="oldAttrs.postPatch first, then the stub",
        )
    body = script[written.end() :]
    for part in (
        "if(NOT CUDAToolkit_FOUND)",
        "${CMAKE_MODULE_PATH}",
        'list(REMOVE_ITEM CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")',
        "include(FindCUDAToolkit)",
        "set(CMAKE_MODULE_PATH",
    ):
        if part not in body:
            yield Problem(
                found=f"a stub without {part}",
                expected="one that includes CMake's own module and restores the path",
            )


def _features(variant: Variant, facts: Facts) -> Iterator[Problem]:
    wanted = list(variant.release.build.system_features)
    yield from _equal("requiredSystemFeatures", facts.required_system_features, wanted)


def _passthru(variant: Variant, facts: Facts) -> Iterator[Problem]:
    wanted = {
        "gpuArch": variant.gpu.capability if variant.gpu else None,
        "cpuISA": variant.cpu_key,
        "blasProvider": "cublas" if variant.gpu else "openblas",
    }
    for name, value in wanted.items():
        yield from _equal(f"passthru.{name}", _get(facts.passthru, name), value)


def _meta(variant: Variant, facts: Facts) -> Iterator[Problem]:
    wanted = variant.cpu.platform
    yield from _equal("system", facts.system, wanted)
    yield from _equal("meta.platforms", _get(facts.meta, "platforms"), [wanted])
    release = variant.release
    description = _text(_get(facts.meta, "description"))
    if release.torch.version not in description:
        yield Problem(
            found=f'meta.description = "{description}"',
            expected=f"one that names PyTorch {release.torch.version}",
        )
    long = _text(_get(facts.meta, "longDescription"))
    words = ["GPU", "CPU", "CUDA", "PyTorch", "Driver", "Hardware"]
    missing = [word for word in words if word.lower() not in long.lower()]
    if missing:
        yield Problem(
            found=f"meta.longDescription without {', '.join(missing)}",
            expected=f"one that tells {', '.join(words)}",
        )
    if variant.gpu and release.cuda:
        major = release.cuda.driver.split(".")[0]
        for word, value in (("CUDA", release.cuda.version), ("driver", major)):
            if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\d)", long):
                yield Problem(
                    found=f"meta.longDescription without {word} {value}", expected=f"{word} {value}"
                )


_SAME = "bring the recipe in line with matrix.toml"

CHECKS: tuple[Check, ...] = (
    Evaluates(
        id="evaluates",
        title="Every recipe evaluates to a package",
        why="An argument that torch does not take, a name out of scope: no build begins.",
        mend="correct what Nix complains about",
        source="seed 000, issues 1 and 2",
    ),
    FactCheck(
        id="eval-names",
        title="Name, pname and version are the variant's",
        why="Labelled with one version and evaluating to another builds the wrong PyTorch.",
        mend="the overlay has to replace torch in python3Packages, which override then takes",
        source="seed 002, Reference Implementation",
        test=_names,
        word="pname",
    ),
    FactCheck(
        id="eval-pin",
        title="nixpkgs is the pinned one, with the tarball's hash",
        why="Another nixpkgs has another CUDA, another MAGMA, another torch.",
        mend=_SAME,
        source="seed 002, Key elements 1",
        test=_pin,
        word="fetchTarball",
    ),
    FactCheck(
        id="eval-cuda-support",
        title="CUDA is on in GPU variants and nowhere else",
        why="A CPU-only PyTorch by accident costs three hours and fails nobody's build.",
        mend="(torch.override { cudaSupport = ...; }).overrideAttrs",
        source="seed 003, Root Cause",
        test=_cuda_support,
        word="cudaSupport",
    ),
    FactCheck(
        id="eval-architecture",
        title="torch compiles for the variant's architecture alone",
        why="Another list compiles for hours and does not run, or takes nine times as long.",
        mend="gpuTargets = [ gpuArchSM ] with the dotted capability",
        source="seed 003, Key Changes 2; seed 002, What to Preserve",
        test=_architectures,
        word="gpuTargets",
    ),
    FactCheck(
        id="eval-cuda-version",
        title="torch, MAGMA and every input are on the release's CUDA",
        why="Two CUDA versions in one process crash at run time, not at build time.",
        mend="set cudaPackages in the first overlay",
        source="seed 002, Key elements 2",
        test=_cuda_version,
        word="cudaPackages",
    ),
    FactCheck(
        id="eval-magma",
        title="The MAGMA that torch links has the release's patch and no other",
        why="A patch that does not reach the static MAGMA leaves the compile error in place.",
        mend="patch `magma` in an overlay: the static one is made from it",
        source="seed 002, Verification 1",
        test=_magma,
        word="magma",
    ),
    FactCheck(
        id="eval-source",
        title="The source is the release's, by its hash",
        why="With the hash of another version Nix silently builds that one.",
        mend=_SAME,
        source="seed 001, step 3",
        test=_source,
        word="fetchFromGitHub",
    ),
    FactCheck(
        id="eval-patches",
        title="torch is built without nixpkgs' patches",
        why="They are for the version that nixpkgs ships and do not apply.",
        mend="patches = [];",
        source="seed 004, Canonical Recipe Pattern",
        test=_patches,
        word="patches",
    ),
    FactCheck(
        id="eval-cmake-flags",
        title="cmakeFlags are those of the plan, after those of nixpkgs",
        why="They are what the plan promises; a second value of one contradicts it.",
        mend="(oldAttrs.cmakeFlags or []) ++ [ ... ]",
        source="seed 002, Key elements 3",
        test=_cmake_flags,
        word="cmakeFlags",
    ),
    FactCheck(
        id="eval-isa-flags",
        title="The C and C++ compilers get the flags of the CPU ISA",
        why="Bound and not exported, the flags have no effect and nobody notices.",
        mend="export CXXFLAGS and CFLAGS in preConfigure, the flags first",
        source="seed 004, CPU ISA Flags",
        test=_isa,
        word="CXXFLAGS",
    ),
    FactCheck(
        id="eval-cccl",
        title="The CCCL headers are where PyTorch looks for them",
        why="cccl/cuda/std/utility: No such file, an hour into the build.",
        mend="links in /build/cccl-compat/cccl and -I/build/cccl-compat in the three flags",
        source="seed 002, Key elements 4",
        test=_cccl,
        word="cccl-compat",
    ),
    FactCheck(
        id="eval-build-version",
        title="The build calls itself by the release's version",
        why="nixpkgs exports the version it ships; headers that compare the two do not compile.",
        mend="export PYTORCH_BUILD_VERSION and write version.txt in preConfigure",
        source="seed 002, Key elements 4",
        test=_build_version,
        word="PYTORCH_BUILD_VERSION",
    ),
    FactCheck(
        id="eval-hooks",
        title="preConfigure and postPatch go on from those of nixpkgs",
        why="Replaced, they drop the architecture list, the paths of CUPTI and cuDNN, or CUDA=0.",
        mend="(oldAttrs.preConfigure or \"\") + ''...''",
        source="seed 003, Key Changes 4",
        test=_nixpkgs_hooks,
        word="preConfigure",
    ),
    FactCheck(
        id="eval-jobs",
        title="Parallel compilation is limited, for real",
        why="CUDA compile jobs take up to 5 GiB each; too many and the kernel kills the build.",
        mend="ninjaFlags, MAX_JOBS and NIX_BUILD_CORES say the same number",
        source="nixpkgs: preBuild of torch sets MAX_JOBS",
        test=_jobs,
        word="MAX_JOBS",
    ),
    FactCheck(
        id="eval-stub",
        title="The FindCUDAToolkit stub is written after nixpkgs removed the file",
        why="PyTorch installs the file and gloo finds CUDA through it; an empty one finds none.",
        mend='(oldAttrs.postPatch or "") + the delegating stub',
        source="seed 002, Key elements 5",
        test=_stub,
        word="FindCUDAToolkit",
    ),
    FactCheck(
        id="eval-features",
        title="The build asks for a big machine",
        why="Without big-parallel Nix hands it to the smallest builder.",
        mend='requiredSystemFeatures = [ "big-parallel" ];',
        source="seed 004, Key differences; what public builds of this matrix do",
        test=_features,
        word="requiredSystemFeatures",
    ),
    FactCheck(
        id="eval-passthru",
        title="passthru tells architecture, ISA and BLAS",
        why="Programs choose a package by them.",
        mend="(oldAttrs.passthru or {}) // { ... }",
        source="seed 004, Key differences; what public builds of this matrix do",
        test=_passthru,
        word="passthru",
    ),
    FactCheck(
        id="eval-meta",
        title="Platform and descriptions are the variant's",
        why="Nix sends the build to the wrong machine; people install the wrong package.",
        mend="system, meta.platforms and longDescription as matrix.toml says",
        source="seed 002, What to Preserve Per-Variant",
        test=_meta,
        word="meta",
    ),
    DistinctDerivations(
        id="eval-distinct",
        title="Every variant is a build of its own",
        why="A copy with only its comment changed builds the same thing twice.",
        mend="give each recipe its own architecture and ISA",
        source="seed 002: copies of the canonical recipe",
    ),
    NoWarnings(
        id="eval-warnings",
        title="Nix evaluates every recipe without a warning",
        why="A warning of today is an error of the next nixpkgs, or an override that does nothing.",
        mend="do what the warning says",
        source="nixpkgs: lib.warn, and overrideAttrs that changes a version without its source",
    ),
)
