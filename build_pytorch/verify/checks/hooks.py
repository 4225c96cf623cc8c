"""Checks of what the build hooks of a recipe do: they are run, and the outcome is compared.

Expected values come from the matrix, and from a run of the hooks of the pinned nixpkgs: a recipe
adds to them and changes nothing else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.base.versions import digits
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.tables import GpuArchitecture
from build_pytorch.verify import hook_runs
from build_pytorch.verify.check import CheckList, Context, Finding, Subjects
from build_pytorch.verify.hook_runs import FLAG, BuilderCores, HookJob, HookRun
from build_pytorch.verify.recipe_facts import (
    Facts,
    package_facts,
    without_hashes,
    without_packages,
)

_MACHINES: Final = (
    BuilderCores(4, 48),
    BuilderCores(0, 6),
    BuilderCores(0, 48),
    BuilderCores(192, 256),
)
_FLAGS: Final = ("CXXFLAGS", "CFLAGS", "CUDAFLAGS")
_JOBS: Final = ("MAX_JOBS", "NIX_BUILD_CORES")
_UNCHANGED: Final = "(unchanged)"
_GUARD: Final = 'AND NOT _existing_arch_flags MATCHES ".*compute_103.*")'
"""What pull request 187006 of PyTorch adds to a condition, which no build for 10.3 alone meets."""
_GUARDED: Final = hook_runs.SOURCE[hook_runs.CODEGEN].replace('.*")', f'.*" {_GUARD}')
_OTHER_CODEGEN: Final = hook_runs.SOURCE | {hook_runs.CODEGEN: _GUARDED}


class HookReport(Struct, frozen=True):
    """The runs of the hooks of a recipe, those of the pin's hooks, and the package of the runs.

    Recipes whose hooks differ only in the values of their variants share the runs of one of them.
    """

    package: Package
    runs: Sequence[HookRun]
    pin: HookRun
    other: HookRun | None
    """A run on a source whose cmake/Codegen.cmake is of another version, if a fix changes it."""


@functools.cache
def _reports(context: Context) -> dict[str, tuple[HookReport] | str]:
    reports: dict[str, tuple[HookReport] | str] = {}
    shared: dict[str, tuple[Package, list[HookJob], list[str]]] = {}
    has_bash = process.which("bash") is not None
    for path, given in package_facts(context):
        if isinstance(given, str) or not has_bash:
            reports[path] = given if isinstance(given, str) else "no bash"
            continue
        key = _key(*given)
        if key not in shared:
            shared[key] = given[0], _jobs_of(*given), []
        shared[key][2].append(path)
    runs = iter(hook_runs.run_all([job for _, jobs, _ in shared.values() for job in jobs]))
    for package, jobs, own_paths in shared.values():
        pin, *own = (next(runs) for _ in jobs)
        other = own.pop() if len(own) > len(_MACHINES) else None
        report = HookReport(package, own, pin, other)
        reports |= dict.fromkeys(own_paths, (report,))
    return reports


def _jobs_of(package: Package, facts: Facts) -> list[HookJob]:
    """Return the runs to make: the hooks of the pin, those of the recipe on each machine."""
    texts = {name: facts.text(name) for name in hook_runs.NAMES}
    pinned = {name: facts.text(f"pin.{name}") for name in hook_runs.NAMES}
    given = {"PYTORCH_BUILD_VERSION": facts.text("buildVersionEnv")}
    jobs = [HookJob(pinned, given, _MACHINES[0])]
    for number, machine in enumerate(_MACHINES):
        jobs.append(HookJob(texts, given, machine, keeps_files=number == 0))
    if "codegen-condition" in _source_fixes(package):
        jobs.append(HookJob(texts, given, _MACHINES[0], _OTHER_CODEGEN))
    return jobs


def _key(package: Package, facts: Facts) -> str:
    """Return the hooks and the expected values, with placeholders for values of the variant."""
    variant = package.variant
    texts = [facts.text(name) for name in hook_runs.NAMES]
    whole = "\0".join([*texts, repr(_wanted_environment(package))])
    flags = variant.cpu.flags
    capability = variant.gpu.capability if variant.gpu else ""
    names = (variant.package, variant.gpu_label)
    for value in (*names, " ".join(flags), ",".join(flags)):
        whole = whole.replace(value, "@") if value else whole
    if capability:
        whole = re.sub(rf"(?<![\w.]){re.escape(capability)}(?![\w.])", "@", whole)
    fixes = _source_fixes(package)
    code = variant.gpu and "codegen-condition" in fixes and variant.gpu.code
    pinned = [facts.text(f"pin.{name}") for name in hook_runs.NAMES]
    others = (type(package), fixes, code, variant.release.build.max_jobs)
    return without_hashes("\0".join([whole, *pinned, repr(others)]))


def _source_fixes(package: Package) -> tuple[str, ...]:
    return package.source_fixes if isinstance(package, Variant) else ()


def _wanted_environment(package: Package) -> dict[str, str]:
    """Return the variables that a recipe sets. The words of a flag variable are in any order."""
    variant = package.variant
    flags = " ".join(variant.cpu.flags)
    wanted = dict.fromkeys(_FLAGS, FLAG) | {"TERM": "dumb"}
    wanted["CXXFLAGS"] = wanted["CFLAGS"] = f"{flags} {FLAG}"
    if variant.gpu:
        wanted["TORCH_CUDA_ARCH_LIST"] = variant.gpu.capability
    if not isinstance(package, Variant):
        return wanted
    if not variant.release.torch.is_of_pin:
        wanted["PYTORCH_BUILD_VERSION"] = variant.release.torch.version
    wanted |= variant.effects.environment
    if variant.gpu is None:
        return wanted | {"USE_CUDA": "0"}
    if variant.release.build.cuda_host_flags:
        wanted["CUDAFLAGS"] = f"-Xcompiler={','.join(variant.cpu.flags)} {FLAG}"
    if "cccl-shim" in variant.effects.fixes:
        wanted |= {name: f"-I/build/cccl-compat {wanted[name]}" for name in _FLAGS}
    return wanted


CHECKS: Final = CheckList(Subjects(each=lambda context: _reports(context).items()))


@CHECKS.add(
    "The hooks run to their end without an error",
    why="A hook that calls exit ends the build, as a success or with an error of its own.",
    fix="correct the hook; the last lines of its output are shown",
    word="preConfigure",
)
def hook_ends(report: HookReport) -> Iterator[Finding]:
    for machine, run in zip(_MACHINES, report.runs, strict=True):
        if not run.is_complete:
            last = " / ".join(run.output.split("\n")[-3:]).strip(" /") or "no output"
            found = f"hooks that stop with {machine.cores} cores: {last}"
            yield Finding(found, "hooks that run to their end")
            return
    if report.other and report.other.is_complete:
        found = f"hooks that go on if {hook_runs.CODEGEN} is of another version"
        yield Finding(found, "an error: the build would lack the code", lenient=True)


@CHECKS.add(
    "The number of compile jobs is that of the cores, up to the limit",
    why="Too many CUDA compile jobs use up the memory; too few take days.",
    fix="limit NIX_BUILD_CORES in preConfigure; nixpkgs then sets MAX_JOBS to it",
    word="NIX_BUILD_CORES",
)
def hook_jobs(report: HookReport) -> Iterator[Finding]:
    most = report.package.variant.release.build.max_jobs
    for machine, run in zip(_MACHINES, report.runs, strict=True):
        cores = str(min(machine.cores or machine.processors, most))
        # nixpkgs sets MAX_JOBS again from the cores for torch alone.
        jobs = cores if isinstance(report.package, Variant) else str(most)
        for name, wanted in (("MAX_JOBS", jobs), ("NIX_BUILD_CORES", cores)):
            found = run.exported.get(name, "(not set)")
            if run.is_complete and found != wanted:
                of = f"{machine.cores} cores (of {machine.processors})"
                # Nix's own setting without a limit builds as well, given the memory.
                is_of_nix = found == str(machine.cores)
                yield Finding(f"{name}={found} for {of}", f"{name}={wanted}", lenient=is_of_nix)


@CHECKS.add(
    "The hooks export the variables of nixpkgs and of the matrix, and no others",
    why="PyTorch's setup.py reads its whole configuration from the environment.",
    fix="set only variables of the matrix in preConfigure, and unset none",
    word="preConfigure",
)
def hook_environment(report: HookReport) -> Iterator[Finding]:
    run = report.runs[0]
    if not run.is_complete:
        return
    wanted = report.pin.exported | _wanted_environment(report.package)
    for name in sorted({*wanted, *run.exported} - {*_JOBS}):
        found, value = run.exported.get(name), wanted.get(name)
        if name in _FLAGS and found and value:
            # The previous value comes last, so that a user's flags win.
            same = sorted(found.split()) == sorted(value.split()) and found.split()[-1] == FLAG
        else:
            both = (without_packages(text or "", report.package) for text in (found, value))
            same = len({without_hashes(text) for text in both}) == 1 and bool(found) == bool(value)
        if not same:
            # Without TERM, only the log is poorer: it lacks the steps of Ninja.
            lenient = name == "TERM"
            yield Finding(_assignment(name, found), _assignment(name, value), lenient=lenient)


def _assignment(name: str, value: str | None) -> str:
    return f"{name} not exported" if value is None else f"{name}={value}"


@CHECKS.add(
    "The hooks write the files of the matrix's fixes, and change no others",
    why="A fix that is written to another place, or changes another text, has no effect.",
    fix="correct postPatch or preConfigure",
    word="postPatch",
)
def hook_files(report: HookReport) -> Iterator[Finding]:
    run, package = report.runs[0], report.package
    if not run.is_complete:
        return
    pinned = report.pin.files
    files = {name: text for name, text in run.files.items() if pinned.get(name) != text}
    files |= dict.fromkeys((name for name in pinned if name not in run.files), _UNCHANGED)
    if run.names_build and not report.pin.names_build:
        yield Finding("/build in a hook", "$NIX_BUILD_TOP: only a sandbox has /build", lenient=True)
    if isinstance(package, Variant):
        yield from _fixes(package, report, files)
    for name in sorted(files):
        yield Finding(f"{name} changed", "a file that is as after the hooks of nixpkgs")


def _fixes(variant: Variant, report: HookReport, files: dict[str, str]) -> Iterator[Finding]:
    """Remove what the fixes of a variant write from files; yield findings for what is wrong."""
    if not variant.release.torch.is_of_pin:
        version = variant.release.torch.version
        if (found := files.pop("version.txt", "(not written)").strip()) != version:
            yield Finding(f"version.txt: {found}", f"version.txt: {version}")
    fixes = variant.source_fixes
    for fix, file, judge in (
        ("find-cuda-toolkit-stub", hook_runs.STUB, _stub),
        ("cupti-paths", hook_runs.DEPENDENCIES, _cupti),
        ("mkl-link-folders", hook_runs.MKL, _mkl),
    ):
        if fix in fixes:
            yield from judge(files.pop(file, _UNCHANGED))
    if variant.gpu and "codegen-condition" in fixes:
        yield from _codegen(files.pop(hook_runs.CODEGEN, _UNCHANGED), variant.gpu)
        message = f"build-pytorch: {hook_runs.CODEGEN} has no condition for {variant.gpu.code}a"
        other = report.other
        if other and message not in other.output.split("\n"):
            found = f"no message if {hook_runs.CODEGEN} is of another version"
            yield Finding(found, message, lenient=True)
    if variant.cuda and "cccl-shim" in variant.effects.fixes:
        for name in ("cuda", "cub", "thrust", "nv"):
            path = f"/build/cccl-compat/cccl/{name}"
            found = files.pop(path, "(no link)")
            if not re.fullmatch(rf"-> /\S*cuda[\d.]*-cuda_cccl[^/]*/include/{name}", found):
                yield Finding(f"{path}: {found}", f"-> the folder include/{name} of cuda_cccl")


def _stub(text: str) -> Iterator[Finding]:
    include = 'include("${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake")'
    lines = [line.strip().replace(" (", "(") for line in text.splitlines() if line.strip()]
    if lines != ["if(NOT CUDAToolkit_FOUND)", include, "endif()"]:
        found = f"{hook_runs.STUB}: {' '.join(text.split())[:200]}"
        # By name it works as well, unless the module path has its folder in another spelling.
        by_name = "include(FindCUDAToolkit)" in lines and "REMOVE_ITEM CMAKE_MODULE_PATH" in text
        yield Finding(found, f"only {include}", lenient=by_name)


def _cupti(text: str) -> Iterator[Finding]:
    if text == _UNCHANGED:
        expected = "CUPTI's paths: without them torch.profiler records no CUDA activity"
        yield Finding(f"{hook_runs.DEPENDENCIES} {text}", expected, lenient=True)
        return
    for command, folder in (("find_library", "LIBRARY"), ("find_path", "INCLUDE")):
        if not re.search(rf"{command}\([^)]*\$ENV\{{CUPTI_{folder}_DIR\}}[^)]*\)", text):
            found = f"{hook_runs.DEPENDENCIES}: {command} without CUPTI_{folder}_DIR"
            yield Finding(found, f"$ENV{{CUPTI_{folder}_DIR}} among its paths")


def _mkl(text: str) -> Iterator[Finding]:
    if text.strip() != hook_runs.SOURCE[hook_runs.MKL].partition("\nset_property(")[0]:
        yield Finding(f"{hook_runs.MKL}: {text}", "no folders outside of the Nix store")


def _codegen(text: str, gpu: GpuArchitecture) -> Iterator[Finding]:
    """Yield findings unless the condition of one code holds for its own GPU as well."""
    if text == _UNCHANGED:
        expected = f"code for {gpu.code}a: without it FP8 row-wise matrix products fail"
        yield Finding(f"{hook_runs.CODEGEN} {text}", expected, lenient=True)
        return
    conditions, original = _conditions(text), _conditions(hook_runs.SOURCE[hook_runs.CODEGEN])
    own = f"{gpu.code}a"
    for name in original:
        if name != own and conditions.get(name) != original[name]:
            yield Finding(f"another condition for {name}", f"only that of {own} changed")
    for code in (gpu.code, digits(gpu.codegen_base or "")):
        condition = conditions.get(own, "(none)")
        if not re.search(condition, f"-gencode;arch=compute_{code},code=sm_{code}"):
            found = f"{hook_runs.CODEGEN}: {own} only where {condition} matches"
            yield Finding(found, f"{own} for compute_{code} as well")


def _conditions(text: str) -> dict[str, str]:
    """Return the regular expression of each code in cmake/Codegen.cmake."""
    return dict(re.findall(r'STREQUAL "(\w+)".*?MATCHES "(.*?)"', text, re.DOTALL))
