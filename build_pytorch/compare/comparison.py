"""One comparison: the builds, the machine, every setting, the outcome and its record."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from build_pytorch.base.console import ProgressLine, counted
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.compare import builds, measurement
from build_pytorch.compare.builds import ComparedBuild, Say
from build_pytorch.compare.measurement import ComparedTorch, MeasuredSetting, Setting
from build_pytorch.compare.ratio_statistics import Estimate, overall
from build_pytorch.hardware import detect
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import evidence
from build_pytorch.results.ledger import ComparedFacts, TestOutcome, Verdict


class ComparedSide(Struct, frozen=True, kw_only=True):
    """A or B: which Python it is and what it takes. Sizes are in bytes."""

    label: str
    python: str
    output: str
    """The store path, if that is what was measured."""
    closure: int
    """Of the store path and all that it needs; 0: not in a Nix store."""
    torch: ComparedTorch


class Comparison(Struct, frozen=True, kw_only=True):
    """The result; the fields are keys of --json and of the report's file."""

    a: ComparedSide
    b: ComparedSide
    machine: str
    """The class of machine: CPU, number of cores, GPU."""
    load: float
    """Load of the last minute at the start, in processes."""
    settings: tuple[MeasuredSetting, ...]
    outcome: TestOutcome
    """failed: A is slower, or had other threads; skipped: nobody can tell."""
    reasons: tuple[str, ...]
    recorded: bool = False
    report: str = ""


def compare(  # noqa: PLR0913 - the options of the command
    matrix: Matrix,
    names: Sequence[str],
    say: Say,
    *,
    device: str,
    threads: Sequence[int],
    minutes: float,
    cores: int,
) -> tuple[Comparison, ComparedBuild]:
    """Measure A against B, the two `names`, and record it. Returns A as well.

    `device`, empty: the CPU, and the GPU where both can use it. `threads`, empty: one and `cores`,
    those that this process may use. Raises BuildPytorchError.
    """
    load = os.getloadavg()[0]
    a, a_torch = _checked(matrix, names[0], None, say)
    b, b_torch = _checked(matrix, names[1], a_torch, say)
    settings = [Setting("cpu", number) for number in threads or dict.fromkeys((1, cores))]
    if device not in {"", "cpu"}:
        settings = [Setting(device, 0)]
    elif not device and a_torch.cuda and b_torch.cuda and detect.this_machine().gpus:
        settings.append(Setting("0", 0))
    found, end = [], time.monotonic() + minutes * 60
    for index, setting in enumerate(settings):
        now = time.monotonic()
        found.append(_measured((a, b), setting, now + max(0, end - now) / (len(settings) - index)))
    outcome, reasons = judged(found)
    result = Comparison(
        a=_side(a, a_torch),
        b=_side(b, b_torch),
        machine=_machine(found, cores),
        load=load,
        settings=tuple(found),
        outcome=outcome,
        reasons=reasons,
    )
    return _recorded(matrix.root, a, result), a


def _recorded(root: Path, a: ComparedBuild, result: Comparison) -> Comparison:
    """Record a comparison as evidence for A. Raises WriteError."""
    found = result.settings
    return evidence.record_evidence(
        root,
        a.package,
        a.artefact,
        test="compare",
        result=result,
        compared=ComparedFacts(
            against=result.b.label,
            machine=result.machine,
            ratios={each.title: each.mean.ratio for each in found if each.mean},
            verdicts={each.title: verdict(each) for each in found},
        ),
    )


def _machine(found: Sequence[MeasuredSetting], cores: int) -> str:
    """Return the class of this machine, with the GPU that was used."""
    gpus = [each.last[0].gpu for each in found if each.last[0].gpu]
    return ", ".join([detect.this_machine().cpu.model or "unknown CPU", f"{cores} cores", *gpus])


def judged(
    settings: Sequence[MeasuredSetting],
) -> tuple[TestOutcome, tuple[str, ...]]:
    """Return the outcome by the verdict of each setting, and each of them in words.

    Raises BuildPytorchError where a setting has no workload.
    """
    reasons = []
    for each in settings:
        if each.mean is None:
            raise BuildPytorchError(f"{each.title}: A and B have no workload that both can run")
        texts = [f"{each.mean.verdict}, {interval(each.mean)}", *other_threads(each).values()]
        reasons += [f"{each.title}: {text}" for text in texts]
    outcomes: dict[Verdict, TestOutcome] = {Verdict.SLOWER: "failed", Verdict.NOISY: "skipped"}
    return outcomes.get(overall(map(verdict, settings)), "passed"), tuple(reasons)


def verdict(found: MeasuredSetting) -> Verdict:
    """Return the verdict of a setting: A is slow if it had other threads than were asked.

    If only B had, nobody can tell.
    """
    others = other_threads(found)
    if others or found.mean is None:
        return Verdict.SLOWER if "A" in others else Verdict.NOISY
    return found.mean.verdict


def other_threads(found: MeasuredSetting) -> dict[str, str]:
    """Return which of A and B ran with another number of threads than was asked, in words."""
    asked, texts = found.setting.threads, {}
    for side, report in zip("AB", found.last, strict=True):
        if asked and report.threads != asked:
            ran = f"{side} ran with {counted(report.threads, 'thread')} where {asked} were asked"
            texts[side] = f"{ran}: OMP_NUM_THREADS is {report.asked or 'not set'} in its process"
    return texts


def interval(estimate: Estimate) -> str:
    """Return a ratio with its interval, such as `1.22 (1.20 to 1.25)`."""
    return f"{estimate.ratio:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _checked(
    matrix: Matrix, text: str, other: ComparedTorch | None, say: Say
) -> tuple[ComparedBuild, ComparedTorch]:
    """Find or install a build and import it once, which loads its files into memory.

    `wheel` alone is the one like `other`. Raises BuildPytorchError.
    """
    python = other.python if other else platform.python_version()
    if text == "wheel":
        if other is None:
            raise BuildPytorchError("wheel: give its version, such as wheel:2.10.0")
        text = builds.wheel_like(other.version, other.cuda)
    if builds.is_wheel(text):
        build = builds.wheel(matrix.root, text, ".".join(python.split(".")[:2]), say)
    else:
        build = builds.build_of(matrix, text)
    with ProgressLine(f"starting {build.label}", 0) as progress:
        torch = measurement.torch_of(build, progress.at)
    is_torch = build.artefact and not (build.package and build.package.companion)
    if build.artefact and is_torch and not build.artefact.holds(torch.file):
        raise BuildPytorchError(f"{build.label}: imports another torch, {torch.file}")
    return build, torch


def _measured(both: Sequence[ComparedBuild], setting: Setting, end: float) -> MeasuredSetting:
    """Measure one setting until the time `end`, with a line of progress."""
    began = time.monotonic()
    with ProgressLine(setting.title, max(1, round(end - began))) as progress:

        def at(_: int = 0) -> None:
            progress.at(round(time.monotonic() - began))

        def on_round(number: int) -> None:
            progress.what = f"{setting.title}, round {number}"
            at()

        return measurement.measure(
            both,
            setting,
            lambda build, setting: measurement.run_process(build, setting, at),
            is_over=lambda: time.monotonic() >= end,
            on_round=on_round,
        )


def _side(build: ComparedBuild, torch: ComparedTorch) -> ComparedSide:
    return ComparedSide(
        label=build.label,
        python=str(build.python),
        output=str(build.artefact.output) if build.artefact else "",
        closure=builds.closure_bytes(build),
        torch=torch,
    )
