"""`invoke recommend`: print what is chosen for a machine, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import WIDTH, Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.cli.describe_machine import described_machine, print_machine
from build_pytorch.hardware import choose, explain, saved_machines
from build_pytorch.hardware.choose import Answer, Choice, ChosenBuild
from build_pytorch.hardware.verdicts import Candidate, Obstacle
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.results import package_state
from build_pytorch.results.package_state import PackageState

_COLUMN: Final = 28
"""Maximum width of a table's first column, in characters."""


class BuildRow(Struct, frozen=True, kw_only=True):
    """The best or the ideal build in --json."""

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
    after_driver_update: str | None
    command: str | None


class CandidateRow(Struct, frozen=True, kw_only=True):
    """A variant with its verdict in --json."""

    release: str
    variant: str
    package: str
    grade: str
    runs: bool
    doubts: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]
    reason: str = ""
    """Why it is the best, or how it differs from the best."""


class AnswerRow(Struct, frozen=True, kw_only=True):
    """The answer for the GPUs of one kind in --json."""

    gpus: list[int]
    best: CandidateRow | None
    companions: list[dict[str, str]]
    """What is compiled for the best."""
    commands: dict[str, list[str]]
    """What a user does with the best."""
    fallbacks: list[CandidateRow]
    waits_for_driver: CandidateRow | None
    reasons: tuple[Obstacle, ...]
    variants: list[CandidateRow]
    """Every variant, in the order of the matrix."""


