"""Checks that build flags, hooks and fixes of the matrix reach the build and have an effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.checks.fact_checks import FACTS, equal, shell_of, text_of
from build_pytorch.verify.recipe_evaluation import Facts

CHECKS: Final = CheckList(FACTS)

_STUB: Final = "cmake/Modules/FindCUDAToolkit.cmake"


@CHECKS.add(
    id="eval-cmake-flags",
    title="cmakeFlags are those of the matrix, after those of nixpkgs",
    why="Version, CUDA and fixes reach CMake by them; a second value contradicts the first.",
    fix="(oldAttrs.cmakeFlags or []) ++ [ ... ]",
    word="cmakeFlags",
)
def _cmake_flags(variant: Variant, facts: Facts) -> Iterator[Finding]:
    release = variant.release
    wanted = [f"-DTORCH_BUILD_VERSION={release.torch.version}"]
    if variant.gpu and release.cuda:
        if "cccl-shim" in release.cuda.fixes:
            wanted.append("-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat")
        wanted.append(f"-DCUDA_VERSION={release.cuda.version}")
    else:
        wanted.append("-DUSE_CUDA=OFF")
    flags = facts["cmakeFlags"] if isinstance(facts["cmakeFlags"], list) else []
    for flag in wanted:
        if flag not in flags:
            yield Finding(f"cmakeFlags without {flag}", flag)
        name = flag.partition("=")[0]
        for other in flags:
            if text_of(other).partition("=")[0] == name and other != flag:
                yield Finding(f"{other} among cmakeFlags", flag)
    if not any("CUDAToolkit_VERSION" in text_of(flag) for flag in flags):
        yield Finding("cmakeFlags without those of nixpkgs", "oldAttrs' ++ [ ... ]")


@CHECKS.add(
    id="eval-isa-flags",
    title="The C and C++ compilers get the flags of the CPU ISA",
    why="Flags that are bound and not exported have no effect, and no message says so.",
    fix="export CXXFLAGS and CFLAGS in preConfigure, with the flags first",
    word="CXXFLAGS",
)
def _isa(variant: Variant, facts: Facts) -> Iterator[Finding]:
    script = shell_of(facts["preConfigure"])
    flags = " ".join(variant.cpu.flags)
    for name in ("CXXFLAGS", "CFLAGS"):
        # += keeps the old value; a plain = has to name it.
        added = re.findall(rf"(?m)^\s*(?:export )?{name}\+=(.*)$", script)
        found = re.findall(rf"(?m)^\s*(?:export )?{name}=(.*)$", script)
        found += re.findall(rf"(?m)^\s*unset [^\n]*\b{name}\b.*$", script)
        machine = re.findall(r"-m[\w.+=-]+", " ".join([*found, *added]))
        if sorted(set(machine)) != sorted(set(variant.cpu.flags)):
            text = f"{name} with {' '.join(machine) or 'no machine flags'}"
            yield Finding(text, f'export {name}="{flags} ${name}"')
        if any(f"${name}" not in line and f"${{{name}" not in line for line in found if line):
            yield Finding(f"{name} without its previous value", f"... ${name}")


@CHECKS.add(
    id="eval-cccl",
    title="The CCCL headers are in the folder that PyTorch includes",
    why="cccl/cuda/std/utility: No such file, an hour into the build.",
    fix="links in /build/cccl-compat/cccl and -I/build/cccl-compat in the three flags",
    word="cccl-compat",
)
def _cccl(variant: Variant, facts: Facts) -> Iterator[Finding]:
    cuda = variant.release.cuda
    script = shell_of(facts["preConfigure"])
    if variant.gpu is None or cuda is None or "cccl-shim" not in cuda.fixes:
        if "cccl-compat" in script:
            yield Finding("a CCCL shim", "none in this variant")
        return
    for name in ("CXXFLAGS", "CFLAGS", "CUDAFLAGS"):
        if not re.search(rf'(?m)^\s*export {name}="[^"\n]*-I/build/cccl-compat\b', script):
            expected = f'export {name}="-I/build/cccl-compat ${name}"'
            yield Finding(f"{name} without -I/build/cccl-compat", expected)
    listed = re.search(r"for \w+ in ([\w ]+);", script)
    linked = set((listed[1] if listed else "").split())
    linked |= set(re.findall(r"/build/cccl-compat/cccl/(\w+)", script))
    if missing := {"cuda", "cub", "thrust", "nv"} - linked:
        expected = "/build/cccl-compat/cccl/{cuda,cub,thrust,nv}"
        yield Finding(f"no link for {', '.join(sorted(missing))}", expected)
    link = r"ln -\S+ \S*cuda(?P<cuda>[\d.]*)-cuda_cccl\S*/include/\S+ /build/cccl-compat/cccl/"
    target = re.search(link, script)
    if not target:
        yield Finding("no link to cuda_cccl", "links to ${cuda_cccl}/include/...")
    elif target["cuda"] and target["cuda"] != text_of(facts["cudaVersion"]):
        expected = f"the headers of CUDA {facts['cudaVersion']}"
        yield Finding(f"the headers of CUDA {target['cuda']}", expected)
    if not re.search(r"mkdir -p \S*/build/cccl-compat/cccl\b", script):
        yield Finding("no folder for the links", "mkdir -p /build/cccl-compat/cccl")


@CHECKS.add(
    id="eval-build-version",
    title="The build has the version of the release",
    why="nixpkgs exports the version it ships; headers that compare the two do not compile.",
    fix="export PYTORCH_BUILD_VERSION and write version.txt in preConfigure",
    word="PYTORCH_BUILD_VERSION",
)
def _build_version(variant: Variant, facts: Facts) -> Iterator[Finding]:
    script = shell_of(facts["preConfigure"])
    version = variant.release.torch.version
    exported = _last(r"^\s*export PYTORCH_BUILD_VERSION=[\"']?([\w.]*)", script, "(of nixpkgs)")
    if exported != version:
        expected = f"export PYTORCH_BUILD_VERSION={version}"
        yield Finding(f"PYTORCH_BUILD_VERSION={exported}", expected)
    echo = r"^\s*(?:echo|printf) .*?(\d[\w.]*?)(?:\\n)?[\"']? *> *(?:\./)?version\.txt"
    written = _last(echo, script, "nothing")
    if written != version:
        yield Finding(f"version.txt with {written}", f'echo "{version}" > version.txt')


def _last(pattern: str, script: str, default: str) -> str:
    """Return the group of the last match: in a shell the last assignment counts."""
    matches: list[str] = re.findall(f"(?m){pattern}", script)
    return matches[-1] if matches else default


@CHECKS.add(
    id="eval-hooks",
    title="preConfigure and postPatch extend those of nixpkgs",
    why="Replaced hooks lose the architecture list, the paths of CUPTI and cuDNN, or CUDA=0.",
    fix="(oldAttrs.preConfigure or \"\") + ''...''",
    word="preConfigure",
)
def _nixpkgs_hooks(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.gpu is None:
        if "export USE_CUDA=0" not in shell_of(facts["preConfigure"]):
            yield Finding(
                "USE_CUDA not set in the environment",
                "export USE_CUDA=0: setup.py reads that, not cmakeFlags",
                severity="warning",
            )
        return
    if "MAX_JOBS=$NIX_BUILD_CORES" not in text_of(facts["preBuild"]):
        yield Finding("preBuild without that of nixpkgs", "preBuild unchanged")
    if "CUDNN_INCLUDE_DIR" not in shell_of(facts["preConfigure"]):
        yield Finding("preConfigure without that of nixpkgs", "oldAttrs.preConfigure + ...")
    if "--replace-fail" not in shell_of(facts["postPatch"]):
        yield Finding("postPatch without that of nixpkgs", "oldAttrs.postPatch + ...")


@CHECKS.add(
    id="eval-jobs",
    title="The limit of parallel compile jobs has an effect",
    why="CUDA compile jobs take up to 5 GiB each; with too many, the kernel kills the build.",
    fix="set ninjaFlags, MAX_JOBS and NIX_BUILD_CORES to the same number",
    word="MAX_JOBS",
)
def _jobs(variant: Variant, facts: Facts) -> Iterator[Finding]:
    jobs = variant.release.build.max_jobs
    script = shell_of(facts["preConfigure"])
    yield from equal("ninjaFlags", facts["ninjaFlags"], [f"-j{jobs}"])
    yield from equal("MAX_JOBS", _last(r"^\s*export MAX_JOBS=[\"']?(\w+)", script, ""), str(jobs))
    if not re.search(rf"\b{jobs}\b", _last(r"NIX_BUILD_CORES=(.*)", script, "")):
        yield Finding(
            "MAX_JOBS alone, which nixpkgs sets again from NIX_BUILD_CORES",
            f"NIX_BUILD_CORES limited to {jobs}",
            severity="warning",
        )


@CHECKS.add(
    id="eval-stub",
    title="The FindCUDAToolkit stub is written after nixpkgs removed the file",
    why="PyTorch installs the file and gloo finds CUDA through it; an empty file finds none.",
    fix='(oldAttrs.postPatch or "") + the delegating stub',
    word="FindCUDAToolkit",
)
def _stub(variant: Variant, facts: Facts) -> Iterator[Finding]:
    cuda = variant.release.cuda
    script = shell_of(facts["postPatch"])
    written = re.search(rf">\s*(?:\./)?{re.escape(_STUB)}", script)
    if variant.gpu is None or cuda is None or "find-cuda-toolkit-stub" not in cuda.fixes:
        if written:
            yield Finding("a FindCUDAToolkit stub", "none in this variant")
        return
    if written is None:
        yield Finding("no FindCUDAToolkit stub", f"{_STUB} written in postPatch")
        return
    body = script[written.end() :]
    if re.search(rf"(?m)^\s*rm\b.*{re.escape(_STUB)}", body):
        expected = "oldAttrs.postPatch first, then the stub"
        yield Finding("the stub removed after it was written", expected)
        return
    command = script[script.rfind("\n", 0, written.start()) + 1 :].split("\n")[0]
    if not re.search(r"<<-?\s*['\"]\w+['\"]", command):
        yield Finding("a stub with shell variables expanded", "<<'CMAKE', in quotes")
    position = 0
    for part in (
        r"if\s*\(\s*NOT CUDAToolkit_FOUND\s*\)",
        r"set\s*\(\w+ \"?\$\{CMAKE_MODULE_PATH\}\"?\)",
        r"list\s*\(REMOVE_ITEM CMAKE_MODULE_PATH \"?\$\{CMAKE_CURRENT_LIST_DIR\}\"?\)",
        r"include\s*\(FindCUDAToolkit\)",
        r"set\s*\(CMAKE_MODULE_PATH \"?\$\{\w+\}\"?\)",
        r"endif\s*\(",
        r"(?m)^\w+$",  # the delimiter that ends the text, at the start of a line
    ):
        match = re.compile(part).search(body, position)
        if match is None:
            expected = "a stub that includes CMake's own module and restores the path"
            yield Finding(f"a stub without {part} in its place", expected)
            return
        position = match.end()


@CHECKS.add(
    id="eval-features",
    title="The build requires a large machine",
    why="Without big-parallel Nix may choose the smallest builder.",
    fix='requiredSystemFeatures = [ "big-parallel" ];',
    word="requiredSystemFeatures",
)
def _features(variant: Variant, facts: Facts) -> Iterator[Finding]:
    wanted = list(variant.release.build.system_features)
    yield from equal("requiredSystemFeatures", facts["requiredSystemFeatures"], wanted)
