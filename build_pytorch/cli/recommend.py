"""`invoke recommend`: print what is chosen for a machine, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli import package_index
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.cli.describe_machine import described_machine, print_machine
from build_pytorch.hardware import choose, explain, saved_machines
from build_pytorch.hardware.choice import Answer, Choice, ChosenBuild
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdicts import Candidate, Obstacle
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.official_wheels import OfficialWheel
from build_pytorch.results import package_state
from build_pytorch.results.package_state import PackageState

_COLUMN: Final = 28
"""Maximum width of a table's first column, in characters."""


class BuildRow(Struct, frozen=True, kw_only=True):
    """A build for the machine as a whole. `gpus` are numbers of GPUs; `command` adds the build."""

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


def run(options: RecommendOptions) -> int:
    """Print the recommendation. Returns 1 if no variant runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    machine, number = described_machine(options, matrix)
    here = [variant for variant in matrix.variants if variant.platform == machine.platform]
    known = package_state.package_states(options.root, here)
    choice = choose.choose(
        matrix,
        machine,
        gpu=number,
        release=options.release or None,
        measurements=list(package_index.measurements(known.values())),
    )
    best = [answer.best.variant for answer in choice.answers if answer.best]
    code = EXIT_OK if best else EXIT_FINDINGS  # a variant for one GPU of several is enough
    if options.json:
        print_json(_document(matrix, known, machine, choice, code), sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, machine, matrix.cpus.values())
    for remark in choice.remarks[: len(machine.other_gpus)]:
        screen.fold("note     ", remark, "yellow", indent=9)
    screen.line()
    if choice.is_wheel_first:
        _print_wheel(screen, machine, choice)
    _print_first(screen, choice, known)
    if not choice.is_wheel_first:
        _print_wheel(screen, machine, choice)
    screen.line()
    if options.verbose:
        _print_rest(screen, matrix, choice, known)
    else:
        others = sum(len(answer.accepted[1:]) for answer in choice.answers)
        counts = f"{counted(others, 'fallback')}, {counted(len(choice.remarks), 'remark')}"
        screen.line(f"`-v` adds {counts}, and why the others do not run")
    return code


def commands(
    package: Package, state: PackageState, companions: Sequence[Package] = ()
) -> dict[str, list[str]]:
    """Return the commands that build a package, publish it, and install it once it is published.

    A companion is installed and published with its variant. `set` installs a variant with
    `companions`.
    """
    variant, name = package.variant, package.id
    together = [variant] if package is variant else [variant, package]
    by_session = [f'nox -s "build({name})"'] if package is variant else []
    found = {"build": [f"invoke build {name}", *by_session]}
    found["publish"] = [f"invoke publish {' '.join(each.id for each in together)}"]
    if published := state.publication:
        found["install"] = [_install(together, published.organization)]
        if companions:
            found["set"] = [_install([*together, *companions], published.organization)]
    return found


def _install(packages: Sequence[Package], organization: str) -> str:
    """Return the command that installs packages of one organization together."""
    names = (f"{organization or 'ORG'}/{package.package}" for package in packages)
    return f"flox install {' '.join(names)}"


def _document(
    matrix: Matrix, known: Mapping[str, PackageState], machine: Machine, choice: Choice, code: int
) -> RecommendDocument:
    update, wheel = choice.update, choice.wheel
    return RecommendDocument(
        machine=saved_machines.document(machine),
        best=_build_row(choice.best) if choice.best else None,
        ideal=_build_row(choice.ideal) if choice.ideal else None,
        update=UpdateRow(update.says, _build_row(update.build)) if update else None,
        wheel=msgspec.convert(wheel, WheelRow, from_attributes=True) if wheel else None,
        compared=choice.compared,
        remarks=choice.remarks,
        for_all=choice.for_all.id if choice.for_all else None,
        answers=[_answer_row(matrix, known, answer) for answer in choice.answers],
        exit_code=code,
    )


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
    by_id = {each.variant.id: each for each in (*answer.accepted, *answer.rejected)}
    return AnswerRow(
        gpus=[gpu.index for gpu in answer.gpus],
        best=_row(best, explain.why_best(best)) if best else None,
        companions=[CompanionRow(it.name, it.version, it.id, it.package) for it in companions],
        commands=commands(best.variant, known[best.variant.id], companions) if best else {},
        fallbacks=[_row(it, explain.why_fallback(it, best)) for it in answer.accepted[1:] if best],
        waits_for_driver=_row(waits) if waits else None,
        reasons=answer.reasons,
        variants=[_row(by_id[v.id]) for v in matrix.variants if v.id in by_id],
    )


def _print_first(screen: Screen, choice: Choice, known: Mapping[str, PackageState]) -> None:
    """Print the best build, what must be updated for it, and what would be better."""
    best, first, update = choice.best, choice.first, choice.update
    is_said = choice.better is not None and choice.better.gpus  # in its reason
    if choice.ideal and choice.ideal.unused and not (update or is_said):
        why = choice.ideal.why_unused
        screen.fold("", f"{why[0].upper()}{why[1:]}.", "yellow")
    if update and first is not best:
        screen.fold("", f"First {update.says}. Then:", "yellow")
    if first:
        _print_build(screen, "Best", first, known)
    else:
        screen.line(screen.paint("No variant runs here.", "red"))
    if best and first is not best:
        screen.fold("", f"Until then: {best.variant.id}; {best.reason}")
    elif update:
        screen.fold("Better: ", f"{update.says}, then {update.build.variant.id}")
    if choice.better:
        said = first.doubts if first else ()
        doubts = tuple(doubt for doubt in choice.better.doubts if doubt not in said)
        build = msgspec.structs.replace(choice.better, doubts=doubts)
        _print_build(screen, "Ideal", build, known)


def _print_build(
    screen: Screen,
    title: str,
    build: ChosenBuild,
    known: Mapping[str, PackageState],
) -> None:
    """Print a build: why, whether it exists, and how to get it."""
    variant, state = build.variant, known.get(build.variant.id)
    where = "" if build.is_in_matrix else " (not in matrix.toml)"
    screen.line(screen.paint(f"{title}: {variant.id}{where}", "green"))
    on = f"on CUDA {variant.cuda.version}" if variant.cuda else "without CUDA"
    reason = build.reason
    if build.gpus and build.unused and not build.why_unused:
        left = [str(gpu.index) for gpu in build.unused]
        reason += f"; GPU {', '.join(left)} stay{'s' * (len(left) == 1)} unused"
    screen.fold("  ", f"PyTorch {variant.version} {on}; {reason}")
    for doubt in build.doubts:
        screen.fold("  check: ", doubt, "yellow")
    if state is None:
        screen.command("  add it   ", build.command)
        return
    what, exists = _next_step(state)
    screen.line(f"  {exists}")
    screen.command(f"  {what:<8} ", commands(variant, state)[what][0])


def _next_step(state: PackageState) -> tuple[str, str]:
    """Return which command comes next for a variant, and what exists of it."""
    if state.publication:
        organization = state.publication.organization
        return "install", f"built and published by {organization or 'yourself'}"
    if state.output:
        return "publish", "built here"
    return "build", "a recipe; nobody here has built it yet"


def _print_wheel(screen: Screen, machine: Machine, choice: Choice) -> None:
    """Print the official wheel, and what was measured between it and the first build."""
    found = choice.wheel
    if found is None:
        screen.line(f"Wheel: nothing is known of official ones for {machine.platform}")
        return
    screen.line(screen.paint(f"Wheel: {found.title}", "green"))
    screen.fold("  ", "; ".join([found.code, *found.limits]))
    if choice.first:
        screen.fold("  ", f"{choice.first.variant.id} against it: {choice.compared}")
    screen.command("  install  ", found.command)


def _print_rest(
    screen: Screen, matrix: Matrix, choice: Choice, known: Mapping[str, PackageState]
) -> None:
    """Print for each kind of GPUs what else runs, what does not and why; then remarks."""
    for answer in choice.answers:
        best, fallbacks = answer.best, []
        if len(choice.answers) > 1:
            of = f"GPU {', '.join(str(gpu.index) for gpu in answer.gpus)} ({answer.gpus[0].name})"
            screen.line(f"{of}: {best.variant.id if best else 'no variant runs on it'}")
        if best:
            companions, state = matrix.companions_of(best.variant), known[best.variant.id]
            others = commands(best.variant, state, companions)
            if choice.first and choice.first.variant is best.variant:
                del others[_next_step(state)[0]]  # printed above
            for what, lines in others.items():
                screen.command(f"  {what:<8} ", lines[0])
            for it in answer.accepted[1:]:
                doubts = [doubt for doubt in it.doubts if doubt not in best.doubts]
                fallbacks.append(
                    (it.variant.id, "; ".join([explain.why_fallback(it, best), *doubts]))
                )
        _print_table(screen, "Fallbacks, in this order:", fallbacks)
        reasons = explain.joined((reason.subject, reason.text) for reason in answer.reasons)
        _print_table(screen, "Why not the others:", reasons)
    if len(choice.answers) > 1:
        text = choice.for_all.id if choice.for_all else "no variant runs on each of them"
        screen.line(f"For all GPUs: {text}")
    for remark in choice.remarks:
        screen.fold("note     ", remark, "yellow", indent=9)


def _print_table(screen: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        width = max((len(first) for first, _ in rows if len(first) <= _COLUMN), default=_COLUMN)
        screen.line(title)
        for first, second in rows:
            screen.fold(f"  {first:<{width}}  ", second, indent=width + 4)
