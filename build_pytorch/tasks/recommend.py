"""`invoke recommend`: what is chosen for a machine, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from build_pytorch.tasks.command import command, load, words

if TYPE_CHECKING:
    from build_pytorch.hardware.choice import Answer, ChosenBuild
    from build_pytorch.hardware.verdicts import Candidate
    from build_pytorch.hardware.wheels import Measurement
    from build_pytorch.matrix.model import Variant
    from build_pytorch.results.package_state import PackageState
    from build_pytorch.tasks.recommend_screen import Offer


@command(texts={"release": "only variants of this release"})
def recommend(
    c: Context,
    machine: str = "",
    gpu: str = "",
    cpu: str = "",
    driver: str = "",
    describe: bool = False,
    release: str = "",
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Recommend a variant for a machine, with reasons."""
    from build_pytorch.base.console import Screen, print_json, write
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
    from build_pytorch.hardware import saved_machines
    from build_pytorch.hardware.choose import choose
    from build_pytorch.hardware.described import described_machine
    from build_pytorch.results.package_state import package_states
    from build_pytorch.tasks import recommend_screen
    from build_pytorch.tasks.machine_lines import print_machine

    matrix = load(is_for_any=True)
    found, number = described_machine(matrix, machine, words(gpu), cpu, driver)
    if describe:
        write(sys.stdout, saved_machines.text_of(found))
        return EXIT_OK
    here = [variant for variant in matrix.variants if variant.platform == found.platform]
    states = package_states(matrix.root, here)

    def offer_of(variant: Variant) -> Offer:
        return _offer(states[variant.id])

    measurements = list(_measurements(states.values()))
    choice = choose(matrix, found, gpu=number, release=release or None, measurements=measurements)
    code = EXIT_OK if choice.runs else EXIT_FINDINGS
    if not json:
        screen = Screen(sys.stdout)
        print_machine(screen, found, matrix.cpus.values())
        recommend_screen.show(screen, found, choice, offer_of, verbose=verbose)
        return code
    update = choice.update
    document = {
        "machine": saved_machines.document(found),
        "best": _build(choice.best),
        "ideal": _build(choice.ideal),
        "update": update and {"says": update.says, "build": _build(update.build)},
        "wheel": choice.wheel,
        "install": choice.wheel.command if choice.wheel else None,
        "compared": choice.compared,
        "remarks": choice.remarks,
        "for_all": choice.for_all.id if choice.for_all else None,
        "answers": [_answer(it) for it in choice.answers],
        "companions": [
            it.id for it in (matrix.companions_of(choice.best.variant) if choice.best else ())
        ],
        "commands": offer_of(choice.best.variant).every if choice.best else {},
        "exit_code": code,
    }
    print_json(document, sys.stdout)
    return code


def _build(build: ChosenBuild | None) -> dict[str, Any] | None:
    """Return a build for programs; GPUs are numbers."""
    if build is None:
        return None
    return {
        "variant": build.variant.id,
        "package": build.variant.package,
        "gpus": [gpu.index for gpu in build.gpus],
        "unused_gpus": [gpu.index for gpu in build.unused],
        "in_matrix": build.is_in_matrix,
        "reason": build.reason,
        "command": build.command,
        "lines": build.lines.splitlines(),
    }


def _answer(answer: Answer) -> dict[str, Any]:
    """Return the answer for the GPUs of one kind for programs."""
    waits = answer.waits_for_driver
    return {
        "gpus": [gpu.index for gpu in answer.gpus],
        "best": answer.best.variant.id if answer.best else None,
        "waits_for_driver": waits.variant.id if waits else None,
        "reasons": answer.reasons,
        "variants": [_candidate(it) for it in (*answer.accepted, *answer.rejected)],
    }


def _candidate(it: Candidate) -> dict[str, Any]:
    """Return the verdict on a variant for programs."""
    return {
        "variant": it.variant.id,
        "runs": not it.obstacles,
        "grade": it.grade,
        "doubts": it.doubts,
        "obstacles": it.obstacles,
    }


def _measurements(states: Iterable[PackageState]) -> Iterator[Measurement]:
    """Yield what comparisons of current recipes found, as the ledger has it."""
    from build_pytorch.compare.ratio_statistics import overall
    from build_pytorch.hardware.wheels import Measurement

    for state in states:
        for event in state.of_recipe("tested"):
            if facts := event.compared:
                yield Measurement(
                    package=state.package.id,
                    against=facts.against,
                    machine_class=facts.machine,
                    verdict=overall(facts.verdicts.values()),
                    figures=event.reason,
                    date=event.at[:10],
                )


def _offer(state: PackageState) -> Offer:
    """Return how to get a build of the matrix."""
    from build_pytorch.tasks.package_commands import commands
    from build_pytorch.tasks.recommend_screen import Offer

    every = commands(state.package, state)
    what, says = "build", "a recipe; nobody here has built it yet"
    if state.publication:
        organization = state.publication.organization
        what, says = "install", f"built and published by {organization or 'yourself'}"
    elif state.output:
        what, says = "publish", "built here"
    return Offer(says=says, first={what: every[what][0]}, every=every)
