"""What a report proves of a variant. Pure: a report and the matrix in, a judgement out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import Variant
from build_pytorch.smoke import script
from build_pytorch.smoke.smoke_report import Device, Report, Test

Outcome = Literal["passed", "failed", "skipped", "compatible", "not run"]


class Judgement(Struct, frozen=True, kw_only=True):
    """What became of one variant. Only `passed` is a proof of it.

    `fit` says how the GPU that was there fits, whatever else is wrong; `cpu` and `gpu` say how
    the work on each of the two ended.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fit: Literal["exact", "compatible"] | None = None
    cpu: Literal["passed", "failed", "not run"] = "not run"
    gpu: Literal["passed", "failed", "not run"] = "not run"


def judge(report: Report, variant: Variant) -> Judgement:
    """Compare a report with what the matrix promises of a variant."""
    lacking = lacks(variant, report.python.machine, report.cpu.flags)
    if problem := report.torch.import_error:
        if lacking:  # it may be the reason, so the variant is not to blame
            return Judgement(outcome="skipped", reasons=(lacking,), notes=(problem,))
        return Judgement(outcome="failed", reasons=(f"torch cannot be imported: {problem}",))
    gpu = report.gpu if variant.gpu else None
    fit = runs_on(variant.gpu.capability, gpu.capability) if variant.gpu and gpu else None
    wrong = list(_wrong_facts(report, variant))
    bad_cpu = [] if lacking else [*_wrong_capability(report, variant), *_bad(report, "cpu", None)]
    bad_gpu = list(_bad(report, "cuda", gpu)) if fit else []
    if variant.gpu and report.cuda.crashed:
        bad_gpu.append(f"CUDA does not start: {report.cuda.reason}")

    def judged(outcome: Outcome, *reasons: str) -> Judgement:
        return Judgement(
            outcome=outcome,
            reasons=reasons,
            notes=tuple(_notes(report, variant, gpu)),
            fit=fit,
            cpu="not run" if lacking else _ending(bad_cpu),
            gpu=_ending(bad_gpu) if fit or bad_gpu else "not run",
        )

    if problems := [*wrong, *bad_cpu, *bad_gpu]:
        return judged("failed", *problems)
    if lacking:
        return judged("skipped", lacking)
    if variant.gpu and gpu is None:
        return judged("skipped", _no_gpu(report, variant))
    return judged(*_by_fit(variant, gpu, fit))


def _by_fit(
    variant: Variant, gpu: Device | None, fit: Literal["exact", "compatible"] | None
) -> tuple[Outcome, *tuple[str, ...]]:
    """The outcome where nothing failed: it depends on the GPU alone."""
    if variant.gpu is None or gpu is None or fit == "exact":
        return ("passed",)
    here = f"{gpu.name} ({gpu.capability})"
    if fit == "compatible":
        return "compatible", f"ran on {here}; it is for {variant.gpu.capability}"
    return "skipped", f"is for {variant.gpu.capability} and does not run on {here}"


def lacks(variant: Variant, machine: str, flags: Sequence[str]) -> str:
    """Why a machine cannot run a variant's CPU code, or nothing where it can.

    `machine` is as `uname -m` says it, `flags` as /proc/cpuinfo does.
    """
    wanted = variant.cpu.platform.partition("-")[0]
    if machine != wanted:
        return f"is for {wanted}; this machine is {machine}"
    if not flags:
        return "the CPU's flags are unknown"
    missing = [flag for flag in variant.cpu.cpuinfo if flag not in flags]
    return f"this CPU lacks {', '.join(missing)}" if missing else ""


def public_version(version: str) -> str:
    """A version without its local part: such as `2.10.0` for `2.10.0+cu130`.

    The local part says who built it and how (PEP 440); an `a0` before it stays a pre-release.
    """
    return version.partition("+")[0]


