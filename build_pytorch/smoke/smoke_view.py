"""What people see of a smoke test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.base.console import Screen, counted, visible
from build_pytorch.matrix.model import Variant
from build_pytorch.smoke.judge import Judgement
from build_pytorch.smoke.smoke_report import Report, Test

_COLOURS: Final = {
    "passed": "green",
    "failed": "red",
    "skipped": "yellow",
    "compatible": "yellow",
    "not run": "dim",
}


_LISTED: Final = 4


def show(screen: Screen, variant: Variant, judgement: Judgement, report: Report | None) -> None:
    """Print what was found, what was done and what follows, for one variant."""
    if report:
        screen.line(screen.paint(variant.package, "bold"))
        for line in facts(variant, report):
            screen.line(visible(line))
        for test in _shown(variant, report):
            painted = screen.paint(f"{test.outcome:<8}", _COLOURS[test.outcome])
            screen.line(f"  {painted} {test.name:<21} {visible(_detail(test))}".rstrip())
    for note in judgement.notes:
        screen.line(visible(f"note: {note}"))
    _verdict(screen, variant, judgement)


def not_run(screen: Screen, cases: Sequence[tuple[Variant, Judgement]]) -> None:
    """Print those that were not run: each, or their number where they are many."""
    found = [(v, judgement) for v, judgement in cases if judgement.outcome == "not run"]
    for variant, judgement in found[:_LISTED]:
        _verdict(screen, variant, judgement)
    if more := found[_LISTED:]:
        screen.line(f"{screen.paint('not run', 'dim')}: {counted(len(more), 'more variant')}")


def _verdict(screen: Screen, variant: Variant, judgement: Judgement) -> None:
    first, *rest = judgement.reasons or ("",)
    outcome = screen.paint(judgement.outcome, _COLOURS[judgement.outcome])
    screen.line(f"{variant.id}: {outcome}{': ' if first else ''}{visible(first)}")
    for reason in rest:
        screen.line(f"  {visible(reason)}")


def facts(variant: Variant, report: Report) -> Iterator[str]:
    """What the plan's own test prints (seed 001, step 5), and the CPU's half of it."""
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
            found = gpu.capability.replace(".", "")
            yield f"\u26a0\ufe0f  Expected {variant.gpu_label}, got SM{found}"
    if torch.cuda:
        driver = report.driver.version or "none"
        arch_list = " ".join(torch.arch_list)
        yield f"Built for: {arch_list}; cuDNN {torch.cudnn or 'none'}; driver here: {driver}"
    yield f"CPU: {report.cpu.model or report.python.machine}, {torch.cpu_capability} kernels"


def _shown(variant: Variant, report: Report) -> Iterator[Test]:
    """The tests that say something: none of the GPU where the variant or the machine has none."""
    for test in report.tests:
        if test.name.startswith("cpu ") or (variant.gpu and report.cuda.available):
            yield test


def _detail(test: Test) -> str:
    parts = []
    if test.error is not None:
        parts.append(f"error {test.error:.1e}, tolerance {test.tolerance:.0e}")
    if test.seconds:
        parts.append(f"{test.seconds:.2f} s")
    return ", ".join([*parts, *([test.message] if test.message else [])])
