"""Whether real compilers take what the matrix promises: flags of CPU ISAs, GPU architectures.

A tool that is absent, or of another version than the release builds with, proves nothing: the
check is skipped with that reason, never passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.base import paths, process
from build_pytorch.matrix.model import CpuIsa
from build_pytorch.verify.check import Check, CheckOutcome, Context, Finding, Problem

_COMPILERS: Final = {
    "x86_64-linux": ("x86_64-linux-gnu-gcc", "gcc"),
    "aarch64-linux": ("aarch64-linux-gnu-gcc", "gcc"),
}
"""Compilers for a platform, best first; the last one only where it is native."""

_SECONDS: Final = 60.0
"""No compiler takes that long to say what it knows."""

_MACHINES: Final = {"x86_64-linux": "x86_64", "aarch64-linux": "aarch64"}


def prepare(context: Context) -> None:
    """Start every compiler at once; they take longer than all text checks together."""
    for key in _cpu_keys(context):
        cpu = context.matrix.cpus[key]
        if compiler := _compiler(cpu.platform):
            context.running[f"gcc {key}"] = process.start(_predefined(compiler, cpu))
    if process.which("nvcc") and any(variant.gpu for variant in context.variants):
        context.running["nvcc version"] = process.start(["nvcc", "--version"])
        context.running["nvcc codes"] = process.start(["nvcc", "--list-gpu-code"])


class FlagsCheck(Check, frozen=True, kw_only=True):
    """A compiler for the platform takes the flags of each CPU ISA and predefines its macros."""

    def run(self, context: Context) -> CheckOutcome:
        """Ask the compiler for its macros, once for each ISA."""
        passed: list[str] = []
        failed: list[str] = []
        not_run: list[str] = []
        findings: list[Finding] = []
        reasons: list[str] = []
        for key in _cpu_keys(context):
            cpu = context.matrix.cpus[key]
            running = context.running.pop(f"gcc {key}", None)
            if running is None:
                not_run.append(key)
                reasons.append(f"no gcc for {cpu.platform}")
                continue
            problems = list(_flag_problems(key, cpu, running.finish(_SECONDS), context))
            findings += [Finding(self, problem) for problem in problems]
            (failed if problems else passed).append(key)
        return CheckOutcome(
            check=self,
            passed=tuple(passed),
            failed=tuple(failed),
            not_run=tuple(not_run),
            reason=", ".join(dict.fromkeys(reasons)),
            findings=tuple(findings),
        )


class CapabilityCheck(Check, frozen=True, kw_only=True):
    """nvcc of the release's CUDA generates code for every GPU architecture of the release."""

    def applies(self, context: Context) -> bool:
        """Where there are GPU architectures."""
        return any(variant.gpu for variant in context.variants)

    def run(self, context: Context) -> CheckOutcome:
        """Ask nvcc for its version and its architectures, once."""
        version_of, codes_of = (
            context.running.pop(name, None) for name in ("nvcc version", "nvcc codes")
        )
        wanted = sorted(
            {
                (variant.gpu_key, variant.release.cuda.version)
                for variant in context.variants
                if variant.gpu_key and variant.release.cuda
            }
        )
        if not version_of or not codes_of:
            return CheckOutcome(check=self, not_run=tuple(k for k, _ in wanted), reason="no nvcc")
        said = re.search(r"release (\d+\.\d+)", version_of.finish(_SECONDS).stdout)
        codes = set(codes_of.finish(_SECONDS).stdout.split())
        version = said[1] if said else "of unknown version"
        mine = [key for key, cuda in wanted if cuda == version]
        missing = [key for key in mine if f"sm_{key[2:]}" not in codes]
        others = [f"{key} on CUDA {cuda}" for key, cuda in wanted if cuda != version]
        return CheckOutcome(
            check=self,
            passed=tuple(key for key in mine if key not in missing),
            failed=tuple(missing),
            not_run=tuple(others),
            reason=f"nvcc is {version}, not that of the release" if others else "",
            findings=tuple(
                Finding(
                    self,
                    _problem(
                        context,
                        f"[gpu.{key}]",
                        f"nvcc {version} knows {', '.join(sorted(codes))}",
                        f"sm_{key[2:]} among them",
                    ),
                )
                for key in missing
            ),
        )


def _cpu_keys(context: Context) -> Sequence[str]:
    return list(dict.fromkeys(variant.cpu_key for variant in context.variants))


def _compiler(platform: str) -> str | None:
    """A compiler that generates code for a platform, or None."""
    import platform as host

    cross, native = _COMPILERS[platform]
    if process.which(cross):
        return cross
    return native if host.machine() == _MACHINES[platform] and process.which(native) else None


def _predefined(compiler: str, cpu: CpuIsa) -> list[str]:
    """The command that prints every predefined macro (GCC manual, -dM)."""
    return [compiler, *cpu.flags, "-E", "-dM", "-x", "c", "/dev/null"]


def _flag_problems(
    key: str, cpu: CpuIsa, result: process.ProcessResult, context: Context
) -> Iterator[Problem]:
    if result.code:
        first = result.stderr.strip().split("\n")[0]
        yield _problem(context, f"[cpu.{key}]", first, "flags that the compiler takes")
        return
    defined = set(re.findall(r"(?m)^#define (\w+)", result.stdout))
    if missing := [macro for macro in cpu.macros if macro not in defined]:
        yield _problem(
            context, f"[cpu.{key}]", f"{', '.join(missing)} not predefined", "all of cpu.*.macros"
        )


def _problem(context: Context, table: str, found: str, expected: str) -> Problem:
    """A problem of a table of matrix.toml. Flags and architectures stand there, not in recipes."""
    before = context.matrix.text.partition(f"\n{table}")[0]
    return Problem(
        path=paths.MATRIX.name, line=before.count("\n") + 2, found=found, expected=expected
    )


CHECKS: tuple[Check, ...] = (
    FlagsCheck(
        id="compiler-flags",
        title="gcc takes the flags of every CPU ISA and means what they say",
        why="A flag that the compiler does not know stops the build after the configuration.",
        fix="correct flags or macros of the ISA in matrix.toml",
        source="a real gcc of each platform",
    ),
    CapabilityCheck(
        id="nvcc-architectures",
        title="nvcc of the release's CUDA compiles for every GPU architecture",
        why="An architecture that nvcc does not know stops the build at its first kernel.",
        fix="correct first_cuda and last_cuda, or take the architecture out of the group",
        source="a real nvcc: --list-gpu-code",
    ),
)
