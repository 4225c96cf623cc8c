"""Choose a PyTorch for a machine: what to install now, what to build. The only place that decides.

Pure. Screen, JSON, docs and page print the result; `doctor` asks the same of an installed torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base.console import grouped
from build_pytorch.hardware.own_builds import BuildAdvice, advice, own_build
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdict import BuildVerdict, driver_words, judge, needed_driver
from build_pytorch.matrix.available import AvailableBuild, available_builds
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.versions import numbers, order

_MOST: Final = 3  #: builds to install that are shown first
_FOR_ALL: Final = ("pip", "flox")  #: programs that are named to everybody, others to their users

Verdicts = list[BuildVerdict]


class Person(Struct, frozen=True, kw_only=True):
    """What a person has: programs that install packages, and the version of the active Python."""

    tools: frozenset[str] = frozenset()
    python: str = ""


class Offer(Struct, frozen=True, kw_only=True):
    """A published build that runs, with the command that installs it and why it was chosen."""

    command: str
    says: str
    gpus: tuple[int, ...]  #: numbers of the GPUs that it uses
    build: AvailableBuild


class Choice(Struct, frozen=True, kw_only=True):
    """Everything that is decided about a machine."""

    now: tuple[Offer, ...]  #: what to install, the best first
    unused: str  #: why the first leaves GPUs unused, or why there is none
    update: str  #: which driver makes a better one possible
    build: BuildAdvice
    others: tuple[AvailableBuild, ...]  #: what runs besides, the best first
    rejected: dict[str, list[str]]  #: commands that install what does not run, by the reason


def judge_all(
    matrix: Matrix,
    machine: Machine,
    person: Person | None = None,
    published: Mapping[str, str] = {},
) -> Verdicts:
    """Judge all builds for a platform, on a machine with any CPU: the best first of those that run.

    `published` are organizations on FloxHub by the id of a variant.
    """
    person, ready = person or Person(), list(available_builds())
    for it in matrix.variants if published else ():
        if organization := published.get(it.id):
            command, cpu = f"flox install {organization}/{it.package}", " ".join(it.cpu.cpuinfo)
            ready.append(own_build(it.release, it.gpu, it.platform, command, cpu))
    local = [build for build in ready if build.platform == machine.platform]
    judged = [judge(build, machine, person.python) for build in local]
    return sorted(judged, key=lambda it: it.rank(person.tools) if it.runs else (), reverse=True)


def choose(
    matrix: Matrix, machine: Machine, person: Person | None = None, judged: Verdicts | None = None
) -> Choice:
    """Choose for a machine, whose CPU decides among all builds as they are judged."""
    person = person or Person()
    judged = [it.on_cpu(machine.cpu) for it in judged or judge_all(matrix, machine, person)]
    running = [it for it in judged if it.runs]
    shown = _shown(running, machine, person.tools)
    others = [it for it in running if it not in shown and bool(it.gpus) == bool(running[0].gpus)]
    commands = {it.build.install() for it in running}
    refused = [("; ".join(it.obstacles), it.build.install()) for it in judged if not it.runs]
    return Choice(
        now=tuple(
            Offer(
                command=it.build.install(person.tools, it.kinds),
                says="; ".join(_reasons(it, running[0])),
                gpus=tuple(it.gpus),
                build=it.build,
            )
            for it in shown
        ),
        unused=_why_unused(running, judged, machine),
        update=_update(running, judged, machine, person),
        build=advice(matrix, machine, running),
        others=tuple(it.build for it in others),
        rejected=grouped((why, command) for why, command in refused if command not in commands),
    )


def _shown(running: Verdicts, machine: Machine, tools: Collection[str]) -> Verdicts:
    """Return the best build, and the best of each other program that a person has, and of Flox.

    A second wheel is among them where the first has a limit, and one for older drivers where the
    driver is unknown.
    """
    shown: dict[tuple[str, bool, str], BuildVerdict] = {}
    is_unknown = not (machine.driver or machine.cuda)
    for it in running:
        first, program = running[0], it.build.installer
        is_worse = bool(it.gpus) < bool(first.gpus) or len(it.limits) > len(first.limits)
        if it is first or (program in {*_FOR_ALL, *tools} and not is_worse):
            driver = it.build.driver if is_unknown and program == "pip" else ""
            shown.setdefault((program, bool(it.limits), driver), it)
    return list(shown.values())[:_MOST]


def _reasons(verdict: BuildVerdict, best: BuildVerdict) -> Iterator[str]:
    """Yield why a build was chosen among those that run: version, code, driver."""
    build, kinds, platform = verdict.build, verdict.kinds, verdict.machine.platform
    if build.newest:
        yield f"{build.version} or newer"
    elif build.index is None:
        yield build.version or "version not known"
    if kinds:
        yield f"CUDA {build.cuda}, {_code(verdict)}"
    elif platform == "aarch64-darwin":
        yield "uses the GPU through Metal (MPS)"
    else:
        yield "for the CPU"
    if build.index and kinds and verdict is best and not verdict.doubts:
        wheels = [it for it in available_builds() if it.index is not None]
        local = [it for it in wheels if it.platform == platform]
        newer = [it for it in local if order(it.version) > order(build.version)]
        is_last = not any(all(map(it.fit, kinds)) for it in newer)
        which = "this GPU" if len(kinds) == 1 else "all these GPUs"
        if newer:
            yield f"the last official one for {which}" if is_last else "the newest for this driver"
    yield from (*verdict.doubts, *verdict.limits)
    yield from filter(None, (build.remark, build.unconfirmed and "unconfirmed"))


def _code(verdict: BuildVerdict) -> str:
    """Return how the code of a build fits the GPUs that it uses."""
    code, fits, kinds = verdict.build.code, set(verdict.gpus.values()), verdict.kinds
    unused = [str(it.index) for it in verdict.machine.gpus if it.index not in verdict.gpus]
    text = f"code for {' and '.join(kinds)}"
    if len(kinds) > 1:
        pass
    elif fits == {"ptx"}:
        text = "PTX, which the driver compiles at the first start"
    elif fits == {"compatible"}:
        near = max((it for it in code if runs_on(it, kinds[0])), key=numbers)
        text = f"code for {near} runs on {kinds[0]}"
    elif len(code) == 1:
        text = "for this GPU alone"
    return text + (f"; not for GPU {', '.join(unused)}" if unused else "")


def _update(running: Verdicts, judged: Verdicts, machine: Machine, person: Person) -> str:
    """Return which driver makes a better build possible, or an empty text."""
    if not (running and machine.gpus):
        return ""
    newest = replace(machine, driver="9999", cuda="99.9", is_wsl=False)
    before = running[0].serves, order(running[0].build.version)
    hindered = [it.build for it in judged if it.obstacles or it.doubts]
    if running[0].serves[0]:  # only a newer PyTorch is better
        hindered = [build for build in hindered if order(build.version) > before[1]]
    later = [judge(build, newest, person.python).on_cpu(machine.cpu) for build in hindered]
    best = max((it for it in later if it.runs), key=lambda it: it.rank(person.tools), default=None)
    if best is None or (best.serves, order(best.build.version)) <= before:
        return ""
    last = max(best.used, key=lambda gpu: numbers(needed_driver(best.build, gpu)))
    return f"{driver_words(best.build, last, machine)} runs `{best.build.install(person.tools)}`"


def _why_unused(running: Verdicts, judged: Verdicts, machine: Machine) -> str:
    """Return why the best build leaves GPUs unused, or why there is none; empty if all is well."""
    if not running:
        return f"nobody publishes a PyTorch for {machine.platform} that is known here"
    for gpu in machine.gpus:
        if gpu.index in running[0].gpus:
            continue
        alone, capability = replace(machine, gpus=(gpu,)), gpu.capability or ""
        fitting = [it.build for it in judged if capability and it.build.fit(capability)]
        if any(gpu.index in it.gpus for it in running):
            why = "no build that runs has code for all GPUs"
        elif not any(it.build.cuda for it in judged):
            why = f"no PyTorch for {machine.platform} uses GPUs of NVIDIA"
        elif fitting:
            oldest = min(fitting, key=lambda build: numbers(needed_driver(build, gpu)))
            why = "; ".join(judge(oldest, alone).on_cpu(machine.cpu).obstacles)
        else:
            why = f"nobody publishes code for {capability or 'an unknown capability'}; "
            why += "a GPU of 7.5 (Turing) or newer runs the newest PyTorch"
        return f"{gpu.name} stays unused: {why}"
    what = "ROCm and XPU are not covered; https://pytorch.org/get-started has wheels"
    return f"{' and '.join(machine.other_gpus)}: {what}" if machine.other_gpus else ""