def _wrong_facts(report: Report, variant: Variant) -> Iterator[str]:
    """What this torch is and the variant is not. None of it needs a GPU."""
    torch, release = report.torch, variant.release
    if public_version(torch.version) != release.torch.version:
        yield f"is PyTorch {torch.version}, not {release.torch.version}"
    if not f"{report.python.version}.".startswith(f"{release.python.version}."):
        yield f"is for Python {report.python.version}, not {release.python.version}"
    if torch.hip:
        yield f"is built for ROCm {torch.hip}"
    if variant.gpu is None:
        if torch.cuda:
            yield f"is built with CUDA {torch.cuda}, and the variant is CPU-only"
        return
    if torch.cuda is None:
        yield "is a CPU-only PyTorch: it was built without CUDA"
        return
    if release.cuda and torch.cuda != release.cuda.version:
        yield f"is built with CUDA {torch.cuda}, not {release.cuda.version}"
    wanted = f"sm_{variant.gpu.capability.replace('.', '')}"
    if torch.arch_list != (wanted,):
        found = " ".join(torch.arch_list) or "nothing"
        yield f"is built for {found}, not for {wanted} alone"
    if not torch.magma:
        yield "is built without MAGMA"


def _wrong_capability(report: Report, variant: Variant) -> Iterator[str]:
    """Kernels below the ISA, on a CPU that has it: PyTorch chooses them when it starts.

    ATen takes its AVX512 kernels where f, bw, dq, vl and fma are there. On ARM the names depend
    on the length of the vectors, so nothing is concluded from them.
    """
    found = report.torch.cpu_capability
    if "avx512f" in variant.cpu.cpuinfo and found != "AVX512":
        yield f"takes {found} kernels, not AVX512"
    elif "avx2" in variant.cpu.cpuinfo and found not in {"AVX2", "AVX512"}:
        yield f"takes {found} kernels, not AVX2"


def _bad(report: Report, where: str, gpu: Device | None) -> Iterator[str]:
    """Every test of the CPU or the GPU that did not pass, also one that the report lacks."""
    by_name = {test.name: test for test in report.tests}
    wanted = [name for name, (device, _) in script.tests().items() if device == where]
    found = [by_name.get(name) or Test(name=name, outcome="not run") for name in wanted]
    for test in found:
        if test.outcome == "failed" or (
            test.outcome == "skipped" and not _may_be_skipped(test, gpu)
        ):
            yield f"{test.name}: {_why(test)}"
    if missing := [test.name for test in found if test.outcome == "not run"]:
        yield f"not run: {', '.join(missing)}"


def _may_be_skipped(test: Test, gpu: Device | None) -> bool:
    """Whether a GPU cannot do what a test asks for. A torch without MAGMA is said once."""
    if test.outcome != "skipped" or gpu is None:
        return False
    old = tuple(map(int, gpu.capability.split("."))) < script.FP8_CAPABILITY
    return test.name == "cuda solve magma" or (test.name == "cuda matmul fp8" and old)


def _why(test: Test) -> str:
    size = "" if test.error is None else f"error {test.error:.2g}, tolerance {test.tolerance:g}"
    return "; ".join(filter(None, [size, test.message])) or test.outcome


def _ending(problems: Iterable[str]) -> Literal["passed", "failed"]:
    return "failed" if any(True for _ in problems) else "passed"


def _no_gpu(report: Report, variant: Variant) -> str:
    """Why the CUDA half could not be proved."""
    driver, cuda = report.driver, variant.release.cuda
    hidden = driver.visible_devices is not None and driver.visible_devices in {"", "-1"}
    if driver.version is None and driver.libcuda_problem:
        return "no NVIDIA GPU here, so nothing could be proved of CUDA"
    if hidden:
        return "CUDA_VISIBLE_DEVICES hides the GPUs"
    if cuda and driver.version and _numbers(driver.version) < _numbers(cuda.driver):
        return (
            f"driver {driver.version} is older than {cuda.driver}, which CUDA {cuda.version} needs"
        )
    if driver.libcuda_problem:
        return (
            f"driver {driver.version} is here, and this Python does not find its library "
            f"({driver.libcuda_problem}); torch says: {report.cuda.reason}"
        )
    return f"torch reaches no GPU: {report.cuda.reason}"


def _notes(report: Report, variant: Variant, gpu: Device | None) -> Iterator[str]:
    """What is worth knowing and decides nothing."""
    if "+" in report.torch.version:
        yield f"PyTorch says that it is {report.torch.version}"
    if variant.gpu is None or gpu is None or gpu.capability == variant.gpu.capability:
        return
    for device in report.cuda.devices:
        if device.capability == variant.gpu.capability:
            yield f"--device {device.index} is {device.name} ({device.capability}), which fits"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
