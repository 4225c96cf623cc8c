"""Checks of matrix.toml, of which files exist and hold what is generated, and by compilers.

A check of checks.toml without facts is the function of its name. Each yields findings, and may
raise CheckSkipped after them. This is the only module that calls the renderer, to compare.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from build_pytorch.base import paths, process
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action
from build_pytorch.generate import flox_environments, phase_plan
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.known_hardware import required_torch, version_for
from build_pytorch.matrix.matrix_text import line_of
from build_pytorch.matrix.model import Phase
from build_pytorch.matrix.rules import FLAG_VARIABLES, holds
from build_pytorch.matrix.versions import in_range
from build_pytorch.verify.check import CheckSkipped, Context, Finding

_SECONDS: Final = 60.0  #: time limit of a compiler run, which takes less than a second


def findings_of(context: Context, id_: str) -> tuple[list[Finding], str]:
    """Return the findings of a check of this module, and what it did not look at."""
    findings: list[Finding] = []
    try:
        findings.extend(globals()[id_.replace("-", "_")](context))
    except CheckSkipped as skipped:
        return findings, str(skipped)
    return findings, ""


def _in_matrix(context: Context, table: Trail, found: str, expected: str, fix: str = "") -> Finding:
    """Return a finding at a table of matrix.toml, or one above it."""
    line = line_of(context.matrix.text, table)
    return Finding(found=found, expected=expected, path=paths.MATRIX, line=line, fix=fix)


def rules(context: Context) -> Iterator[Finding]:
    """Yield rules that contradict each other, and as warnings those that are not needed."""
    matrix = context.matrix
    place = {rule.id: ("rule", index) for index, rule in enumerate(matrix.rules)}
    combinations = {tuple(r.id for r in v.effects.rules): v for v in matrix.variants}
    applied = {name for names in combinations for name in names}
    for rule in [rule for rule in matrix.own_rules if rule.id not in applied]:
        found, expected = f"{rule.id} applies to no variant", "a condition that holds"
        if matching := sum(holds(rule.when, variant) for variant in matrix.variants):
            found = f"{rule.id}: its `until` holds for all {matching} variants of its `when`"
            expected = "no rule that is no longer needed"
        finding = _in_matrix(context, place[rule.id], found, expected)
        yield structs.replace(finding, severity="warning")
    seen: set[tuple[str, str]] = set()
    for variant in combinations.values():
        values: dict[str, tuple[str, str]] = {}
        for rule in variant.effects.rules:
            switches = dict(flag.split("=", 1) for flag in rule.effect.cmake_flags)
            for name, value in (rule.effect.environment | switches).items():
                other, first = values.setdefault(name, (value, rule.id))
                pair = (first, rule.id)
                if other != value and name not in FLAG_VARIABLES and pair not in seen:
                    seen.add(pair)
                    found = f"{rule.id} and {first} set {name} to different values"
                    yield _in_matrix(context, place[rule.id], found, f"one value for {variant.id}")


def companion_version(context: Context) -> Iterator[Finding]:
    """Yield companions whose version is for another PyTorch than that of their release."""
    for name, release in context.matrix.releases.items():
        torch = release.torch.version
        for place, source in release.sources.items():
            companion = place[-1]
            required = required_torch(companion, source.version) or ""
            if source is release.torch or (required and in_range(torch, required)):
                continue
            found = f"{companion} {source.version} with PyTorch {torch}"
            expected = "a pair that build_pytorch/matrix/companion_versions.toml has"
            wanted = version_for(torch, companion)
            is_known = required and wanted and not release.torch.is_nightly
            if is_known:
                found += f"; it is for PyTorch {required.removeprefix('==')}"
                expected = f"{companion} {wanted}"
            finding = _in_matrix(context, ("release", name, *place), found, expected)
            yield finding if is_known else structs.replace(finding, severity="warning")


def stale_hash(context: Context) -> Iterator[Finding]:
    """Yield sources without a hash, or with the hash of another revision."""
    for source in context.matrix.sources():
        table = ".".join(map(str, source.place))
        found, is_stale = f"{table}: no hash yet; recipes evaluate, and cannot be built", False
        if source.hash:
            found = f"{table}: the hash of {source.recorded or 'an unknown revision'}"
            is_stale = source.recorded != source.origin.revision
        if is_stale or not (source.hash or source.may_wait):
            fix = f"run `invoke prefetch --only {source.name}`, which sets {source.trail[-1]}"
            expected = f"the hash of {source.origin.revision}"
            finding = _in_matrix(context, source.place, found, expected, fix)
            yield finding if is_stale else structs.replace(finding, severity="warning")


# --- files ---


def missing_recipe(context: Context) -> Iterator[Finding]:
    """Yield the packages without a recipe, and recipes that cannot be read."""
    for path, reason in context.unreadable.items():
        yield Finding(found=reason, expected="a readable UTF-8 text file", path=path)
    for package in context.matrix.packages:
        if package.path not in context.recipes and package.path not in context.unreadable:
            expected, fix = f"the recipe of {package.id}", f"run `invoke {package.phase.command}`"
            yield Finding(found="no such file", expected=expected, path=package.path, fix=fix)


def extra_recipe(context: Context) -> Iterator[Finding]:
    """Yield recipes of no package in the folders of the matrix."""
    known = {package.path for package in context.matrix.packages}
    found, expected = "a recipe of no variant", "only recipes of the matrix"
    for path in sorted({*context.recipes, *context.unreadable} - known):
        yield Finding(found=found, expected=expected, path=path)


def shell_files(context: Context) -> Iterator[Finding]:
    """Yield shell files that builds use and Bash cannot read."""
    if not process.which("bash"):
        raise CheckSkipped("no bash")
    path = paths.in_use(context.root, paths.COMPILER_CACHE)
    result = process.run(["bash", "-n", str(path)])
    if result.code:
        found = result.last_line.replace(f"{path}: ", "")
        yield Finding(found=found, expected="valid Bash", path=paths.COMPILER_CACHE)


def generated_recipes(context: Context) -> Iterator[Finding]:
    """Yield recipes and the files that they import that differ from the rendered text."""
    if not context.recipes:
        raise CheckSkipped("no recipe to compare")
    yield from _outdated(context, Phase.GPU_X86, Phase.GPU_ARM, Phase.CPU_ONLY)


def generated_docs(context: Context) -> Iterator[Finding]:
    """Yield pages, generated regions and the schema that are out of date."""
    yield from _outdated(context, Phase.DOCS)


def _outdated(context: Context, *phases: Phase) -> Iterator[Finding]:
    """Yield the files that phases would write, unless a person keeps them."""
    missing = {package.path for package in context.matrix.packages} - context.recipes.keys()
    for phase in phases:
        try:
            changes = phase_plan.plan(phase, context.matrix, context.tree, context.pages)
        except BuildPytorchError as error:
            expected = "docs and templates that can be read"
            yield Finding(found=str(error), expected=expected, path="templates")
            return
        for change in changes:
            if change.path not in missing and change.action not in {Action.UNCHANGED, Action.KEPT}:
                yield Finding(found=change.reason, expected="as generated", path=change.path)


def flox_environment(context: Context) -> Iterator[Finding]:
    """Yield what is wrong in the files of Flox environments."""
    if not (context.root / paths.MATRIX).exists():
        raise CheckSkipped("no matrix.toml here")
    for path, found, expected in flox_environments.faults(context.matrix, context.tree):
        yield Finding(found=found, expected=expected, path=path)


# --- compilers ---


def compiler_flags(context: Context) -> Iterator[Finding]:
    """Yield CPU ISAs whose flags gcc refuses, or does not define the macros of.

    Skipped for a platform without a gcc.
    """
    lacking = {}
    for key, cpu in {variant.cpu_key: variant.cpu for variant in context.variants}.items():
        machine = cpu.platform.partition("-")[0]
        names = [f"{machine}-linux-gnu-gcc", *(["gcc"] if machine == platform.machine() else [])]
        gcc = next(filter(process.which, names), "")
        if not gcc:
            lacking[machine] = f"gcc-{machine.replace('_', '-')}-linux-gnu"
            continue
        # -dM prints all predefined macros.
        argv = [gcc, *cpu.flags, "-E", "-dM", "-x", "c", "/dev/null"]
        result = process.run(argv, seconds=_SECONDS)
        defined = re.findall(r"(?m)^#define (\w+)", result.stdout)
        missing = [macro for macro in cpu.macros if macro not in defined]
        if result.code:
            found = result.stderr.strip().partition("\n")[0]
            yield _in_matrix(context, ("cpu", key), found, "flags that the compiler accepts")
        elif missing:
            found = f"{', '.join(missing)} not predefined"
            yield _in_matrix(context, ("cpu", key), found, "all of cpu.*.macros")
    if lacking:
        packages = " ".join(lacking.values())
        raise CheckSkipped(f"no gcc for {' and '.join(lacking)} (Debian: {packages})")


def nvcc_architectures(context: Context) -> Iterator[Finding]:
    """Yield GPU architectures that the nvcc of their CUDA does not compile for.

    Skipped if nvcc is missing, fails, or is of another CUDA.
    """
    if not process.which("nvcc"):
        raise CheckSkipped("no nvcc")
    options = ("--version", "--list-gpu-code")
    version, listed = (process.run(["nvcc", it], seconds=_SECONDS) for it in options)
    release = re.search(r"release (\d+\.\d+)", version.stdout)
    if listed.code or not release:
        raise CheckSkipped(f"nvcc fails: {listed.tail or version.tail or 'no version'}")
    own, codes = release[1], sorted(listed.stdout.split())
    wanted = {
        (v.gpu_key, v.gpu.capability, v.cuda.version) for v in context.variants if v.gpu and v.cuda
    }
    for key, capability, cuda in sorted(wanted):
        code = sm_code(capability)
        if cuda == own and code not in codes:
            found = f"nvcc {own} supports {', '.join(codes)}"
            yield _in_matrix(context, ("gpu", str(key)), found, f"{code} among them")
    if any(cuda != own for _, _, cuda in wanted):
        raise CheckSkipped(f"nvcc is {own}, not that of the release")
