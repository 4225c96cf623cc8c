"""`invoke recommend`: print what is chosen for a machine, and why."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, to_builtins

from build_pytorch.base.console import WIDTH, Screen, print_json, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError, near_miss
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.hardware import choose, explain, saved_machines
from build_pytorch.hardware.choose import Answer, Choice, ChosenBuild
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.hardware.verdicts import Candidate, Obstacle
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.tables import CpuIsa
from build_pytorch.results import package_state
from build_pytorch.results.package_state import PackageState

_COLUMN: Final = 28
"""Maximum width of a table's first column, in characters."""
_WIDTH: Final = 36
"""Maximum width of a quoted value, in characters."""
_LONGEST: Final = 200
"""Maximum length of a GPU's name."""
_LAST_GPU: Final = 1023


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


class BestRow(CandidateRow, frozen=True, kw_only=True):
    """The best variant for the GPUs of one kind in --json."""

    companions: list[dict[str, str]]
    commands: dict[str, list[str]]


class AnswerRow(Struct, frozen=True, kw_only=True):
    """The answer for the GPUs of one kind in --json."""

    gpus: list[int]
    best: BestRow | None
    fallbacks: list[CandidateRow]
    waits_for_driver: CandidateRow | None
    reasons: tuple[Obstacle, ...]
    variants: list[CandidateRow]
    """Every variant, in the order of the matrix."""


def run(options: RecommendOptions) -> int:
    """Print the recommendation. Returns 1 if no variant runs. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    numbers = [word for word in options.gpu if _is_index(word)]
    names = [word for word in options.gpu if not _is_index(word)]
    if numbers and (names or len(numbers) > 1):
        raise BuildPytorchError("--gpu: give one number of this machine, or names of GPUs")
    machine = _machine(options, matrix, names)
    number = _index(numbers[0]) if numbers else None
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
        print_json(to_builtins(document), sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, machine, matrix.cpus.values())
    for answer, row in zip(choice.answers, rows, strict=True):
        _print_answer(screen, choice, answer, row, known)
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


def _machine(options: RecommendOptions, matrix: Matrix, names: Sequence[str]) -> Machine:
    """Return the machine of the options: a description, this one, or one that they describe."""
    if options.machine:
        machine = saved_machines.load(options.machine)
    elif options.cpu:  # nothing of this machine matters
        machine = Machine(platform="x86_64-linux", cpu=Processor(flags=""))
    else:
        from build_pytorch.hardware import detect  # loads the module of NVML

        machine = detect.this_machine()
    changes: dict[str, Any] = {}
    if options.cpu:
        changes |= _cpu(options.cpu, matrix)
    if options.driver:
        changes |= _driver(options.driver)
    if names:
        gpus = [_gpu(name, index) for index, name in enumerate(names)]
        changes["gpus"] = tuple(gpu for gpu in gpus if isinstance(gpu, MachineGpu))
        changes["other_gpus"] = tuple(gpu for gpu in gpus if isinstance(gpu, str))
        changes["notes"] = ()
    machine = msgspec.structs.replace(machine, **changes)
    for name in names:
        _require_host(name, machine.platform, options.cpu)
    return machine


def _require_host(name: str, platform: str, cpu: str) -> None:
    """Raise BuildPytorchError if a GPU is part of ARM machines and this platform is another one.

    A card fits into any machine; a GPU that exists on ARM only shares a package with its CPU.
    """
    known = known_hardware.load()
    gpus = {gpu.capability: gpu for gpu in known.gpu.values()}
    found = (name, gpus[name]) if name in gpus else known.gpu_typed(name[:_LONGEST])
    processor = known.arm_processor(*found) if found else None
    if processor is None or platform.startswith("aarch64-"):
        return
    isa = f": --cpu {known.processor[processor].isa}" if processor else " with --cpu"
    what = f"--cpu {cpu}" if cpu else "the machine"
    raise BuildPytorchError(
        f"--gpu: {visible(name[:_WIDTH])} exists on aarch64-linux only, and {what} is {platform}; "
        f"give the CPU of its machine{isa}"
    )


def _cpu(name: str, matrix: Matrix) -> dict[str, Any]:
    """Return platform and CPU of an ISA, or of a generation or a name of CPUs."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    processor = None if name in isas else known.processor_named(name[:_LONGEST])
    if processor and not processor.isa:
        cpu = Processor(model=processor.title, flags=processor.flags)
        return {"platform": processor.platform, "cpu": cpu}
    key = (processor and processor.isa) or name
    if key not in isas:
        hint = near_miss(name, isas) or f"; allowed: {', '.join(isas)}, or a name such as 'Zen 4'"
        raise BuildPytorchError(f'--cpu: found "{visible(name[:_WIDTH])}"{hint}')
    isa = isas[key]
    # CPUs with an ISA of these have the lower ones of their platform as well.
    lower = [it for it in isas.values() if it.platform == isa.platform]
    flags = [flag for it in lower if it.level <= isa.level for flag in it.cpuinfo]
    model = processor.title if processor else f"a CPU with {isa.title}"
    cpu = Processor(model=model, flags=" ".join(dict.fromkeys(flags)))
    return {"platform": isa.platform, "cpu": cpu}


