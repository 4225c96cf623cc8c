"""What people read of a report: what was tested, and the tests that were asked for."""

from __future__ import annotations

from collections.abc import Iterator

from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.model import Variant
from build_pytorch.smoke.smoke_report import SmokeReport, SmokeResult


def facts(variant: Variant, report: SmokeReport) -> Iterator[str]:
    """Yield what was tested: PyTorch, its CUDA and the GPU, then the driver and the CPU."""
    torch, gpu = report.torch, report.gpu
    if torch.import_error:
        return
    yield f"PyTorch version: {torch.version}"
    yield f"CUDA available: {report.cuda.available}"
    yield f"CUDA version: {torch.cuda}"
    if gpu:
        yield f"GPU: {gpu.name}"
        yield f"Compute capability: {gpu.capability}"
    if gpu and variant.gpu:
        if gpu.capability == variant.gpu.capability:
            name = gpu.name.removeprefix("NVIDIA ")
            yield f"\u2705 {variant.gpu_label} ({name}) detected correctly!"
        else:
            here = sm_code(gpu.capability).replace("_", "").upper()
            yield f"\u26a0\ufe0f  Expected {variant.gpu_label}, got {here}"
    if torch.cuda:
        driver, codes = report.driver.version or "none", " ".join(torch.arch_list)
        yield f"Built for: {codes}; cuDNN {torch.cudnn or 'none'}; driver here: {driver}"
    for name, found in report.companions.items():
        yield f"{name} version: {found.version or 'not installed'}"
    yield f"CPU: {report.cpu.model or report.python.machine}, {torch.cpu_capability} kernels"


def tests(variant: Variant, report: SmokeReport) -> Iterator[SmokeResult]:
    """Yield the tests of what was asked for: not of other companions, nor of a GPU without one."""
    others = {t.name for t in report.declared if t.companion not in {"", *report.companions}}
    has_gpu = variant.gpu and report.cuda.available
    for test in report.tests:
        if test.name not in others and (has_gpu or test.name.startswith("cpu ")):
            yield test
