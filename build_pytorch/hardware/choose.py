"""Choose the build for a machine: the only place that decides.

A pure function of a matrix and a machine. Text, JSON, docs and the page print its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from build_pytorch.base.console import grouped
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import numbers
from build_pytorch.hardware import explain
from build_pytorch.hardware.choice import Answer, Choice, ChosenBuild, DriverUpdate, preference
from build_pytorch.hardware.possible import PossibleVariants, newest_release
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.hardware.verdicts import (
    Candidate,
    Obstacle,
    cpu_obstacles,
    gpu_verdict,
    with_driver,
)
from build_pytorch.hardware.wheels import Measurement, choose_wheel
from build_pytorch.matrix.matrix_lines import lines_for
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import require_release


def choose(
    matrix: Matrix,
    machine: Machine,
    *,
    gpu: int | None = None,
    release: str | None = None,
    measurements: Sequence[Measurement] = (),
) -> Choice:
    """Choose for all GPUs of a machine, or for the one with the number `gpu`.

    Raises BuildPytorchError for an unknown GPU or release.
    """
    return Chooser(matrix, release, measurements).choose(machine, gpu)


class Chooser:
    """Chooses for many machines: it ranks once, and remembers verdicts that machines share."""

    def __init__(
        self,
        matrix: Matrix,
        release: str | None = None,
        measurements: Sequence[Measurement] = (),
    ) -> None:
        if release is not None:
            require_release(matrix, release)
        variants = matrix.variants if release is None else matrix.of_release(release)
        self.matrix = matrix
        self._measurements = measurements
        self._torch = matrix.releases[release or newest_release(matrix)].torch.version
        self.possible = PossibleVariants(matrix, release)
        self._ranked = sorted(variants, key=preference, reverse=True)
        self._gpu_verdicts: dict[object, Candidate] = {}
        self._judged: dict[object, tuple[list[Candidate], list[Candidate]]] = {}

    def choose(self, machine: Machine, gpu: int | None = None) -> Choice:
        """Choose for a machine. Raises BuildPytorchError for an unknown GPU."""
        gpus = [each for each in machine.gpus if gpu in {None, each.index}]
        if gpu is not None and not gpus:
            known = ", ".join(str(each.index) for each in machine.gpus)
            raise BuildPytorchError(
                f"--gpu: found {gpu}; allowed: {known or 'none; this machine has no GPU'}"
            )
        kinds = grouped((each.capability, each) for each in gpus)
        answers = tuple(self._answer(machine, tuple(kind)) for kind in kinds.values() or [()])
        running = [[it.variant for it in answer.accepted if it.variant.gpu] for answer in answers]
        for_all = _first_common(running) if len(answers) > 1 else None
        newest = msgspec.structs.replace(machine, driver="9999", cuda=None, is_wsl=False)
        measured = tuple(it for it in self._measurements if it.is_like(machine, gpus))
        builds = (_best(answers, for_all), self._ideal(machine, gpus), self._ideal(newest, gpus))
        best, ideal, later = (it and self._lowest_equal(it, machine, measured) for it in builds)
        chosen = [build.variant for build in (best, ideal) if build]
        return Choice(
            answers=answers,
            for_all=for_all,
            best=best,
            ideal=ideal,
            update=_update(answers, best, ideal, later),
            wheel=choose_wheel(machine, gpus, self._torch),
            measured=measured,
            remarks=tuple(explain.remarks(machine, gpus, chosen)),
        )

    def _lowest_equal(
        self, build: ChosenBuild, machine: Machine, measured: Sequence[Measurement]
    ) -> ChosenBuild:
        """Return the build with the lowest ISA of those that were measured to be no slower."""
        first = build.variant
        dated = sorted(measured, key=lambda it: it.date)
        last = {
            frozenset((it.package, it.against)): it
            for it in dated
            if first.id in (it.package, it.against)
        }
        equal = {
            str(*pair - {first.id}): it
            for pair, it in last.items()
            if it.verdict == "no difference"
        }
        lower = [
            variant
            for variant in self._ranked
            if variant.id in equal
            and (variant.release_name, variant.gpu_key) == (first.release_name, first.gpu_key)
            and variant.cpu.level < first.cpu.level
            and not cpu_obstacles(variant, machine)
        ]
        if not lower:
            return build
        lowest = min(lower, key=lambda variant: variant.cpu.level)
        reason = f"{build.reason}; {lowest.cpu_key} is enough: {equal[lowest.id].says}"
        return msgspec.structs.replace(build, variant=lowest, reason=reason, command="")

    def _judge(
        self,
        machine: Machine,
        gpu: MachineGpu | None,
        name: object,
        ranked: Callable[[], Iterable[Variant]],
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return the accepted and the rejected of ranked variants; those that wait come first.

        `name` is different for different variants.
        """
        key = (machine.platform, machine.cpu.flags, gpu, name)
        if key not in self._judged:
            verdicts = list(self._without_driver(machine, gpu, ranked()))
            fitting = [candidate for candidate in verdicts if not candidate.obstacles]
            self._judged[key] = fitting, [it for it in verdicts if it.obstacles]
        fitting, rejected = self._judged[key]
        verdicts = [with_driver(candidate, machine) for candidate in fitting]
        waiting = [candidate for candidate in verdicts if candidate.obstacles]
        return [it for it in verdicts if not it.obstacles], [*waiting, *rejected]

    def _without_driver(
        self, machine: Machine, gpu: MachineGpu | None, variants: Iterable[Variant]
    ) -> Iterator[Candidate]:
        """Judge variants; each ISA and each GPU architecture once, which halves the time."""
        of_cpu: dict[str, tuple[Obstacle, ...]] = {}
        for variant in variants:
            if variant.cpu_key not in of_cpu:
                of_cpu[variant.cpu_key] = cpu_obstacles(variant, machine)
            key = (gpu, variant.gpu_key, variant.platform)
            if key not in self._gpu_verdicts:
                self._gpu_verdicts[key] = gpu_verdict(variant, gpu)
            verdict = self._gpu_verdicts[key]
            obstacles = (*of_cpu[variant.cpu_key], *verdict.obstacles)
            yield msgspec.structs.replace(verdict, variant=variant, obstacles=obstacles)

    def _answer(self, machine: Machine, gpus: tuple[MachineGpu, ...]) -> Answer:
        """Judge all variants of the matrix."""
        gpu = gpus[0] if gpus else None
        accepted, rejected = self._judge(machine, gpu, "matrix", lambda: self._ranked)
        first = rejected[0] if rejected and rejected[0].waits_for_driver else None
        if first and accepted and preference(first.variant) <= preference(accepted[0].variant):
            first = None
        return Answer(
            gpus=gpus,
            accepted=tuple(accepted),
            rejected=tuple(rejected),
            waits_for_driver=first,
        )

    def _ideal(self, machine: Machine, gpus: Sequence[MachineGpu]) -> ChosenBuild | None:
        """Return what serves all GPUs best with the driver that the machine has."""
        variant, used = self._pick(machine, gpus)
        if variant is None:
            return None
        rest = [gpu for gpu in gpus if gpu not in used]
        unused = [(gpu, explain.why_unused(self.possible, machine, gpu)) for gpu in rest]
        judged = [with_driver(gpu_verdict(variant, gpu), machine) for gpu in used]
        command, lines = self._addition(variant)
        return ChosenBuild(
            variant=variant,
            gpus=tuple(used),
            unused=tuple(rest),
            reason=explain.why_ideal(self.possible, variant, machine, used, unused),
            why_unused="; ".join(dict.fromkeys(why for _, why in unused)),
            doubts=tuple(dict.fromkeys(doubt for it in judged for doubt in it.doubts)),
            command=command,
            lines=lines,
        )

    def _pick(
        self, machine: Machine, gpus: Sequence[MachineGpu]
    ) -> tuple[Variant | None, Sequence[MachineGpu]]:
        """Return the best possible variant and the GPUs that it uses.

        Other releases than those of the matrix count only if no GPU can be used otherwise.
        """
        for releases in (self.possible.releases, self.possible.others):
            running: dict[str, list[Variant]] = {}
            for gpu in gpus:
                keys = self.possible.fitting(gpu.capability)
                if found := self._running(machine, gpu, releases, keys):
                    running[gpu.capability or ""] = found
            if not running:
                continue
            usable = [gpu for gpu in gpus if gpu.capability in running]
            variant = _first_common(running.values())
            if variant is None:
                newest = max(running, key=numbers)
                variant = running[newest][0]
                usable = [gpu for gpu in usable if variant in running[gpu.capability or ""]]
            return variant, usable
        without = self._running(machine, None, self.possible.releases, [None])
        return (without[0] if without else None), ()

    def _running(
        self,
        machine: Machine,
        gpu: MachineGpu | None,
        releases: Iterable[str],
        architectures: Sequence[str | None],
    ) -> list[Variant]:
        """Return the possible variants that run on a GPU, the best first.

        Of equal ones, such as two releases of one PyTorch, one that the matrix has comes first.
        """

        def ranked() -> list[Variant]:
            return sorted(
                self.possible.on(machine, releases, architectures),
                key=lambda variant: (preference(variant), self.possible.is_existing(variant)),
                reverse=True,
            )

        accepted, _ = self._judge(machine, gpu, (*releases, *architectures), ranked)
        return [candidate.variant for candidate in accepted]

    def _addition(self, variant: Variant) -> tuple[str, str]:
        """Return a command that makes the release of a variant, and lines of matrix.toml."""
        if self.possible.is_existing(variant):
            return "", ""
        if variant.release_name in self.matrix.releases:
            return "", lines_for(self.matrix, variant)
        like = newest_release(self.matrix)
        cuda = variant.release.cuda.version if variant.release.cuda else ""
        new = f"invoke bump --release {like} --cuda {cuda} --as {variant.release_name}"
        inherited = {other.short_id for other in self.matrix.of_release(like)}
        return new, "" if variant.short_id in inherited else lines_for(self.matrix, variant)