def run(options: RecommendOptions) -> int:
    """Print the recommendation. Returns 1 if no variant runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    machine, number = described_machine(options, matrix)
    choice = choose.choose(matrix, machine, gpu=number, release=options.release or None)
    best = [answer.best.variant for answer in choice.answers if answer.best]
    code = EXIT_OK if best else EXIT_FINDINGS  # a variant for one GPU of several is enough
    known = package_state.package_states(options.root, best)
    rows = [_answer_row(matrix, known, answer) for answer in choice.answers]
    if options.json:
        document = {
            "machine": saved_machines.document(machine),
            "best": choice.best and _build_row(choice.best),
            "ideal": choice.ideal and _build_row(choice.ideal),
            "remarks": choice.remarks,
            "answers": rows,
            "for_all": choice.for_all and choice.for_all.id,
            "exit_code": code,
        }
        print_json(document, sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, machine, matrix.cpus.values())
    for answer, row in zip(choice.answers, rows, strict=True):
        which = ""
        if len(rows) > 1:
            which = f" for GPU {', '.join(map(str, row.gpus))} ({answer.gpus[0].name})"
        screen.line()
        _print_answer(screen, which, row, known)
    if len(rows) > 1:
        screen.line()
        text = choice.for_all.id if choice.for_all else "no variant runs on each of them."
        screen.line(screen.paint(f"For all GPUs: {text}", "green" if choice.for_all else ""))
    _print_ideal(screen, choice)
    if choice.remarks:
        screen.line()
    for remark in choice.remarks:
        screen.fold("note     ", remark, "yellow", indent=9)
    return code


def commands(
    package: Package, organization: str, companions: Sequence[Package] = ()
) -> dict[str, list[str]]:
    """Return the commands that install, build and publish a package.

    `organization` is where the current recipe's result is published, or "". A companion is
    installed and published with its variant. `set` installs a variant with `companions`.
    """
    variant, name = package.variant, package.id
    together = [variant] if package is variant else [variant, package]
    by_session = [f'nox -s "build({name})"'] if package is variant else []
    return {
        "install": [_install(together, organization)],
        **({"set": [_install([*together, *companions], organization)]} if companions else {}),
        "build": [f"invoke build {name}", *by_session],
        "publish": [f"invoke publish {' '.join(each.id for each in together)}"],
    }


def _install(packages: Sequence[Package], organization: str) -> str:
    """Return the command that installs packages of one organization together."""
    names = (f"{organization or 'ORG'}/{package.package}" for package in packages)
    return f"flox install {' '.join(names)}"


def _build_row(build: ChosenBuild) -> BuildRow:
    variant = build.variant
    return BuildRow(
        variant=variant.id,
        release=variant.release_name,
        kind=variant.kind,
        gpu=variant.gpu_key,
        arch=variant.gpu.arch_list if variant.gpu else None,
        isa=variant.cpu_key,
        host=variant.platform,
        torch=variant.version,
        cuda=variant.cuda.version if variant.cuda else None,
        package=variant.package,
        gpus=[gpu.index for gpu in build.gpus],
        unused_gpus=[gpu.index for gpu in build.unused],
        in_matrix=build.is_in_matrix,
        reason=build.reason,
        after_driver_update=build.after_driver_update or None,
        command=build.command or None,
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


def _answer_row(matrix: Matrix, known: Mapping[str, PackageState], answer: Answer) -> AnswerRow:
    best, waits = answer.best, answer.waits_for_driver
    companions = matrix.companions_of(best.variant) if best else ()
    published = known[best.variant.id].publication if best else None
    organization = published.organization if published else ""
    by_id = {each.variant.id: each for each in (*answer.accepted, *answer.rejected)}
    return AnswerRow(
        gpus=[gpu.index for gpu in answer.gpus],
        best=_row(best, explain.why_best(best)) if best else None,
        companions=[
            {"name": it.name, "version": it.version, "variant": it.id, "package": it.package}
            for it in companions
        ],
        commands=commands(best.variant, organization, companions) if best else {},
        fallbacks=[_row(it, explain.why_fallback(it, best)) for it in answer.accepted[1:] if best],
        waits_for_driver=_row(waits) if waits else None,
        reasons=answer.reasons,
        variants=[_row(by_id[v.id]) for v in matrix.variants if v.id in by_id],
    )


def _print_answer(
    screen: Screen, which: str, row: AnswerRow, known: Mapping[str, PackageState]
) -> None:
    """Print the answer for the GPUs of one kind; `which` names them if there are others."""

    def line(text: str, colour: str = "") -> None:
        if len(text) <= WIDTH:
            screen.line(screen.paint(text, colour))
        else:
            screen.fold("", text)

    if waits := row.waits_for_driver:
        line(f"{waits.variant} needs a newer driver{which}: {waits.obstacles[0].text}", "yellow")
    doubts: tuple[str, ...] = ()
    if best := row.best:
        doubts = best.doubts
        line(f"Best{which}: {best.variant}", "green")
        line(f"  {best.reason}")
        for doubt in doubts:
            line(f"  check: {doubt}", "yellow")
        for what, lines in row.commands.items():
            line(f"  {what:<8} {'   or   '.join(lines)}")
        line(f"  It is {_state(known[best.variant])}.")
    else:
        line(f"No variant{which} runs here.", "red")
    fallbacks = [
        (it.variant, "; ".join([it.reason, *(d for d in it.doubts if d not in doubts)]))
        for it in row.fallbacks
    ]
    _print_table(screen, "Fallbacks, in this order:", fallbacks)
    reasons = explain.joined((reason.subject, reason.text) for reason in row.reasons)
    _print_table(screen, "Why not the others:", reasons)


def _print_ideal(screen: Screen, choice: Choice) -> None:
    """Print the build that the machine should have.

    If it is the best of the matrix, only why it leaves GPUs unused.
    """
    best, ideal = choice.best, choice.ideal
    is_best = best and ideal and best.variant.id == ideal.variant.id
    if ideal is None or (is_best and not ideal.unused):
        return
    screen.line()
    where = "" if ideal.is_in_matrix else " (not in matrix.toml)"
    screen.line(screen.paint(f"Ideal: {ideal.variant.id}{where}", "green"))
    screen.fold("  ", ideal.reason)
    if ideal.command:
        screen.line(f"  add it   {ideal.command}")
    if ideal.after_driver_update:
        screen.line(f"  with a newer driver: {ideal.after_driver_update}")


def _print_table(screen: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        width = max((len(first) for first, _ in rows if len(first) <= _COLUMN), default=_COLUMN)
        screen.line(title)
        for first, second in rows:
            screen.fold(f"  {first:<{width}}  ", second, indent=width + 4)


def _state(known: PackageState) -> str:
    if known.publication:
        return "published from this checkout"
    return f"{'built in' if known.output else 'neither built nor published from'} this checkout"
