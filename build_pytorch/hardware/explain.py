"""A recommendation as people read it, and as programs do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from build_pytorch.base.console import Screen, visible
from build_pytorch.hardware import advice
from build_pytorch.hardware.fit import Fit, Obstacle
from build_pytorch.hardware.machine_model import Machine, MachineGpu
from build_pytorch.hardware.resolver import Answer, Recommendation
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.results.evidence import VariantResult

History = Callable[[Variant], VariantResult]
"""What the checkout knows of a variant."""

_WIDTH: Final = 36
"""How wide the first column of a table gets, in characters; what is longer moves its row's rest."""


def print_machine(screen: Screen, machine: Machine) -> None:
    """A few lines that say what was read."""
    cpu = machine.cpu
    name = cpu.model or cpu.vendor or "an unknown CPU"
    known = f" ({cpu.microarchitecture})" if cpu.microarchitecture else ""
    screen.line(visible(f"machine  {machine.platform}, {name}{known}"))
    for numbers, text in _shared((str(gpu.index), _gpu(gpu)) for gpu in machine.gpus):
        screen.line(visible(f"gpu {numbers:<4} {text}"))
    if machine.driver or machine.cuda:
        runs = f", runs CUDA {machine.cuda}" if machine.cuda else ""
        screen.line(f"driver   {machine.driver or 'of unknown version'}{runs}")
    if not machine.gpus:
        screen.line("gpu      none that a driver answers for")
    for note in machine.notes:
        screen.line(screen.paint(visible(f"note     {note}"), "yellow"))


def print_recommendation(
    screen: Screen, matrix: Matrix, result: Recommendation, history: History
) -> None:
    """The machine, then an answer for each kind of GPU, then the variant that serves all."""
    print_machine(screen, result.machine)
    for answer in result.answers:
        screen.line()
        _print_answer(screen, matrix, result, answer, history)
    if len(result.answers) > 1:
        screen.line()
        if result.for_all:
            screen.line(screen.paint(f"For all GPUs: {result.for_all.id}", "green"))
        else:
            screen.line("For all GPUs: no variant runs on every one of them.")


def _print_answer(
    screen: Screen, matrix: Matrix, result: Recommendation, answer: Answer, history: History
) -> None:
    which = ""
    if len(result.answers) > 1 and answer.gpus:
        numbers = ", ".join(str(gpu.index) for gpu in answer.gpus)
        which = f" for GPU {numbers} ({answer.gpus[0].name})"
    best = answer.best
    if waits := answer.waits_for_driver:
        what = f"{waits.variant.id} waits for a newer driver{which}: {waits.obstacles[0].text}"
        screen.line(screen.paint(visible(what), "yellow"))
    if best is None:
        screen.line(screen.paint(visible(f"No variant{which} runs here."), "red"))
    else:
        screen.line(screen.paint(visible(f"Best{which}: {best.variant.id}"), "green"))
        screen.line(f"  {advice.why_best(best, result.workload)}")
        for doubt in best.doubts:
            screen.line(screen.paint(f"  to be sure of: {doubt}", "yellow"))
        _print_commands(screen, matrix, best.variant, history)
    for gap in answer.gaps:
        screen.line(screen.paint(visible(f"  missing: {gap}"), "yellow"))
    if best:
        rows = []
        for fit in answer.fallbacks:
            doubts = [doubt for doubt in fit.doubts if doubt not in best.doubts]
            rows.append((fit.variant.id, "; ".join((advice.why_fallback(fit, best), *doubts))))
        _print_table(screen, "Fallbacks, in this order:", rows)
    reasons = _shared((miss.subject, miss.text) for miss in answer.near_misses)
    _print_table(screen, "Why not the others:", reasons)


def _print_commands(screen: Screen, matrix: Matrix, variant: Variant, history: History) -> None:
    result = history(variant)
    for what, lines in advice.commands(matrix, variant, result).items():
        screen.line(f"  {what:<8} {'   or   '.join(lines)}")
    screen.line(f"  It is {advice.state(result)}.")


def _print_table(screen: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        return
    width = min(max(len(first) for first, _ in rows), _WIDTH)
    screen.line(title)
    for first, second in rows:
        screen.line(visible(f"  {first:<{width}}  {second}"))


def _shared(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows with the same text as one row, with their subjects beside each other."""
    subjects: dict[str, list[str]] = {}
    for subject, text in rows:
        subjects.setdefault(text, []).append(subject)
    return [(", ".join(several), text) for text, several in subjects.items()]


def document(
    matrix: Matrix, result: Recommendation, history: History, code: int
) -> dict[str, object]:
    """The same for programs."""
    return {
        "machine": msgspec.to_builtins(result.machine),
        "for": result.workload,
        "answers": [_answer(matrix, result, answer, history) for answer in result.answers],
        "for_all": result.for_all and result.for_all.id,
        "exit_code": code,
    }


def _answer(
    matrix: Matrix, result: Recommendation, answer: Answer, history: History
) -> dict[str, object]:
    best = answer.best
    waits = answer.waits_for_driver
    return {
        "gpus": [gpu.index for gpu in answer.gpus],
        "best": best
        and {
            **_fit(best),
            "reason": advice.why_best(best, result.workload),
            "commands": advice.commands(matrix, best.variant, history(best.variant)),
        },
        "fallbacks": [
            {**_fit(fit), "reason": advice.why_fallback(fit, best)}
            for fit in answer.fallbacks
            if best
        ],
        "waits_for_driver": waits and _fit(waits),
        "near_misses": [_obstacle(miss) for miss in answer.near_misses],
        "missing": list(answer.gaps),
        "variants": [
            {**_fit(fit), "runs": fit.runs, "obstacles": [_obstacle(o) for o in fit.obstacles]}
            for fit in answer.fits
        ],
    }


def _fit(fit: Fit) -> dict[str, object]:
    return {
        "release": fit.variant.release_name,
        "variant": fit.variant.id,
        "package": fit.variant.package,
        "grade": fit.grade,
        "doubts": list(fit.doubts),
    }


def _obstacle(obstacle: Obstacle) -> dict[str, str]:
    return {"kind": obstacle.kind, "subject": obstacle.subject, "text": obstacle.text}


def _gpu(gpu: MachineGpu) -> str:
    memory = f", {gpu.memory / 2**30:.0f} GiB" if gpu.memory else ""
    return f"{gpu.name}, capability {gpu.capability or 'unknown'}{memory}"
