"""One comparison: the builds, the machine, every setting, the outcome and its record."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from build_pytorch.base.console import counted, waiting
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.compare import builds, measurement
from build_pytorch.compare.builds import ComparedBuild, Say
from build_pytorch.compare.measurement import ComparedTorch, Estimate, MeasuredSetting, Setting
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
    """failed: A is slower, lacks a workload or had other threads; skipped: nobody can tell."""
    reasons: tuple[str, ...]
    alias: str = ""
    """The line for matrix.toml that makes A an alias of B, which is no slower; empty for others."""
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
    """Measure A against B, the two `names`, and record it as evidence for A. Returns A as well.

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
    gpus = [measured.last[0].gpu for measured in found if measured.last[0].gpu]
    cpu = detect.this_machine().cpu.model or "unknown CPU"
    means = {it.title: it.mean for it in found if it.mean}
    is_fair = all(judged_setting(it)[0] is means[it.title].verdict for it in found)
    result = Comparison(
        a=_side(a, a_torch),
        b=_side(b, b_torch),
        machine=", ".join([cpu, f"{cores} cores", *gpus]),
        load=load,
        settings=tuple(found),
        outcome=outcome,
        reasons=reasons,
        alias=alias_line(a, b, means) if is_fair else "",
    )
    facts = ComparedFacts(
        against=b.label,
        machine=result.machine,
        ratios={measured.title: measured.mean.ratio for measured in found if measured.mean},
        verdicts={measured.title: judged_setting(measured)[0] for measured in found},
    )
    recorded = evidence.record_evidence(
        matrix.root, a.package, a.artefact, test="compare", result=result, compared=facts
    )
    return recorded, a


def judged(settings: Sequence[MeasuredSetting]) -> tuple[TestOutcome, tuple[str, ...]]:
    """Return the outcome by the verdict of each setting, and each of them in words.

    Raises BuildPytorchError where a setting has no workload.
    """
    found = [judged_setting(measured) for measured in settings]
    reasons = [
        f"{measured.title}: {text}"
        for measured, (_, texts) in zip(settings, found, strict=True)
        for text in texts
    ]
    # The order of Verdict: slower, too noisy, faster, no difference.
    worst = min((verdict for verdict, _ in found), key=list(Verdict).index)
    outcomes: dict[Verdict, TestOutcome] = {Verdict.SLOWER: "failed", Verdict.NOISY: "skipped"}
    return outcomes.get(worst, "passed"), tuple(reasons)


def judged_setting(found: MeasuredSetting) -> tuple[Verdict, list[str]]:
    """Return the verdict of a setting, and what it rests on in words.

    A is slower as well if it lacks a workload that B can run, or had other threads than were asked.
    If only B had, nobody can tell.
    """
    if found.mean is None:
        raise BuildPytorchError(f"{found.title}: A and B have no workload that both can run")
    verdict, asked = found.mean.verdict, found.setting.threads
    texts = [f"{verdict}, {interval(found.mean)}"]
    for side, report in reversed([*zip("AB", found.last, strict=True)]):
        if asked and report.threads != asked:
            ran = f"{side} ran with {counted(report.threads, 'thread')} where {asked} were asked"
            why = f"OMP_NUM_THREADS is {report.asked or 'not set'} in its process"
            texts.append(f"{ran}: {why}")
            verdict = Verdict.SLOWER if side == "A" else Verdict.NOISY
    a, b = found.last
    for name in sorted(a.errors.keys() - b.errors.keys()):
        texts.append(f"A cannot run {name}: {a.errors[name]}")
        verdict = Verdict.SLOWER
    return verdict, texts


def alias_line(a: ComparedBuild, b: ComparedBuild, means: Mapping[str, Estimate]) -> str:
    """Return the line that makes A an alias of B: both differ in the ISA, and A is not faster.

    `means`: geometric means by setting. Empty for other builds and for undecided ones.
    """
    one, other = a.package, b.package
    verdicts = {mean.verdict for mean in means.values()}
    is_decided = verdicts and verdicts <= {Verdict.EQUAL, Verdict.SLOWER}
    if not (one and other and is_decided):
        return ""
    same = (one.release_name, one.gpu_key, one.name) == (
        other.release_name,
        other.gpu_key,
        other.name,
    )
    if not same or one.cpu.level <= other.cpu.level:
        return ""
    ratios = "; ".join(f"{title}: {interval(mean)}" for title, mean in means.items())
    cpu = detect.this_machine().cpu.model or "unknown CPU"
    now = dt.datetime.now(dt.UTC)
    said = f"{one.version}, {one.short_id} / {other.short_id}, {ratios}, {cpu}, {now:%Y-%m-%d}"
    return f'cpu.{one.cpu_key} = {{ same_as = "{other.cpu_key}", evidence = {json.dumps(said)} }}'


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
    with waiting(f"starting {build.label}"):
        torch = measurement.torch_of(build)
    is_torch = build.artefact and not (build.package and build.package.companion)
    if build.artefact and is_torch and not build.artefact.holds(torch.file):
        raise BuildPytorchError(f"{build.label}: imports another torch, {torch.file}")
    return build, torch


def _measured(both: Sequence[ComparedBuild], setting: Setting, end: float) -> MeasuredSetting:
    """Measure one setting until the time `end`, with a line of progress."""
    with waiting(setting.title) as line:
        return measurement.measure(
            both,
            setting,
            measurement.run_process,
            is_over=lambda: time.monotonic() >= end,
            on_round=lambda number: line.update(f"{setting.title}, round {number}"),
        )


def _side(build: ComparedBuild, torch: ComparedTorch) -> ComparedSide:
    return ComparedSide(
        label=build.label,
        python=str(build.python),
        output=str(build.artefact.output) if build.artefact else "",
        closure=builds.closure_bytes(build),
        torch=torch,
    )
