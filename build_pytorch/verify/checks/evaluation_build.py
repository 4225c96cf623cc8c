"""Checks that build flags, hooks and fixes of the matrix reach the build and have an effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.matrix.model import Package, Variant
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.recipe_facts import (
    FACTS,
    PACKAGE_FACTS,
    Facts,
    equal,
    without_hashes,
    without_packages,
)

CHECKS: Final = CheckList(FACTS)

_FLAGS_OF_NIXPKGS: Final = ("-DPYTHON_SIX", "-DCUDAToolkit", "-DCMAKE_CUDA_COMPILER_TOOLKIT")
_STUB: Final = "cmake/Modules/FindCUDAToolkit.cmake"
_STUB_PARTS: Final = (
    r"if\s*\(\s*NOT CUDAToolkit_FOUND\s*\)",
    r"include\s*\(\"?\$\{CMAKE_ROOT\}/Modules/FindCUDAToolkit\.cmake\"?\)",
    r"endif\s*\(",
    r"(?m)^\w+$",  # the delimiter that ends the text, at the start of a line
)
_STUB_BY_NAME: Final = (
    _STUB_PARTS[0],
    r"set\s*\(\w+ \"?\$\{CMAKE_MODULE_PATH\}\"?\)",
    r"list\s*\(REMOVE_ITEM CMAKE_MODULE_PATH \"?\$\{CMAKE_CURRENT_LIST_DIR\}\"?\)",
    r"include\s*\(FindCUDAToolkit\)",
    r"set\s*\(CMAKE_MODULE_PATH \"?\$\{\w+\}\"?\)",
    *_STUB_PARTS[2:],
)


@CHECKS.add(
    id="eval-cmake-flags",
    title="cmakeFlags are those of the matrix, after those of nixpkgs",
    why="Version, CUDA and fixes reach CMake by them; a second value contradicts the first.",
    fix="(oldAttrs.cmakeFlags or []) ++ [ ... ]",
    word="cmakeFlags",
)
def _cmake_flags(variant: Variant, facts: Facts) -> Iterator[Finding]:
    torch = variant.release.torch
    wanted = [] if torch.is_of_pin else [f"-DTORCH_BUILD_VERSION={torch.version}"]
    wanted += variant.effects.cmake_flags
    if cuda := variant.cuda:
        wanted.append(f"-DCUDA_VERSION={cuda.version}")
        if _has_fix(variant, "cccl-shim"):
            wanted.append("-DCMAKE_CUDA_FLAGS=-I/build/cccl-compat")
    else:
        wanted.append("-DUSE_CUDA=OFF")
    flags = list(map(str, facts.list("cmakeFlags")))
    for flag in wanted:
        if flag not in flags:
            yield Finding(f"cmakeFlags without {flag}", flag)
        for other in flags:
            if other.partition("=")[0] == flag.partition("=")[0] and other != flag:
                yield Finding(f"{other} among cmakeFlags", flag)
    if not any("CUDAToolkit_VERSION" in flag for flag in flags):
        yield Finding("cmakeFlags without those of nixpkgs", "oldAttrs' ++ [ ... ]")
    for flag in flags if facts.value("nixpkgs") else ():  # flags of a real nixpkgs are unknown
        if flag not in wanted and not flag.startswith(_FLAGS_OF_NIXPKGS):
            yield Finding(f"{flag} among cmakeFlags", "no flag that no rule asks for")


@CHECKS.add(
    id="eval-environment",
    title="The switches of the build are those of the rules",
    why="A missing switch builds code that the GPU or CPU cannot run; another one drops a library.",
    fix="export the variables of the rules in preConfigure, and no other USE_...",
    word="preConfigure",
)
def _environment(variant: Variant, facts: Facts) -> Iterator[Finding]:
    script = facts.shell("preConfigure")
    found = dict(re.findall(r"(?m)^\s*(?:export )?(\w+)=[\"']?([^\"'\n]*)", script))
    wanted = variant.effects.environment
    for name, value in wanted.items():
        if found.get(name) != value:
            yield Finding(f"{name}={found.get(name, '')}", f"export {name}={value}")
    for name, value in found.items():
        if name.startswith("USE_") and name not in wanted and name != "USE_CUDA":
            yield Finding(f"{name}={value}", f"no {name}: no rule asks for it")


@CHECKS.add(
    PACKAGE_FACTS,
    id="eval-isa-flags",
    title="The C and C++ compilers get the flags of the CPU ISA",
    why="Flags that are bound and not exported have no effect, and there is no message.",
    fix="export CXXFLAGS and CFLAGS in preConfigure, with the flags first",
    word="CXXFLAGS",
)
def _isa(package: Package, facts: Facts) -> Iterator[Finding]:
    script = facts.shell("preConfigure")
    variant = package.variant
    flags = " ".join(variant.cpu.flags)
    for name in ("CXXFLAGS", "CFLAGS"):
        # += keeps the old value; a plain = has to name it.
        added = re.findall(rf"(?m)^\s*(?:export )?{name}\+=(.*)$", script)
        found = re.findall(rf"(?m)^\s*(?:export )?{name}=(.*)$", script)
        found += re.findall(rf"(?m)^\s*unset [^\n]*\b{name}\b.*$", script)
        machine = re.findall(r"-m[\w.+=-]+", " ".join([*found, *added]))
        if set(machine) != set(variant.cpu.flags):
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
    script = facts.shell("preConfigure")
    if not _has_fix(variant, "cccl-shim"):
        if "cccl-compat" in script:
            yield Finding("a CCCL shim", "none in this variant")
        return
    for name in ("CXXFLAGS", "CFLAGS", "CUDAFLAGS"):
        if not re.search(rf'(?m)^\s*export {name}="[^"\n]*-I/build/cccl-compat\b', script):
            expected = f'export {name}="-I/build/cccl-compat ${name}"'
            yield Finding(f"{name} without -I/build/cccl-compat", expected)
    linked = set(" ".join(re.findall(r"for \w+ in ([\w ]+);", script)).split())
    linked |= set(re.findall(r"/build/cccl-compat/cccl/(\w+)", script))
    if missing := {"cuda", "cub", "thrust", "nv"} - linked:
        expected = "/build/cccl-compat/cccl/{cuda,cub,thrust,nv}"
        yield Finding(f"no link for {', '.join(sorted(missing))}", expected)
    link = r"ln -\S+ \S*cuda(?P<cuda>[\d.]*)-cuda_cccl\S*/include/\S+ /build/cccl-compat/cccl/"
    if not (target := re.search(link, script)):
        yield Finding("no link to cuda_cccl", "links to ${cuda_cccl}/include/...")
    elif target["cuda"] not in {"", wanted := facts.text("cudaVersion")}:
        yield Finding(f"the headers of CUDA {target['cuda']}", f"the headers of CUDA {wanted}")
    if not re.search(r"mkdir -p \S*/build/cccl-compat/cccl\b", script):
        yield Finding("no folder for the links", "mkdir -p /build/cccl-compat/cccl")


def _has_fix(variant: Variant, name: str) -> bool:
    return name in variant.effects.fixes


@CHECKS.add(
    id="eval-build-version",
    title="The build has the version of the release",
    why="nixpkgs exports the version it ships; headers that compare the two do not compile.",
    fix="export PYTORCH_BUILD_VERSION and write version.txt in preConfigure",
    word="PYTORCH_BUILD_VERSION",
)
def _build_version(variant: Variant, facts: Facts) -> Iterator[Finding]:
    script = facts.shell("preConfigure")
    version = variant.release.torch.version
    if variant.release.torch.is_of_pin:
        for word in ("PYTORCH_BUILD_VERSION", "version.txt"):
            if word in script:
                yield Finding(f"{word} in preConfigure", f"the {version} of nixpkgs")
        return
    export = r"^\s*export PYTORCH_BUILD_VERSION=[\"']?([\w.]*)"
    yield from equal("PYTORCH_BUILD_VERSION", _last(export, script, "(of nixpkgs)"), version)
    echo = r"^\s*(?:echo|printf) .*?(\d[\w.]*?)(?:\\n)?[\"']? *> *(?:\./)?version\.txt"
    yield from equal("version.txt", _last(echo, script, "(not written)"), version)


def _last(pattern: str, script: str, default: str) -> str:
    """Return the group of the last match: in a shell the last assignment counts."""
    found: list[str] = re.findall(f"(?m){pattern}", script)
    return found[-1] if found else default


@CHECKS.add(
    PACKAGE_FACTS,
    id="eval-hooks",
    title="The hooks extend those of nixpkgs",
    why="Replaced hooks lose the architecture list and the paths of CUPTI and cuDNN.",
    fix="(oldAttrs.preConfigure or \"\") + ''...''",
    word="preConfigure",
)
def _nixpkgs_hooks(package: Package, facts: Facts) -> Iterator[Finding]:
    if (
        isinstance(package, Variant)
        and not package.gpu
        and "export USE_CUDA=0" not in facts.shell("preConfigure")
    ):
        expected = "export USE_CUDA=0: setup.py reads that, not cmakeFlags"
        yield Finding("USE_CUDA not set in the environment", expected, severity="warning")
    for hook in ("postPatch", "preConfigure", "preBuild"):
        # The line with the architectures depends on gpuTargets.
        texts = (without_hashes(facts.shell(f"{of}{hook}")) for of in ("pin.", ""))
        lines = [without_packages(text, package).splitlines() for text in texts]
        missing = [line for line in lines[0] if "_ARCH_LIST=" not in line and line not in lines[1]]
        if missing:
            yield Finding(f"{hook} without: {missing[0].strip()}", f"oldAttrs.{hook} + ...")


@CHECKS.add(
    PACKAGE_FACTS,
    id="eval-jobs",
    title="The limit of parallel compile jobs has an effect",
    why="CUDA compile jobs take up to 5 GiB each; with too many, the kernel kills the build.",
    fix="set ninjaFlags, MAX_JOBS and NIX_BUILD_CORES to the same number",
    word="MAX_JOBS",
)
def _jobs(package: Package, facts: Facts) -> Iterator[Finding]:
    jobs = package.variant.effects.max_jobs
    script = facts.shell("preConfigure")
    if isinstance(package, Variant):
        yield from facts.expect({"ninjaFlags": [f"-j{jobs}"]})
    yield from equal("MAX_JOBS", _last(r"^\s*export MAX_JOBS=[\"']?(\w+)", script, ""), str(jobs))
    if not re.search(rf"\b{jobs}\b", _last(r"NIX_BUILD_CORES=(.*)", script, "")):
        found = "MAX_JOBS alone, which nixpkgs sets again from NIX_BUILD_CORES"
        yield Finding(found, f"NIX_BUILD_CORES limited to {jobs}", severity="warning")


@CHECKS.add(
    id="eval-stub",
    title="The FindCUDAToolkit stub is written after nixpkgs removed the file",
    why="PyTorch installs the file and gloo finds CUDA through it; an empty file finds none.",
    fix='(oldAttrs.postPatch or "") + the delegating stub',
    word="FindCUDAToolkit",
)
def _stub(variant: Variant, facts: Facts) -> Iterator[Finding]:
    script = facts.shell("postPatch")
    written = re.search(rf">\s*(?:\./)?{re.escape(_STUB)}", script)
    if not _has_fix(variant, "find-cuda-toolkit-stub"):
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
    if missing := _missing_part(_STUB_PARTS, body):
        expected = "a stub that includes CMake's own module by its path"
        # By name it works, unless the module path has the stub's folder in another spelling.
        by_name = not _missing_part(_STUB_BY_NAME, body)
        yield Finding(f"a stub without {missing} in its place", expected, lenient=by_name)


def _missing_part(parts: Sequence[str], body: str) -> str:
    """Return the first of several patterns that a text does not have after the one before it."""
    for part in parts:
        match = re.search(part, body)
        if match is None:
            return part
        body = body[match.end() :]
    return ""


@CHECKS.add(
    id="eval-triton",
    title="torch uses the Triton that the matrix names, if it names one",
    why="torch.compile calls a Triton of one version; another one fails at run time.",
    fix="override triton beside torch in the overlay of the Python set",
    word="triton",
)
def _triton(variant: Variant, facts: Facts) -> Iterator[Finding]:
    triton = variant.release.companion.triton
    if triton is None or triton.is_of_pin:
        return
    found = facts.list("tritons")
    if not found:
        yield Finding("no Triton among the inputs of torch", f"Triton {triton.version}")
    for each in map(Facts, found):
        wanted = {"src.owner": triton.owner, "src.repo": triton.repo, "src.rev": triton.rev}
        yield from each.expect({"version": triton.version, **wanted, "src.hash": triton.hash})


@CHECKS.add(
    PACKAGE_FACTS,
    id="eval-features",
    title="The build requires the system features of the matrix",
    why="Without big-parallel Nix may choose the smallest builder.",
    fix="take requiredSystemFeatures from matrix.toml",
    word="requiredSystemFeatures",
)
def _features(package: Package, facts: Facts) -> Iterator[Finding]:
    wanted = list(package.builder_features)
    yield from facts.expect({"requiredSystemFeatures": wanted})