def _gpu(name: str, index: int) -> MachineGpu | str:
    """Return the GPU of a name or capability; one of another vendor as its name."""
    known = known_hardware.load()
    if len(name) <= _WIDTH and re.fullmatch(r"[1-9]\d?\.\d", name):
        return MachineGpu(index=index, name=f"a GPU of capability {name}", capability=name)
    if found := known.gpu_typed(name[:_LONGEST]):
        return MachineGpu(index=index, name=found[0], capability=found[1].capability)
    if known.other_vendor(name[:_LONGEST]):
        return name[:_LONGEST]
    fix = "give its compute capability, such as 8.9, or a name such as 'RTX 4090'"
    if like := known.gpus_like(name[:_LONGEST]):
        fix = f"did you mean {' or '.join(like)}?"
    raise BuildPytorchError(f'--gpu: found "{visible(name[:_WIDTH])}", an unknown GPU; {fix}')


def _is_index(word: str) -> bool:
    """Return whether a value is the number of a GPU. `4090` is a name: no number is that high."""
    is_product = word.isdecimal() and len(word) == len("4090") and int(word) > _LAST_GPU
    return word.isdecimal() and not is_product


def _index(word: str) -> int:
    if len(word) > len("1023") or int(word) > _LAST_GPU:
        raise BuildPytorchError(
            f'--gpu: found "{word[:_WIDTH]}"; allowed: a number from 0 to {_LAST_GPU}, or a name'
        )
    return int(word)


def _driver(text: str) -> dict[str, Any]:
    """Return the driver of an option; a CUDA version is the newest one that the driver supports."""
    if known_hardware.CUDA_NUMBER.fullmatch(text):
        return {"driver": None, "cuda": text}
    try:
        driver = msgspec.convert(text, saved_machines.DriverOrBranch)
    except msgspec.ValidationError:
        allowed = "a driver version such as 550 or 580.65.06"
        raise BuildPytorchError(
            f'--driver: found "{visible(text[:_WIDTH])}"; allowed: {allowed}'
        ) from None
    return {"driver": driver, "cuda": None}


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


# --- JSON ---


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


def _candidate_values(candidate: Candidate, reason: str = "") -> dict[str, Any]:
    return {
        "release": candidate.variant.release_name,
        "variant": candidate.variant.id,
        "package": candidate.variant.package,
        "grade": candidate.grade,
        "runs": not candidate.obstacles,
        "doubts": candidate.doubts,
        "obstacles": candidate.obstacles,
        "reason": reason,
    }


