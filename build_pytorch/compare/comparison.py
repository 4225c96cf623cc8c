"""One comparison: the builds, the machine, every setting, the outcome and its record."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

from msgspec import Struct

from build_pytorch.compare.builds import ComparedBuild, ComparedTorch, Say, find_build
from build_pytorch.compare.measurement import MeasuredSetting, Verdict, measure
from build_pytorch.hardware import detect
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.results import evidence
from build_pytorch.results.ledger import TestOutcome


class Comparison(Struct, frozen=True, kw_only=True):
    """The result; the fields are keys of --json and of the report's file."""

    a: ComparedTorch
    b: ComparedTorch
    machine: str
    """The class of machine: CPU, number of cores, GPU."""
    settings: tuple[MeasuredSetting, ...]
    outcome: TestOutcome
    """failed: A is slower, lacks a workload or had other threads; skipped: too noisy to tell."""
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
    machine = detect.this_machine()
    a, a_torch = find_build(matrix, names[0], None, say)
    b, b_torch = find_build(matrix, names[1], a_torch, say)
    settings = [("cpu", number) for number in threads or dict.fromkeys((1, cores))]
    if device not in {"", "cpu"}:
        settings = [(device, 0)]
    elif not device and a_torch.cuda and b_torch.cuda and machine.gpus:
        settings.append(("0", 0))
    share = minutes * 60 / len(settings)
    found = [measure((a, b), setting, share) for setting in settings]
    cpu = machine.cpu.model or "unknown CPU"
    verdicts = {measured.verdict for measured in found}
    is_noisy, is_slower = Verdict.NOISY in verdicts, Verdict.SLOWER in verdicts
    result = Comparison(
        a=a_torch,
        b=b_torch,
        machine=", ".join([cpu, f"{cores} cores", *filter(None, (it.gpu for it in found))]),
        settings=tuple(found),
        outcome="failed" if is_slower else "skipped" if is_noisy else "passed",
        reasons=tuple(f"{it.title}: {reason}" for it in found for reason in it.reasons),
        alias=alias_line(a.package, b.package, found, cpu),
    )
    recorded = evidence.record_evidence(
        matrix.root, a.package, a.artefact, test="compare", result=result
    )
    return recorded, a


def alias_line(
    a: Package | None, b: Package | None, settings: Sequence[MeasuredSetting], cpu: str
) -> str:
    """Return the line that makes A an alias of B: both differ in the ISA, and A is not faster.

    Empty for other packages, and where a setting is undecided or A and B did not run alike.
    """
    fair = {Verdict.EQUAL, Verdict.SLOWER}
    if not all(it.verdict in fair and it.verdict is it.mean.verdict for it in settings):
        return ""
    if not (a and b) or a.cpu.level <= b.cpu.level:
        return ""
    if (a.release_name, a.gpu_key, a.name) != (b.release_name, b.gpu_key, b.name):
        return ""
    ratios = "; ".join(f"{measured.title}: {measured.mean}" for measured in settings)
    now = dt.datetime.now(dt.UTC)
    said = f"{a.version}, {a.short_id} / {b.short_id}, {ratios}, {cpu}, {now:%Y-%m-%d}"
    return f'cpu.{a.cpu_key} = {{ same_as = "{b.cpu_key}", evidence = {json.dumps(said)} }}'
