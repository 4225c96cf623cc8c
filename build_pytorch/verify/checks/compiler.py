"""Checks that compilers accept the flags of CPU ISAs and the GPU architectures of the matrix.

If a compiler is missing, fails, or has another version than the release builds with, the check is
skipped with that reason.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Iterator
from typing import Any, Final

from build_pytorch.base import process
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.tables import CpuIsa
from build_pytorch.verify.check import CheckList, Context, Finding, Subjects

_SECONDS: Final = 60.0
"""Time limit of a compiler run, which takes less than a second."""


def _compiler(target: str) -> str | None:
    """Return a compiler for a platform: a cross compiler, or gcc if the platform is this one."""
    machine = target.partition("-")[0]
    cross = f"{machine}-linux-gnu-gcc"
    if process.which(cross):
        return cross
    return "gcc" if platform.machine() == machine and process.which("gcc") else None


def _gcc_results(context: Context) -> Iterator[tuple[str, tuple[Any, ...] | str]]:
    """Yield the run of gcc for each CPU ISA that prints all predefined macros (GCC manual, -dM)."""
    for key, cpu in {variant.cpu_key: variant.cpu for variant in context.variants}.items():
        if compiler := _compiler(cpu.platform):
            result = _compile([compiler, *cpu.flags, "-E", "-dM"])
            why = _why_broken(compiler) if result.code else ""
            yield key, why or (context, f"[cpu.{key}]", cpu, result)
        else:
            yield key, f"no gcc for {cpu.platform}"


def _compile(argv: list[str]) -> process.ProcessResult:
    """Compile an empty C program."""
    return process.start([*argv, "-x", "c", "/dev/null"]).finish(_SECONDS)


@functools.cache
def _why_broken(compiler: str) -> str:
    """Return why a compiler compiles nothing at all, or an empty text."""
    result = _compile([compiler, "-fsyntax-only"])
    said = f"{compiler} cannot compile an empty program: {result.stderr.strip().split(chr(10))[0]}"
    return said if result.code else ""


CHECKS: Final = CheckList(Subjects(each=_gcc_results))


@CHECKS.add(
    "gcc accepts the flags of every CPU ISA and defines its macros",
    why="A flag that the compiler does not support stops the build after the configuration.",
    fix="correct flags or macros of the ISA in matrix.toml",
)
def compiler_flags(
    context: Context, table: str, cpu: CpuIsa, result: process.ProcessResult
) -> Iterator[Finding]:
    if result.code:
        message = result.stderr.strip().split("\n")[0]
        yield context.matrix_finding(table, message, "flags that the compiler accepts")
        return
    defined = set(re.findall(r"(?m)^#define (\w+)", result.stdout))
    if missing := [macro for macro in cpu.macros if macro not in defined]:
        found = f"{', '.join(missing)} not predefined"
        yield context.matrix_finding(table, found, "all of cpu.*.macros")


def _nvcc_results(context: Context) -> Iterator[tuple[str, tuple[Any, ...] | str]]:
    wanted = {
        (v.gpu_key, v.gpu.capability, v.cuda.version)
        for v in context.variants
        if v.gpu_key and v.gpu and v.cuda
    }
    reason, version, codes = _nvcc_output() if wanted else ("", "", [])
    for key, capability, cuda in sorted(wanted):
        if reason:
            yield key, reason
        elif version != cuda:
            yield f"{key} on CUDA {cuda}", f"nvcc is {version}, not that of the release"
        else:
            yield key, (context, f"[gpu.{key}]", sm_code(capability), version, codes)


def _nvcc_output() -> tuple[str, str, list[str]]:
    """Return the version of nvcc and its architectures, after the reason why they are unknown."""
    if not process.which("nvcc"):
        return "no nvcc", "", []
    output = []
    for option in ("--version", "--list-gpu-code"):
        result = process.start(["nvcc", option]).finish(_SECONDS)
        if result.code:
            return f"nvcc {option} failed: {result.tail or result.stdout.strip()}", "", []
        output.append(result.stdout)
    release = re.search(r"release (\d+\.\d+)", output[0])
    return "", release[1] if release else "of unknown version", output[1].split()


@CHECKS.add(
    "nvcc of the release's CUDA compiles for every GPU architecture",
    Subjects(each=_nvcc_results, kind="gpu"),
    why="An architecture that nvcc does not support stops the build at its first kernel.",
    fix="correct first_cuda and last_cuda, or remove the architecture from the group",
)
def nvcc_architectures(
    context: Context, table: str, code: str, version: str, codes: list[str]
) -> Iterator[Finding]:
    if code not in codes:
        found = f"nvcc {version} supports {', '.join(sorted(codes))}"
        yield context.matrix_finding(table, found, f"{code} among them")
