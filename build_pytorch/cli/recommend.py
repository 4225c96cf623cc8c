"""`invoke recommend`: name the right variant for a machine, and why."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import to_builtins

from build_pytorch.base.console import WIDTH, Screen, print_json, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError, near_miss
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.hardware import explain, ideal, resolver, saved_machines
from build_pytorch.hardware import remarks as notes
from build_pytorch.hardware.ideal import MachineChoice
from build_pytorch.hardware.resolver import Answer, Candidate
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import CompanionPackage, Matrix
from build_pytorch.matrix.tables import CpuIsa
from build_pytorch.results import package_state
from build_pytorch.results.package_state import PackageState

_WIDTH: Final = 36
"""Maximum width of a table's first column, and of a quoted value, in characters."""
_LONGEST: Final = 200
"""Maximum length of a GPU's name."""
_LAST_GPU: Final = 1023


def run(options: RecommendOptions) -> int:
    """Print the recommendation. Returns 1 if no variant runs. Raises BuildPytorchError."""
    fleet = matrix_reader.load(options.root)
    numbers = [word for word in options.gpu if _is_index(word)]
    names = [word for word in options.gpu if not _is_index(word)]
    if numbers and (names or len(numbers) > 1):
        raise BuildPytorchError("--gpu: give one number of this machine, or names of GPUs")
    machine = _machine(options, fleet, names)
    number = _index(numbers[0]) if numbers else None
    release = options.release or None
    result = resolver.recommend(fleet, machine, gpu=number, release=release)
    gpus = [gpu for answer in result.answers for gpu in answer.gpus]
    found = ideal.best(result), ideal.ideal(fleet, machine, gpus, release)
    remarks = list(notes.remarks(machine, gpus, [each.variant for each in found if each]))
    best = [answer.best.variant for answer in result.answers if answer.best]
    code = EXIT_OK if best else EXIT_FINDINGS  # a variant for one GPU of several is enough
    known = package_state.package_states(options.root, best)
    rows = [_row(fleet, known, answer) for answer in result.answers]
    for_all = result.for_all and result.for_all.id
    if options.json:
        first, wanted = (each and _choice(each) for each in found)
        document = {
            "machine": saved_machines.document(machine),
            "best": first,
            "ideal": wanted,
            "remarks": remarks,
            "answers": rows,
            "for_all": for_all,
        }
        print_json({**document, "exit_code": code}, sys.stdout)
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
    _show_ideal(screen, *found)
    if remarks:
        screen.line()
    for remark in remarks:
        screen.fold("note     ", remark, "yellow", indent=9)
    return code


def _machine(options: RecommendOptions, fleet: Matrix, names: Sequence[str]) -> Machine:
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
        changes |= _cpu(options.cpu, fleet)
    if options.driver:
        changes |= {"driver": _driver(options.driver), "cuda": None}
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
    platforms = known.platforms_of(name[:_LONGEST])
    if not platforms or platform in platforms or "x86_64-linux" in platforms:
        return
    where = " and ".join(platforms)
    isas = " or ".join(key for key, isa in known.cpu.items() if isa.platform in platforms)
    what = f"--cpu {cpu}" if cpu else "the machine"
    raise BuildPytorchError(
        f"--gpu: {visible(name[:_WIDTH])} exists on {where} only, and {what} is {platform}; "
        f"give the CPU of its machine: --cpu {isas}"
    )


def _cpu(name: str, fleet: Matrix) -> dict[str, Any]:
    """Return platform and CPU of an ISA, or of a generation or a name of CPUs."""
    known = known_hardware.load()
    isas = {**known.cpu, **fleet.cpus}
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


def _driver(text: str) -> str:
    try:
        return msgspec.convert(text, saved_machines.DriverOrBranch)
    except msgspec.ValidationError:
        allowed = "a driver version such as 550 or 580.65.06"
        raise BuildPytorchError(
            f'--driver: found "{visible(text[:_WIDTH])}"; allowed: {allowed}'
        ) from None


def _choice(choice: MachineChoice) -> dict[str, Any]:
    """Return the best or the ideal variant for --json."""
    variant = choice.variant
    return {
        "variant": variant.id,
        "release": variant.release_name,
        "kind": variant.kind,
        "gpu": variant.gpu_key,
        "arch": variant.gpu.arch_list if variant.gpu else None,
        "isa": variant.cpu_key,
        "host": variant.cpu.platform,
        "torch": variant.release.torch.version,
        "cuda": variant.cuda.version if variant.cuda else None,
        "package": variant.package,
        "gpus": [gpu.index for gpu in choice.gpus],
        "unused_gpus": [gpu.index for gpu in choice.unused],
        "in_matrix": choice.is_in_matrix,
        "reason": choice.reason,
        "after_driver_update": choice.after_driver_update or None,
        "command": choice.command or None,
    }


def _show_ideal(screen: Screen, best: MachineChoice | None, wanted: MachineChoice | None) -> None:
    """Print the build that the machine should have, if it is not the best of the matrix."""
    if wanted is None or (best and best.variant.id == wanted.variant.id):
        return
    screen.line()
    where = "" if wanted.is_in_matrix else " (not in matrix.toml)"
    screen.line(screen.paint(f"Ideal: {wanted.variant.id}{where}", "green"))
    screen.fold("  ", wanted.reason)
    if wanted.command:
        screen.line(f"  add it   {wanted.command}")
    if wanted.after_driver_update:
        screen.line(f"  with a newer driver: {wanted.after_driver_update}")


def print_machine(screen: Screen, machine: Machine, isas: Iterable[CpuIsa] = ()) -> None:
    """Print what is known of a machine, the flags that decide, and what could not be detected."""
    for line in explain.machine_lines(machine, isas):
        screen.fold("", line, indent=9)
    for note in machine.notes:
        screen.fold("note     ", note, "yellow", indent=9)


def _row(fleet: Matrix, known: Mapping[str, PackageState], answer: Answer) -> dict[str, Any]:
    """Return an answer for --json."""
    best, waits = answer.best, answer.waits_for_driver
    row = None
    if best:
        published = known[best.variant.id].publication
        organization = published.organization if published else ""
        companions = fleet.companions_of(best.variant)
        row = {
            **_candidate(best),
            "reason": explain.why_best(best),
            "companions": [_companion(each) for each in companions],
            "commands": explain.commands(best.variant, organization, companions),
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


def _companion(package: CompanionPackage) -> dict[str, str]:
    return {
        "name": package.name,
        "version": package.version,
        "variant": package.id,
        "package": package.package,
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
    known: Mapping[str, PackageState],
) -> None:
    """Print an answer; `which` names its GPUs if there are others."""

    def line(text: str, colour: str = "") -> None:
        if len(text) <= WIDTH:
            screen.line(screen.paint(text, colour))
        else:
            screen.fold("", text)

    if waits := answer.waits_for_driver:
        why = waits.obstacles[0].text
        line(f"{waits.variant.id} needs a newer driver{which}: {why}", "yellow")
    best = row["best"]
    if answer.best:
        line(f"Best{which}: {best['variant']}", "green")
        line(f"  {best['reason']}")
        for doubt in best["doubts"]:
            line(f"  check: {doubt}", "yellow")
        for what, lines in best["commands"].items():
            line(f"  {what:<8} {'   or   '.join(lines)}")
        line(f"  It is {_state(known[answer.best.variant.id])}.")
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
            screen.fold(f"  {first:<{width}}  ", second, indent=width + 4)


def _state(known: PackageState) -> str:
    if known.publication:
        return "published from this checkout"
    return f"{'built in' if known.output else 'neither built nor published from'} this checkout"
