"""What `invoke recommend --json` prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.describe_machine import print_machine
from build_pytorch.cli.recommend_screen import OfferOf, show
from build_pytorch.hardware import explain, saved_machines
from build_pytorch.hardware.choice import Answer, Choice, ChosenBuild
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdicts import Candidate, Obstacle
from build_pytorch.hardware.wheels import ChosenWheel, Measurement
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.official_wheels import OfficialWheel

if TYPE_CHECKING:
    from argparse import Namespace

    from build_pytorch.cli.commands import RecommendOptions


class BuildRow(Struct, frozen=True, kw_only=True):
    """A build for the machine. `gpus` are numbers of GPUs; `command` makes its release."""

    variant: str
    release: str
    kind: str
    gpu: str | None
    arch: str | None
    isa: str
    host: str
    torch: str
    cuda: str | None
    package: str
    gpus: list[int]
    unused_gpus: list[int]
    in_matrix: bool
    reason: str
    command: str | None
    lines: list[str]  #: of matrix.toml, which add the build


class UpdateRow(Struct, frozen=True):
    """What to update, and the build that runs then."""

    says: str
    build: BuildRow


class WheelRow(Struct, frozen=True, kw_only=True):
    """The official wheel: the fields of `ChosenWheel`, with the command that installs it."""

    command: str
    wheel: OfficialWheel
    code: str
    limits: tuple[str, ...]
    runs_on: int


class CandidateRow(Struct, frozen=True, kw_only=True):
    """A variant with its verdict, and why it is the best or how it differs from it."""

    release: str
    variant: str
    package: str
    grade: str
    runs: bool
    doubts: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]
    reason: str


class CompanionRow(Struct, frozen=True):
    """A companion of the best variant."""

    name: str
    version: str
    variant: str
    package: str


class AnswerRow(Struct, frozen=True, kw_only=True):
    """The answer for the GPUs of one kind, with every variant in the order of the matrix."""

    gpus: list[int]
    best: CandidateRow | None
    companions: list[CompanionRow]
    commands: dict[str, list[str]]
    fallbacks: list[CandidateRow]
    waits_for_driver: CandidateRow | None
    reasons: tuple[Obstacle, ...]
    variants: list[CandidateRow]


class RecommendDocument(Struct, frozen=True, kw_only=True):
    """The document of --json; `machine` is as in its file."""

    machine: dict[str, Any]
    best: BuildRow | None
    ideal: BuildRow | None
    update: UpdateRow | None
    wheel: WheelRow | None
    compared: str
    remarks: tuple[str, ...]
    for_all: str | None
    answers: list[AnswerRow]
    exit_code: int


def answer(
    options: RecommendOptions | Namespace,
    matrix: Matrix,
    described: tuple[Machine, int | None],
    measurements: Sequence[Measurement],
    offer_of: OfferOf,
) -> int:
    """Choose for a machine or one GPU of it, and print that. Returns the exit code.

    Raises BuildPytorchError.
    """
    machine, gpu = described
    release = options.release or None
    choice = choose(matrix, machine, gpu=gpu, release=release, measurements=measurements)
    code = EXIT_OK if choice.runs else EXIT_FINDINGS
    if options.json:
        print_json(document_of(matrix, offer_of, machine, choice, code), sys.stdout)
    else:
        screen = Screen(sys.stdout)
        print_machine(screen, machine, matrix.cpus.values())
        show(screen, machine, choice, offer_of, verbose=options.verbose)
    return code


def document_of(
    matrix: Matrix, offer_of: OfferOf, machine: Machine, choice: Choice, code: int
) -> RecommendDocument:
    """Return the document; `code` is the exit code."""
    update, wheel = choice.update, choice.wheel
    return RecommendDocument(
        machine=saved_machines.document(machine),
        best=_build_row(choice.best) if choice.best else None,
        ideal=_build_row(choice.ideal) if choice.ideal else None,
        update=UpdateRow(update.says, _build_row(update.build)) if update else None,
        wheel=_wheel_row(wheel) if wheel else None,
        compared=choice.compared,
        remarks=choice.remarks,
        for_all=choice.for_all.id if choice.for_all else None,
        answers=[_answer_row(matrix, offer_of, answer) for answer in choice.answers],
        exit_code=code,
    )


def _build_row(build: ChosenBuild) -> BuildRow:
    variant = build.variant
    return BuildRow(
        variant=variant.id,
        release=variant.release_name,
        kind=variant.kind,
        gpu=variant.gpu_key,
        arch=variant.gpu.capability if variant.gpu else None,
        isa=variant.cpu_key,
        host=variant.platform,
        torch=variant.version,
        cuda=variant.cuda.version if variant.cuda else None,
        package=variant.package,
        gpus=[gpu.index for gpu in build.gpus],
        unused_gpus=[gpu.index for gpu in build.unused],
        in_matrix=build.is_in_matrix,
        reason=build.reason,
        command=build.command or None,
        lines=build.lines.splitlines(),
    )


def _wheel_row(wheel: ChosenWheel) -> WheelRow:
    return WheelRow(
        command=wheel.command,
        wheel=wheel.wheel,
        code=wheel.code,
        limits=wheel.limits,
        runs_on=wheel.runs_on,
    )


def _row(candidate: Candidate, reason: str = "") -> CandidateRow:
    return CandidateRow(
        release=candidate.variant.release_name,
        variant=candidate.variant.id,
        package=candidate.variant.package,
        grade=candidate.grade,
        runs=not candidate.obstacles,
        doubts=candidate.doubts,
        obstacles=candidate.obstacles,
        reason=reason,
    )


def _answer_row(matrix: Matrix, offer_of: OfferOf, answer: Answer) -> AnswerRow:
    best, waits = answer.best, answer.waits_for_driver
    companions = matrix.companions_of(best.variant) if best else ()
    by_id = {each.variant.id: each for each in (*answer.accepted, *answer.rejected)}
    return AnswerRow(
        gpus=[gpu.index for gpu in answer.gpus],
        best=_row(best, explain.why_best(best)) if best else None,
        companions=[CompanionRow(it.name, it.version, it.id, it.package) for it in companions],
        commands=offer_of(best.variant).every if best else {},
        fallbacks=[_row(it, explain.why_fallback(it, best)) for it in answer.accepted[1:] if best],
        waits_for_driver=_row(waits) if waits else None,
        reasons=answer.reasons,
        variants=[_row(by_id[v.id]) for v in matrix.variants if v.id in by_id],
    )
