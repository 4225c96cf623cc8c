"""That the build is told what the plan says, and that the telling has an effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import Check, Problem
from build_pytorch.verify.checks.evaluation_kinds import FactCheck, equal, shell_of, text_of
from build_pytorch.verify.recipe_evaluation import Facts

_STUB: Final = "cmake/Modules/FindCUDAToolkit.cmake"


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
            if text_of(other).partition("=")[0] == name and other != flag:
                yield Problem(found=f"{other} among cmakeFlags", expected=flag)
    if not any("CUDAToolkit_VERSION" in text_of(flag) for flag in flags):
        yield Problem(found="cmakeFlags without those of nixpkgs", expected="oldAttrs' ++ [ ... ]")


def _isa(variant: Variant, facts: Facts) -> Iterator[Problem]:
    script = shell_of(facts.pre_configure)
    flags = " ".join(variant.cpu.flags)
    for name in ("CXXFLAGS", "CFLAGS"):
        # A += keeps what was there; a plain = has to name it.
        added = re.findall(rf"(?m)^\s*(?:export )?{name}\+=(.*)$", script)
        found = re.findall(rf"(?m)^\s*(?:export )?{name}=(.*)$", script)
        found += re.findall(rf"(?m)^\s*unset [^\n]*\b{name}\b.*$", script)
        machine = re.findall(r"-m[\w.+=-]+", " ".join([*found, *added]))
        if sorted(set(machine)) != sorted(set(variant.cpu.flags)):
            yield Problem(
                found=f"{name} with {' '.join(machine) or 'no machine flags'}",
                expected=f'export {name}="{flags} ${name}"',
            )
        if any(f"${name}" not in line and f"${{{name}" not in line for line in found if line):
            yield Problem(found=f"{name} that forgets what it was", expected=f"... ${name}")


def _cccl(variant: Variant, facts: Facts) -> Iterator[Problem]:
    cuda = variant.release.cuda
    script = shell_of(facts.pre_configure)
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
    link = r"ln -\S+ \S*cuda(?P<cuda>[\d.]*)-cuda_cccl\S*/include/\S+ /build/cccl-compat/cccl/"
    linked_to = re.search(link, script)
    if not linked_to:
        yield Problem(found="no link to cuda_cccl", expected="links to ${cuda_cccl}/include/...")
    elif linked_to["cuda"] and linked_to["cuda"] != text_of(facts.cuda_version):
        yield Problem(
            found=f"the headers of CUDA {linked_to['cuda']}",
            expected=f"those of CUDA {facts.cuda_version}",
        )
    if not re.search(r"mkdir -p \S*/build/cccl-compat/cccl\b", script):
        yield Problem(found="no folder for the links", expected="mkdir -p /build/cccl-compat/cccl")


def _build_version(variant: Variant, facts: Facts) -> Iterator[Problem]:
    script = shell_of(facts.pre_configure)
    version = variant.release.torch.version
    exported = re.findall(r"(?m)^\s*export PYTORCH_BUILD_VERSION=[\"']?([\w.]*)", script)
    if (exported or [None])[-1] != version:
        yield Problem(
            found=f"PYTORCH_BUILD_VERSION={(exported or ['(of nixpkgs)'])[-1]}",
            expected=f"export PYTORCH_BUILD_VERSION={version}",
        )
    written = re.findall(
        r"(?m)^\s*(?:echo|printf) .*?(\d[\w.]*?)(?:\\n)?[\"']? *> *(?:\./)?version\.txt", script
    )
    if (written or [None])[-1] != version:
        yield Problem(
            found=f"version.txt with {(written or ['nothing'])[-1]}",
            expected=f'echo "{version}" > version.txt',
        )


def _nixpkgs_hooks(variant: Variant, facts: Facts) -> Iterator[Problem]:
    """What nixpkgs does in its hooks has to stay: recipes append to them."""
    if variant.gpu is None:
        if "export USE_CUDA=0" not in shell_of(facts.pre_configure):
            yield Problem(
                severity="warning",
                found="USE_CUDA left to the environment",
                expected="export USE_CUDA=0: setup.py reads that, not cmakeFlags",
            )
        return
    if "MAX_JOBS=$NIX_BUILD_CORES" not in text_of(facts.pre_build):
        yield Problem(found="preBuild without that of nixpkgs", expected="preBuild left alone")
    if "CUDNN_INCLUDE_DIR" not in shell_of(facts.pre_configure):
        yield Problem(
            found="preConfigure without that of nixpkgs", expected="oldAttrs.preConfigure + ..."
        )
    if "--replace-fail" not in shell_of(facts.post_patch):
        yield Problem(
            found="postPatch without that of nixpkgs", expected="oldAttrs.postPatch + ..."
        )


def _jobs(variant: Variant, facts: Facts) -> Iterator[Problem]:
    jobs = variant.release.build.max_jobs
    script = shell_of(facts.pre_configure)
    yield from equal("ninjaFlags", facts.ninja_flags, [f"-j{jobs}"])
    exported = re.findall(r"(?m)^\s*export MAX_JOBS=[\"']?(\w+)", script)
    yield from equal("MAX_JOBS", (exported or [None])[-1], str(jobs))
    limits = re.findall(r"NIX_BUILD_CORES=(.*)", script)
    if not limits or not re.search(rf"\b{jobs}\b", limits[-1]):
        yield Problem(
            severity="warning",
            found="MAX_JOBS alone, which nixpkgs sets again from NIX_BUILD_CORES",
            expected=f"NIX_BUILD_CORES limited to {jobs}",
        )


def _stub(variant: Variant, facts: Facts) -> Iterator[Problem]:
    cuda = variant.release.cuda
    script = shell_of(facts.post_patch)
    written = re.search(rf">\s*(?:\./)?{re.escape(_STUB)}", script)
    if variant.gpu is None or cuda is None or "find-cuda-toolkit-stub" not in cuda.fixes:
        if written:
            yield Problem(found="a FindCUDAToolkit stub", expected="none in this variant")
        return
    if written is None:
        yield Problem(found="no FindCUDAToolkit stub", expected=f"{_STUB} written in postPatch")
        return
    body = script[written.end() :]
    if re.search(rf"(?m)^\s*rm\b.*{re.escape(_STUB)}", body):
        yield Problem(
            found="the stub removed after it was written",
            expected="oldAttrs.postPatch first, then the stub",
        )
        return
    command = script[script.rfind("\n", 0, written.start()) + 1 :].split("\n")[0]
    if not re.search(r"<<-?\s*['\"]\w+['\"]", command):
        yield Problem(found="a stub that the shell fills in", expected="<<'CMAKE', in quotes")
    position = 0
    for part in (
        r"if\s*\(\s*NOT CUDAToolkit_FOUND\s*\)",
        r"set\s*\(\w+ \"?\$\{CMAKE_MODULE_PATH\}\"?\)",
        r"list\s*\(REMOVE_ITEM CMAKE_MODULE_PATH \"?\$\{CMAKE_CURRENT_LIST_DIR\}\"?\)",
        r"include\s*\(FindCUDAToolkit\)",
        r"set\s*\(CMAKE_MODULE_PATH \"?\$\{\w+\}\"?\)",
        r"endif\s*\(",
        r"(?m)^\w+$",  # what ends the text, at the start of a line
    ):
        match = re.compile(part).search(body, position)
        if match is None:
            yield Problem(
                found=f"a stub without {part} in its place",
                expected="one that includes CMake's own module and restores the path",
            )
            return
        position = match.end()


def _features(variant: Variant, facts: Facts) -> Iterator[Problem]:
    wanted = list(variant.release.build.system_features)
    yield from equal("requiredSystemFeatures", facts.required_system_features, wanted)


CHECKS: tuple[Check, ...] = (
    FactCheck(
        id="eval-cmake-flags",
        title="cmakeFlags are those of the plan, after those of nixpkgs",
        why="They are what the plan promises; a second value of one contradicts it.",
        fix="(oldAttrs.cmakeFlags or []) ++ [ ... ]",
        source="seed 002, Key elements 3",
        test=_cmake_flags,
        word="cmakeFlags",
    ),
    FactCheck(
        id="eval-isa-flags",
        title="The C and C++ compilers get the flags of the CPU ISA",
        why="Bound and not exported, the flags have no effect and nobody notices.",
        fix="export CXXFLAGS and CFLAGS in preConfigure, the flags first",
        source="seed 004, CPU ISA Flags",
        test=_isa,
        word="CXXFLAGS",
    ),
    FactCheck(
        id="eval-cccl",
        title="The CCCL headers are where PyTorch looks for them",
        why="cccl/cuda/std/utility: No such file, an hour into the build.",
        fix="links in /build/cccl-compat/cccl and -I/build/cccl-compat in the three flags",
        source="seed 002, Key elements 4",
        test=_cccl,
        word="cccl-compat",
    ),
    FactCheck(
        id="eval-build-version",
        title="The build calls itself by the release's version",
        why="nixpkgs exports the version it ships; headers that compare the two do not compile.",
        fix="export PYTORCH_BUILD_VERSION and write version.txt in preConfigure",
        source="seed 002, Key elements 4",
        test=_build_version,
        word="PYTORCH_BUILD_VERSION",
    ),
    FactCheck(
        id="eval-hooks",
        title="preConfigure and postPatch go on from those of nixpkgs",
        why="Replaced, they drop the architecture list, the paths of CUPTI and cuDNN, or CUDA=0.",
        fix="(oldAttrs.preConfigure or \"\") + ''...''",
        source="seed 003, Key Changes 4",
        test=_nixpkgs_hooks,
        word="preConfigure",
    ),
    FactCheck(
        id="eval-jobs",
        title="Parallel compilation is limited, for real",
        why="CUDA compile jobs take up to 5 GiB each; too many and the kernel kills the build.",
        fix="ninjaFlags, MAX_JOBS and NIX_BUILD_CORES say the same number",
        source="nixpkgs: preBuild of torch sets MAX_JOBS",
        test=_jobs,
        word="MAX_JOBS",
    ),
    FactCheck(
        id="eval-stub",
        title="The FindCUDAToolkit stub is written after nixpkgs removed the file",
        why="PyTorch installs the file and gloo finds CUDA through it; an empty one finds none.",
        fix='(oldAttrs.postPatch or "") + the delegating stub',
        source="seed 002, Key elements 5",
        test=_stub,
        word="FindCUDAToolkit",
    ),
    FactCheck(
        id="eval-features",
        title="The build asks for a big machine",
        why="Without big-parallel Nix hands it to the smallest builder.",
        fix='requiredSystemFeatures = [ "big-parallel" ];',
        source="seed 004, Key differences; what public builds of this matrix do",
        test=_features,
        word="requiredSystemFeatures",
    ),
)
