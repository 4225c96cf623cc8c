"""Checks that compilers accept the flags of CPU ISAs and the GPU architectures of the matrix."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.base import process
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.verify.check import CheckSkipped, Finding
from build_pytorch.verify.context import Context

_SECONDS: Final = 60.0
"""Time limit of a compiler run, which takes less than a second."""


def _gcc(target: str) -> str:
    """Return a gcc for a platform: a cross compiler, or gcc if the platform is this one."""
    machine = target.partition("-")[0]
    names = [f"{machine}-linux-gnu-gcc", *(["gcc"] if platform.machine() == machine else [])]
    return next(filter(process.which, names), "")


def _compile(*argv: str) -> process.ProcessResult:
    """Compile an empty C program."""
    return process.start([*argv, "-x", "c", "/dev/null"]).finish(_SECONDS)


def compiler_flags(context: Context) -> Iterator[Finding]:
    """Yield CPU ISAs whose flags gcc refuses, or does not define the macros of.

    Raises CheckSkipped, after the findings, for a gcc that is missing or compiles nothing.
    """
    skipped = []
    for key, cpu in {variant.cpu_key: variant.cpu for variant in context.variants}.items():
        if not (gcc := _gcc(cpu.platform)):
            skipped.append(f"no gcc for {cpu.platform}")
            continue
        result = _compile(gcc, *cpu.flags, "-E", "-dM")  # prints all predefined macros
        if result.code and (alone := _compile(gcc, "-fsyntax-only")).code:
            first = alone.stderr.strip().split("\n")[0]
            skipped.append(f"{gcc} cannot compile an empty program: {first}")
        elif result.code:
            message = result.stderr.strip().split("\n")[0]
            yield context.matrix_finding(f"[cpu.{key}]", message, "flags that the compiler accepts")
        else:
            defined = set(re.findall(r"(?m)^#define (\w+)", result.stdout))
            if missing := [macro for macro in cpu.macros if macro not in defined]:
                found = f"{', '.join(missing)} not predefined"
                yield context.matrix_finding(f"[cpu.{key}]", found, "all of cpu.*.macros")
    if skipped:
        raise CheckSkipped(", ".join(dict.fromkeys(skipped)))


def nvcc_architectures(context: Context) -> Iterator[Finding]:
    """Yield GPU architectures that the nvcc of their CUDA does not compile for.

    Raises CheckSkipped, after the findings, if nvcc is missing, fails, or is of another CUDA.
    """
    if not process.which("nvcc"):
        raise CheckSkipped("no nvcc")
    version, codes = (_nvcc(option) for option in ("--version", "--list-gpu-code"))
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


def _nvcc(option: str) -> str:
    result = process.start(["nvcc", option]).finish(_SECONDS)
    if result.code:
        raise CheckSkipped(f"nvcc {option} failed: {result.tail or result.stdout.strip()}")
    return result.stdout
