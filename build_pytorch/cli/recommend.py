"""`invoke recommend`: name the right variant for a machine, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import to_builtins

from build_pytorch.base.console import WIDTH, Screen, print_json, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.hardware import explain, resolver, saved_machines
from build_pytorch.hardware.resolver import Answer, Candidate
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import CpuIsa
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult

_WIDTH: Final = 36
"""Maximum width of a table's first column, in characters."""


def run(options: RecommendOptions) -> int:
    """Print the recommendation. Returns 1 if no variant runs. Raises BuildPytorchError."""
    fleet = matrix_reader.load()
    if options.machine:
        machine = saved_machines.load(options.machine)
    else:
        from build_pytorch.hardware import detect  # loads the module of NVML

        machine = detect.this_machine()
    result = resolver.recommend(fleet, machine, gpu=options.gpu, release=options.release or None)
    best = [answer.best.variant for answer in result.answers if answer.best]
    code = EXIT_OK if best else EXIT_FINDINGS  # a variant for one GPU of several is enough
    known = evidence.look(options.root, best)
    rows = [_row(known, answer) for answer in result.answers]
    for_all = result.for_all and result.for_all.id
    if options.json:
        document = {"machine": to_builtins(machine), "answers": rows}
        print_json({**document, "for_all": for_all, "exit_code": code}, sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, machine, fleet.cpus.values())
    for answer, row in zip(result.answers, rows, strict=True):
        which = ""
        if len(rows) > 1:
            which = f" for GPU {', '.join(map(str, row['gpus']))} ({answer.gpus[0].name})"
        screen.line()
        _show(screen, answer, row, which, known)
    if len(rows) > 1:
        screen.line()
        text = f"For all GPUs: {for_all or 'no variant runs on each of them.'}"
        screen.line(screen.paint(text, "green" if for_all else ""))
    return code


def print_machine(screen: Screen, machine: Machine, isas: Iterable[CpuIsa] = ()) -> None:
    """Print what is known of a machine, the flags that decide, and what could not be detected."""
    for line in explain.machine_lines(machine, isas):
        screen.fold("", visible(line), indent=9)
    for note in machine.notes:
        screen.fold("note     ", visible(note), "yellow", indent=9)


def _row(known: Mapping[str, VariantResult], answer: Answer) -> dict[str, Any]:
    """Return an answer for --json."""
    best, waits = answer.best, answer.waits_for_driver
    row = None
    if best:
        published = known[best.variant.package].published
        organization = published.organization if published else ""
        row = {
            **_candidate(best),
            "reason": explain.why_best(best),
            "commands": explain.commands(best.variant, organization),
        }
    return {
        "gpus": [gpu.index for gpu in answer.gpus],
        "best": row,
        "fallbacks": [
            {**_candidate(it), "reason": explain.why_fallback(it, best)}
            for it in answer.fallbacks
            if best
        ],
        "waits_for_driver": waits and _candidate(waits),
        "near_misses": to_builtins(answer.near_misses),
        "missing": list(answer.gaps),
        "variants": [
            {**_candidate(it), "runs": not it.obstacles, "obstacles": to_builtins(it.obstacles)}
            for it in answer.candidates
        ],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "release": candidate.variant.release_name,
        "variant": candidate.variant.id,
        "package": candidate.variant.package,
        "grade": candidate.grade,
        "doubts": list(candidate.doubts),
    }


def _show(
    screen: Screen,
    answer: Answer,
    row: dict[str, Any],
    which: str,
    known: Mapping[str, VariantResult],
) -> None:
    """Print an answer; `which` names its GPUs if there are others."""

    def line(text: str, colour: str = "") -> None:
        if len(text) <= WIDTH:
            screen.line(screen.paint(visible(text), colour))
        else:
            screen.fold("", visible(text))

    if waits := answer.waits_for_driver:
        why = waits.obstacles[0].text
        line(f"{waits.variant.id} needs a newer driver{which}: {why}", "yellow")
    if best := row["best"]:
        line(f"Best{which}: {best['variant']}", "green")
        line(f"  {best['reason']}")
        for doubt in best["doubts"]:
            line(f"  check: {doubt}", "yellow")
        for what, lines in best["commands"].items():
            line(f"  {what:<8} {'   or   '.join(lines)}")
        line(f"  It is {_state(known[best['package']])}.")
    else:
        line(f"No variant{which} runs here.", "red")
    for gap in answer.gaps:
        line(f"  missing: {gap}", "yellow")
    fallbacks = []
    for it in row["fallbacks"]:
        doubts = [doubt for doubt in it["doubts"] if doubt not in best["doubts"]]
        fallbacks.append((it["variant"], "; ".join((it["reason"], *doubts))))
    _print_table(screen, "Fallbacks, in this order:", fallbacks)
    reasons = explain.joined((miss.subject, miss.text) for miss in answer.near_misses)
    _print_table(screen, "Why not the others:", reasons)


def _print_table(screen: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        width = min(max(len(first) for first, _ in rows), _WIDTH)
        screen.line(title)
        for first, second in rows:
            screen.fold(visible(f"  {first:<{width}}  "), visible(second), indent=width + 4)


def _state(known: VariantResult) -> str:
    if known.published:
        return "published from this checkout"
    return f"{'built in' if known.output else 'neither built nor published from'} this checkout"
