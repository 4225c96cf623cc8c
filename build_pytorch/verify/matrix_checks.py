"""Checks of matrix.toml: its rules, versions and hashes, and what compilers say of its flags."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from build_pytorch.base import paths, process
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.known_hardware import required_torch, version_for
from build_pytorch.matrix.matrix_text import line_of
from build_pytorch.matrix.rules import problems
from build_pytorch.matrix.versions import in_range
from build_pytorch.verify.check import CheckSkipped, Finding
from build_pytorch.verify.context import Context

_SECONDS: Final = 60.0
"""Time limit of a compiler run, which takes less than a second."""


def rules(context: Context) -> Iterator[Finding]:
    """Yield rules that contradict each other, and as warnings those that are not needed."""
    matrix = context.matrix
    for problem in problems(matrix):
        place = ("rule", matrix.rules.index(problem.rule))
        finding = _finding(context, place, problem.found, problem.expected)
        yield finding if problem.is_error else structs.replace(finding, severity="warning")


def companion_version(context: Context) -> Iterator[Finding]:
    """Yield companions whose version is for another PyTorch than that of their release."""
    for name, release in context.matrix.releases.items():
        torch = release.torch.version
        for place, source in release.sources.items():
            companion = place[-1]
            required = required_torch(companion, source.version)
            if source is release.torch or (required and in_range(torch, required)):
                continue
            table = ("release", name, *place)
            found = f"{companion} {source.version} with PyTorch {torch}"
            wanted = version_for(torch, companion)
            if required and wanted and not release.torch.is_nightly:
                found += f"; it is for PyTorch {required.removeprefix('==')}"
                yield _finding(context, table, found, f"{companion} {wanted}")
                continue
            expected = "a pair that build_pytorch/matrix/companion_versions.toml has"
            fix = "compare the pair with its source and add it there, with source and date"
            finding = _finding(context, table, found, expected, fix)
            yield structs.replace(finding, severity="warning")


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
            finding = _finding(context, source.place, found, expected, fix)
            yield finding if is_stale else structs.replace(finding, severity="warning")


def _finding(context: Context, table: Trail, found: str, expected: str, fix: str = "") -> Finding:
    """Return a finding at a table of matrix.toml, or one above it."""
    line = line_of(context.matrix.text, table)
    return Finding(found=found, expected=expected, path=paths.MATRIX, line=line, fix=fix)


# --- compilers ---


def _run(*argv: str) -> process.ProcessResult:
    return process.run(argv, seconds=_SECONDS)


def compiler_flags(context: Context) -> Iterator[Finding]:
    """Yield CPU ISAs whose flags gcc refuses, or does not define the macros of.

    Raises CheckSkipped, after the findings, for a gcc that is missing or compiles nothing.
    """
    skipped, lacking = [], {}
    empty = ("-x", "c", "/dev/null")
    for key, cpu in {variant.cpu_key: variant.cpu for variant in context.variants}.items():
        machine = cpu.platform.partition("-")[0]
        names = [f"{machine}-linux-gnu-gcc", *(["gcc"] if machine == platform.machine() else [])]
        gcc = next(filter(process.which, names), "")
        if not gcc:
            lacking[machine] = f"gcc-{machine.replace('_', '-')}-linux-gnu"
        elif (alone := _run(gcc, "-fsyntax-only", *empty)).code:
            skipped.append(f"{gcc} compiles nothing ({_first_line(alone.stderr)})")
        else:
            result = _run(gcc, *cpu.flags, "-E", "-dM", *empty)  # prints all predefined macros
            defined = re.findall(r"(?m)^#define (\w+)", result.stdout)
            missing = [macro for macro in cpu.macros if macro not in defined]
            table = ("cpu", key)
            if result.code:
                message = _first_line(result.stderr)
                yield _finding(context, table, message, "flags that the compiler accepts")
            elif missing:
                found = f"{', '.join(missing)} not predefined"
                yield _finding(context, table, found, "all of cpu.*.macros")
    if lacking:
        packages = " ".join(lacking.values())
        skipped.append(f"no gcc for {' and '.join(lacking)} (Debian: {packages})")
    if skipped:
        raise CheckSkipped(", ".join(dict.fromkeys(skipped)))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def nvcc_architectures(context: Context) -> Iterator[Finding]:
    """Yield GPU architectures that the nvcc of their CUDA does not compile for.

    Raises CheckSkipped, after the findings, if nvcc is missing, fails, or is of another CUDA.
    """
    if not process.which("nvcc"):
        raise CheckSkipped("no nvcc")
    outputs = []
    for option in ("--version", "--list-gpu-code"):
        result = _run("nvcc", option)
        if result.code:
            said = result.tail or result.stdout.strip()
            raise CheckSkipped(f"nvcc {option} failed: {said}")
        outputs.append(result.stdout)
    release = re.search(r"release (\d+\.\d+)", outputs[0])
    own, codes = release[1] if release else "of unknown version", sorted(outputs[1].split())
    wanted = {
        (v.gpu_key, v.gpu.capability, v.cuda.version) for v in context.variants if v.gpu and v.cuda
    }
    for key, capability, cuda in sorted(wanted):
        code = sm_code(capability)
        if cuda == own and code not in codes:
            found = f"nvcc {own} supports {', '.join(codes)}"
            yield _finding(context, ("gpu", str(key)), found, f"{code} among them")
    if any(cuda != own for _, _, cuda in wanted):
        raise CheckSkipped(f"nvcc is {own}, not that of the release")
