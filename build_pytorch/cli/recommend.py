"""`invoke recommend`: name the right variant for a machine, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

from build_pytorch.base.console import Screen, print_json, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.hardware import explain, resolver, saved_machines
from build_pytorch.hardware.machine_model import Machine
from build_pytorch.hardware.resolver import Answer, Candidate, Recommendation
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
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
        from build_pytorch.hardware import detect  # loads the modules of NVML and archspec

        machine = detect.this_machine()
    result = resolver.recommend(
        fleet, machine, options.workload, gpu=options.gpu, release=options.release or None
    )
    best = [answer.best.variant for answer in result.answers if answer.best]
    code = EXIT_OK if best else EXIT_FINDINGS  # a variant for one GPU of several is enough
    view = _View(fleet=fleet, result=result, known=evidence.look(options.root, best))
    if options.json:
        print_json({**view.as_dict(), "exit_code": code}, sys.stdout)
    else:
        view.show(Screen(sys.stdout))
    return code


def print_machine(screen: Screen, machine: Machine) -> None:
    """Print what is known of a machine, and what could not be detected."""
    for line in explain.machine_lines(machine):
        screen.line(visible(line))
    for note in machine.notes:
        screen.line(screen.paint(visible(f"note     {note}"), "yellow"))


class _View(Struct, frozen=True, kw_only=True):
    """A recommendation for the terminal and for --json."""

    fleet: Matrix
    result: Recommendation
    known: Mapping[str, VariantResult]
    """What this checkout has of the best variants, by package name."""

    def as_dict(self) -> dict[str, Any]:
        """Return the document for --json, without its exit code."""
        return {
            "machine": to_builtins(self.result.machine),
            "for": self.result.workload,
            "answers": [self._answer(answer) for answer in self.result.answers],
            "for_all": self.result.for_all and self.result.for_all.id,
        }

    def _answer(self, answer: Answer) -> dict[str, Any]:
        best, waits = answer.best, answer.waits_for_driver
        return {
            "gpus": [gpu.index for gpu in answer.gpus],
            "best": best
            and {
                **_candidate(best),
                "reason": explain.why_best(best, self.result.workload),
                "commands": self._commands(best),
            },
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

    def _commands(self, best: Candidate) -> dict[str, list[str]]:
        published = self.known[best.variant.package].published
        organization = published.organization if published else ""
        return explain.commands(self.fleet, best.variant, organization)

    def show(self, screen: Screen) -> None:
        """Print the machine, an answer for each kind of GPU, and the variant for all GPUs."""
        print_machine(screen, self.result.machine)
        several = len(self.result.answers) > 1
        for answer in self.result.answers:
            which = ""
            if several:
                numbers = ", ".join(str(gpu.index) for gpu in answer.gpus)
                which = f" for GPU {numbers} ({answer.gpus[0].name})"
            screen.line()
            self._show_answer(screen, answer, which)
        if several:
            variant = self.result.for_all
            text = f"For all GPUs: {variant.id if variant else 'no variant runs on each of them.'}"
            screen.line()
            screen.line(screen.paint(text, "green" if variant else ""))

    def _show_answer(self, screen: Screen, answer: Answer, which: str) -> None:
        def line(text: str, colour: str = "") -> None:
            screen.line(screen.paint(visible(text), colour))

        if waits := answer.waits_for_driver:
            why = waits.obstacles[0].text
            line(f"{waits.variant.id} needs a newer driver{which}: {why}", "yellow")
        fallbacks = []
        if best := answer.best:
            line(f"Best{which}: {best.variant.id}", "green")
            line(f"  {explain.why_best(best, self.result.workload)}")
            for doubt in best.doubts:
                line(f"  check: {doubt}", "yellow")
            for what, lines in self._commands(best).items():
                line(f"  {what:<8} {'   or   '.join(lines)}")
            line(f"  It is {_state(self.known[best.variant.package])}.")
            for it in answer.fallbacks:
                doubts = [doubt for doubt in it.doubts if doubt not in best.doubts]
                why = "; ".join((explain.why_fallback(it, best), *doubts))
                fallbacks.append((it.variant.id, why))
        else:
            line(f"No variant{which} runs here.", "red")
        for gap in answer.gaps:
            line(f"  missing: {gap}", "yellow")
        _print_table(screen, "Fallbacks, in this order:", fallbacks)
        reasons = explain.joined((miss.subject, miss.text) for miss in answer.near_misses)
        _print_table(screen, "Why not the others:", reasons)


def _print_table(screen: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        width = min(max(len(first) for first, _ in rows), _WIDTH)
        screen.line(title)
        for first, second in rows:
            screen.line(visible(f"  {first:<{width}}  {second}"))


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "release": candidate.variant.release_name,
        "variant": candidate.variant.id,
        "package": candidate.variant.package,
        "grade": candidate.grade,
        "doubts": list(candidate.doubts),
    }


def _state(known: VariantResult) -> str:
    if known.published:
        return "published from this checkout"
    return f"{'built in' if known.output else 'neither built nor published from'} this checkout"
