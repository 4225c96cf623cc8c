"""Checks of matrix.toml: its rules, versions and hashes, and what compilers say of its flags."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from build_pytorch.base import paths, process
from build_pytorch.base.versions import in_range
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.known_hardware import required_torch, version_for
from build_pytorch.matrix.rules import problems
from build_pytorch.matrix.toml_lines import line_of
from build_pytorch.verify.check import CheckSkipped, Finding
from build_pytorch.verify.context import Context

_SECONDS: Final = 60.0
"""Time limit of a compiler run, which takes less than a second."""


def rules(context: Context) -> Iterator[Finding]:
    """Yield rules that contradict each other, and as warnings those that are not needed."""
    matrix = context.matrix
    for problem in problems(matrix.rules, matrix.variants):
        yield Finding(
            found=problem.found,
            expected=problem.expected,
            path=paths.MATRIX,
            line=line_of(matrix.text, ("rule", matrix.rules.index(problem.rule))),
            severity="error" if problem.is_error else "warning",
        )


def companion_version(context: Context) -> Iterator[Finding]:
    """Yield companions whose version is for another PyTorch than that of their release."""
    for name, release in context.matrix.releases.items():
        torch = release.torch.version
        for place, source in release.sources.items():
            companion = place[-1]
            required = required_torch(companion, source.version)
            if source is release.torch or (required and in_range(torch, required)):
                continue
            table = f"[release.{name}.{'.'.join(place)}]"
            found = f"{companion} {source.version} with PyTorch {torch}"
            wanted = version_for(torch, companion)
            if required and wanted and not release.torch.is_nightly:
                found += f"; it is for PyTorch {required.removeprefix('==')}"
                yield context.matrix_finding(table, found, f"{companion} {wanted}")
                continue
            expected = "a pair that build_pytorch/matrix/companion_versions.toml has"
            fix = "compare the pair with its source and add it there, with source and date"
            finding = context.matrix_finding(table, found, expected, fix)
            yield structs.replace(finding, severity="warning")


def stale_hash(context: Context) -> Iterator[Finding]:
    """Yield sources without a hash, or with the hash of another revision."""
    for source in context.matrix.sources():
        table = ".".join(map(str, source.place))
        expected = f"the hash of {source.origin.revision}"
        fix = f"run `invoke prefetch --only {source.name}`, which sets {source.trail[-1]}"
        if source.hash and source.recorded != source.origin.revision:
            found = f"{table}: the hash of {source.recorded or 'an unknown revision'}"
            yield context.matrix_finding(f"[{table}]", found, expected, fix)
        elif not (source.hash or source.may_wait):
            found = f"{table}: no hash yet; recipes evaluate, and cannot be built"
            finding = context.matrix_finding(f"[{table}]", found, expected, fix)
            yield structs.replace(finding, severity="warning")


# --- compilers ---


def _run(*argv: str) -> process.ProcessResult:
    return process.start(argv).finish(_SECONDS)


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
            continue
        if (alone := _run(gcc, "-fsyntax-only", *empty)).code:
            why = alone.stderr.strip().split("\n")[0]
            skipped.append(f"{gcc} compiles nothing ({why})")
            continue
        result = _run(gcc, *cpu.flags, "-E", "-dM", *empty)  # prints all predefined macros
        defined = set(re.findall(r"(?m)^#define (\w+)", result.stdout))
        missing = [macro for macro in cpu.macros if macro not in defined]
        if result.code:
            message = result.stderr.strip().split("\n")[0]
            yield context.matrix_finding(f"[cpu.{key}]", message, "flags that the compiler accepts")
        elif missing:
            found = f"{', '.join(missing)} not predefined"
            yield context.matrix_finding(f"[cpu.{key}]", found, "all of cpu.*.macros")
    if lacking:
        packages = " ".join(lacking.values())
        skipped.append(f"no gcc for {' and '.join(lacking)} (Debian: {packages})")
    if skipped:
        raise CheckSkipped(", ".join(dict.fromkeys(skipped)))


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
    version, codes = outputs
    release = re.search(r"release (\d+\.\d+)", version)
    own = release[1] if release else "of unknown version"
    wanted = {
        (v.gpu_key, v.gpu.capability, v.cuda.version) for v in context.variants if v.gpu and v.cuda
    }
    for key, capability, cuda in sorted(wanted):
        code = sm_code(capability)
        if cuda == own and code not in codes.split():
            found = f"nvcc {own} supports {', '.join(sorted(codes.split()))}"
            yield context.matrix_finding(f"[gpu.{key}]", found, f"{code} among them")
    if any(cuda != own for _, _, cuda in wanted):
        raise CheckSkipped(f"nvcc is {own}, not that of the release")