def _best(answers: Sequence[Answer], for_all: Variant | None) -> ChosenBuild | None:
    """Return the best of the matrix for a machine: for all GPUs, or else for the newest."""
    gpus = tuple(gpu for answer in answers for gpu in answer.gpus)
    if for_all and for_all.gpu:
        reason = f"code for {for_all.gpu.capability} runs on all GPUs; {for_all.cpu.title}"
        same = [it for each in answers for it in each.accepted if it.variant is for_all]
        doubts = tuple(dict.fromkeys(doubt for it in same for doubt in it.doubts))
        return ChosenBuild(variant=for_all, gpus=gpus, unused=(), reason=reason, doubts=doubts)
    return _highest(answers, [answer.best for answer in answers])


def _highest(
    answers: Sequence[Answer], candidates: Sequence[Candidate | None]
) -> ChosenBuild | None:
    """Return the highest of the candidates of answers, each for the GPUs of its own."""
    found = [(it, answer) for it, answer in zip(candidates, answers, strict=True) if it]
    if not found:
        return None
    first, its = max(found, key=lambda row: preference(row[0].variant))
    used = its.gpus if first.variant.gpu else ()
    unused = tuple(gpu for answer in answers for gpu in answer.gpus if gpu not in used)
    return ChosenBuild(
        variant=first.variant,
        gpus=used,
        unused=unused,
        reason=explain.why_best(first),
        doubts=first.doubts,
    )


def _update(
    answers: Sequence[Answer],
    best: ChosenBuild | None,
    ideal: ChosenBuild | None,
    later: ChosenBuild | None,
) -> DriverUpdate | None:
    """Return what a newer driver makes possible; `later` is the ideal build with the newest one."""
    build, without = _highest(answers, [answer.waits_for_driver for answer in answers]), best
    if build is None:
        build, without = later, ideal
    if not build or (without and preference(build.variant) <= preference(without.variant)):
        return None
    waiting = [
        candidate.variant
        for answer in answers
        for candidate in answer.rejected
        if candidate.waits_for_driver and set(answer.gpus) & set(build.gpus)
    ]
    return DriverUpdate(
        build=build,
        says=explain.which_driver(build.variant, waiting, build.gpus),
        is_first=best is None or best.variant.gpu is None,
    )


def _first_common(several: Iterable[Sequence[Variant]]) -> Variant | None:
    """Return the first variant of the first list that is in all lists, or None."""
    first, *others = several
    ids = [{variant.id for variant in other} for other in others]
    return next((variant for variant in first if all(variant.id in other for other in ids)), None)