def _answer_row(matrix: Matrix, known: Mapping[str, PackageState], answer: Answer) -> AnswerRow:
    best, waits = answer.best, answer.waits_for_driver
    row = None
    if best:
        published = known[best.variant.id].publication
        companions = matrix.companions_of(best.variant)
        row = BestRow(
            **_candidate_values(best, explain.why_best(best)),
            companions=[
                {"name": it.name, "version": it.version, "variant": it.id, "package": it.package}
                for it in companions
            ],
            commands=commands(
                best.variant, published.organization if published else "", companions
            ),
        )
    places = {variant.id: place for place, variant in enumerate(matrix.variants)}
    every = [*answer.accepted, *answer.rejected]
    return AnswerRow(
        gpus=[gpu.index for gpu in answer.gpus],
        best=row,
        fallbacks=[
            CandidateRow(**_candidate_values(it, explain.why_fallback(it, best)))
            for it in answer.accepted[1:]
            if best
        ],
        waits_for_driver=CandidateRow(**_candidate_values(waits)) if waits else None,
        reasons=answer.reasons,
        variants=[
            CandidateRow(**_candidate_values(it))
            for it in sorted(every, key=lambda it: places[it.variant.id])
        ],
    )


# --- text ---


def print_machine(screen: Screen, machine: Machine, isas: Iterable[CpuIsa] = ()) -> None:
    """Print what is known of a machine, the flags that decide, and what could not be detected."""
    for line in machine_lines(machine, isas):
        screen.fold("", line, indent=9)
    for note in machine.notes:
        screen.fold("note     ", note, "yellow", indent=9)


def machine_lines(machine: Machine, isas: Iterable[CpuIsa] = ()) -> list[str]:
    """Return what is known of a machine, without its notes. May hold control characters.

    Of the CPU's flags, those that decide between `isas`.
    """
    cpu = machine.cpu
    name = cpu.model or cpu.vendor or "an unknown CPU"
    here = [isa.cpuinfo for isa in isas if isa.platform == machine.platform]
    deciding = dict.fromkeys(flag for flags in here for flag in flags)
    flags = cpu.flags.split()
    there = " ".join(flag for flag in deciding if flag in flags) or "none"
    absent = " ".join(flag for flag in deciding if flag not in flags)
    gpus = []
    for gpu in machine.gpus:
        memory = f", {gpu.memory / 2**30:.0f} GiB" if gpu.memory else ""
        text = f"{gpu.name}, capability {gpu.capability or 'unknown'}{memory}"
        gpus.append((str(gpu.index), text))
    lines = [f"machine  {machine.platform}, {name}"]
    if flags and deciding:
        lines.append(f"flags    {there}" + (f"; lacks {absent}" if absent else ""))
    lines += [f"gpu {indices:<4} {text}" for indices, text in explain.joined(gpus)]
    if machine.driver or machine.cuda:
        cuda = f", supports CUDA {machine.cuda}" if machine.cuda else ""
        lines.append(f"driver   {machine.driver or 'of unknown version'}{cuda}")
    return lines if machine.gpus else [*lines, "gpu      none with a working driver"]


def _print_answer(
    screen: Screen,
    choice: Choice,
    answer: Answer,
    row: AnswerRow,
    known: Mapping[str, PackageState],
) -> None:
    """Print the answer for the GPUs of one kind, which are named if there are others."""

    def line(text: str, colour: str = "") -> None:
        if len(text) <= WIDTH:
            screen.line(screen.paint(text, colour))
        else:
            screen.fold("", text)

    which = ""
    if len(choice.answers) > 1:
        which = f" for GPU {', '.join(map(str, row.gpus))} ({answer.gpus[0].name})"
    screen.line()
    if waits := answer.waits_for_driver:
        why = waits.obstacles[0].text
        line(f"{waits.variant.id} needs a newer driver{which}: {why}", "yellow")
    best = row.best
    if best and answer.best:
        line(f"Best{which}: {best.variant}", "green")
        line(f"  {best.reason}")
        for doubt in best.doubts:
            line(f"  check: {doubt}", "yellow")
        for what, lines in best.commands.items():
            line(f"  {what:<8} {'   or   '.join(lines)}")
        line(f"  It is {_state(known[answer.best.variant.id])}.")
    else:
        line(f"No variant{which} runs here.", "red")
    fallbacks = []
    for it in row.fallbacks:
        doubts = [doubt for doubt in it.doubts if best and doubt not in best.doubts]
        fallbacks.append((it.variant, "; ".join((it.reason, *doubts))))
    _print_table(screen, "Fallbacks, in this order:", fallbacks)
    reasons = explain.joined((reason.subject, reason.text) for reason in answer.reasons)
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
