"""Choose the build for a machine: the only place that decides.

A pure function of a matrix and a machine. Text, JSON, docs and the picker print its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits, numbers, order
from build_pytorch.hardware import explain
from build_pytorch.hardware.possible import PossibleVariants, newest_release
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.hardware.verdicts import (
    Candidate,
    Obstacle,
    cpu_obstacles,
    driver_limit,
    gpu_verdict,
    without_driver,
)
from build_pytorch.matrix import known_hardware, rules
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.tables import GpuArchitecture


class Answer(Struct, frozen=True, kw_only=True):
    """The verdicts for all GPUs of one capability, or for a machine without GPUs."""

    gpus: tuple[MachineGpu, ...]
    accepted: tuple[Candidate, ...]
    """What runs, the best first."""
    rejected: tuple[Candidate, ...]
    """What does not run, each with its obstacles, in the order of preference."""
    waits_for_driver: Candidate | None
    """A variant that would be better than the best, with a newer driver."""

    @property
    def best(self) -> Candidate | None:
        """The first of the accepted candidates."""
        return next(iter(self.accepted), None)

    @property
    def reasons(self) -> tuple[Obstacle, ...]:
        """Why the rejected candidates do not run: the first obstacle of each, each once."""
        return tuple(dict.fromkeys(candidate.obstacles[0] for candidate in self.rejected))


class ChosenBuild(Struct, frozen=True, kw_only=True):
    """One variant for a machine as a whole, with the GPUs that it uses."""

    variant: Variant
    gpus: tuple[MachineGpu, ...] = ()
    unused: tuple[MachineGpu, ...] = ()
    is_in_matrix: bool = True
    reason: str = ""
    after_driver_update: str = ""
    """The variant that would be ideal with the newest driver, if it is another one."""

    command: str = ""
    """The command that adds the variant to matrix.toml; empty if it is there."""


class Choice(Struct, frozen=True, kw_only=True):
    """Everything that is decided about a machine."""

    answers: tuple[Answer, ...]
    """One for each kind of GPU."""
    for_all: Variant | None
    """The best variant that runs on all GPUs, if they are of several kinds."""
    best: ChosenBuild | None
    """The best of the matrix."""
    ideal: ChosenBuild | None
    """What the machine should have, also if matrix.toml lacks it; None if no ISA fits its CPU."""
    remarks: tuple[str, ...]
    """What a user should know, and what decides nothing."""


def preference(
    variant: Variant,
) -> tuple[bool, bool, tuple[int, ...], tuple[int, ...], bool, int, bool]:
    """Return the rank of a variant among those that run; the highest is chosen.

    GPU code ranks above none; then a release above a nightly; then the newest PyTorch; then the
    highest capability, which is the GPU's own or the nearest below; then a build for one GPU
    alone; then the level of the ISA; then the CUDA packages of the pin.
    """
    return (
        variant.gpu is not None,
        not variant.release.torch.is_nightly,
        order(variant.release.torch.version),
        numbers(variant.gpu.capability) if variant.gpu else (),
        variant.gpu is None or variant.gpu.is_single,
        variant.cpu.level,
        not variant.is_wrapper,
    )


def choose(
    matrix: Matrix, machine: Machine, *, gpu: int | None = None, release: str | None = None
) -> Choice:
    """Choose for all GPUs of a machine, or for the one with the number `gpu`.

    Raises BuildPytorchError for an unknown GPU or release.
    """
    return Chooser(matrix, release).choose(machine, gpu)


class Chooser:
    """Chooses for many machines: it ranks once, and remembers verdicts that machines share."""

    def __init__(self, matrix: Matrix, release: str | None = None) -> None:
        if release is not None:
            require_release(matrix, release)
        variants = matrix.variants if release is None else matrix.of_release(release)
        self.matrix = matrix
        self.possible = PossibleVariants(matrix, release)
        self._ranked = sorted(variants, key=preference, reverse=True)
        self._verdicts: dict[object, tuple[list[Candidate], list[Candidate]]] = {}
        self._gpu_verdicts: dict[object, Candidate] = {}
        self._runnable: dict[object, list[Candidate]] = {}
        self._limits: dict[object, Obstacle | str | None] = {}

    def choose(self, machine: Machine, gpu: int | None = None) -> Choice:
        """Choose for a machine. Raises BuildPytorchError for an unknown GPU."""
        gpus = [each for each in machine.gpus if gpu in {None, each.index}]
        if gpu is not None and not gpus:
            known = ", ".join(str(each.index) for each in machine.gpus)
            raise BuildPytorchError(
                f"--gpu: found {gpu}; allowed: {known or 'none; this machine has no GPU'}"
            )
        kinds: dict[str | None, list[MachineGpu]] = {}
        for each in gpus:
            kinds.setdefault(each.capability, []).append(each)
        answers = tuple(self._answer(machine, tuple(kind)) for kind in kinds.values() or [()])
        running = [[it.variant for it in answer.accepted if it.variant.gpu] for answer in answers]
        for_all = _first_common(running) if len(answers) > 1 else None
        best, ideal = self._best(answers, for_all), self._ideal(machine, gpus)
        chosen = [build.variant for build in (best, ideal) if build]
        return Choice(
            answers=answers,
            for_all=for_all,
            best=best,
            ideal=ideal,
            remarks=tuple(explain.remarks(machine, gpus, chosen)),
        )

    # --- the best of the matrix ---

    def _answer(self, machine: Machine, gpus: tuple[MachineGpu, ...]) -> Answer:
        gpu = gpus[0] if gpus else None
        key = (machine.platform, machine.cpu.flags, gpu)
        if key not in self._verdicts:
            verdicts = list(self._without_driver(machine, gpu))
            self._verdicts[key] = (
                [candidate for candidate in verdicts if not candidate.obstacles],
                [candidate for candidate in verdicts if candidate.obstacles],
            )
        fitting, rejected = self._verdicts[key]
        candidates = [self._with_driver(candidate, machine) for candidate in fitting]
        accepted = [candidate for candidate in candidates if not candidate.obstacles]
        waiting = [candidate for candidate in candidates if candidate.obstacles]
        first = waiting[0] if waiting else None
        if first and accepted and preference(first.variant) <= preference(accepted[0].variant):
            first = None
        return Answer(
            gpus=gpus,
            accepted=tuple(accepted),
            rejected=(*waiting, *rejected),
            waits_for_driver=first,
        )

    def _without_driver(self, machine: Machine, gpu: MachineGpu | None) -> Iterator[Candidate]:
        """Judge the variants of the matrix by everything but the driver, the best first."""
        of_cpu: dict[str, tuple[Obstacle, ...]] = {}
        for variant in self._ranked:
            if variant.cpu_key not in of_cpu:
                of_cpu[variant.cpu_key] = cpu_obstacles(variant, machine)
            key = (gpu, variant.gpu_key, variant.platform)
            if key not in self._gpu_verdicts:
                self._gpu_verdicts[key] = gpu_verdict(variant, gpu)
            verdict = self._gpu_verdicts[key]
            obstacles = (*of_cpu[variant.cpu_key], *verdict.obstacles)
            yield msgspec.structs.replace(verdict, variant=variant, obstacles=obstacles)

    def _with_driver(self, candidate: Candidate, machine: Machine) -> Candidate:
        """Return a candidate that nothing else rejects, with the verdict about the driver."""
        variant, gpu = candidate.variant, candidate.gpu
        if variant.gpu is None or gpu is None:
            return candidate
        driver = (machine.driver, machine.cuda, machine.is_wsl)
        key = (driver, gpu, variant.release_name, variant.gpu_key)
        if key not in self._limits:
            self._limits[key] = driver_limit(variant, machine, gpu)
        limit = self._limits[key]
        if isinstance(limit, Obstacle):
            return msgspec.structs.replace(candidate, obstacles=(limit,))
        return msgspec.structs.replace(candidate, doubts=(limit,)) if limit else candidate

    def _best(self, answers: Sequence[Answer], for_all: Variant | None) -> ChosenBuild | None:
        """Return the best for the machine as a whole: for all GPUs, or else for the newest."""
        gpus = tuple(gpu for answer in answers for gpu in answer.gpus)
        if for_all and for_all.gpu:
            reason = f"code for {for_all.gpu.arch_list} runs on all GPUs; {for_all.cpu.title}"
            return ChosenBuild(variant=for_all, gpus=gpus, reason=reason)
        found = [(answer, answer.best) for answer in answers if answer.best]
        if not found:
            return None
        answer, best = max(found, key=lambda row: preference(row[1].variant))
        used = answer.gpus if best.variant.gpu else ()
        unused = tuple(gpu for gpu in gpus if gpu not in used)
        reason = explain.why_best(best)
        return ChosenBuild(variant=best.variant, gpus=used, unused=unused, reason=reason)

    # --- the ideal ---

    def _ideal(self, machine: Machine, gpus: Sequence[MachineGpu]) -> ChosenBuild | None:
        """Return what serves all GPUs best with the driver that the machine has."""
        variant, used = self._pick(machine, gpus)
        if variant is None:
            return None
        newer = msgspec.structs.replace(machine, driver="9999", cuda=None, is_wsl=False)
        later, _ = self._pick(newer, gpus)
        is_in_matrix = self.possible.is_existing(variant)
        unused = [gpu for gpu in gpus if gpu not in used]
        return ChosenBuild(
            variant=variant,
            gpus=tuple(used),
            unused=tuple(unused),
            is_in_matrix=is_in_matrix,
            reason="; ".join(self._why_ideal(variant, machine, used, unused)),
            after_driver_update=later.id
            if later and preference(later) > preference(variant)
            else "",
            command="" if is_in_matrix else self._command(variant),
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
            if variant is None and (key := self.possible.for_all(list(running))):
                variant = _first_common(
                    self._running(machine, gpu, releases, [key]) for gpu in usable
                )
            if variant is None:
                newest = max(running, key=numbers)
                variant = running[newest][0]
                usable = [gpu for gpu in usable if gpu.capability == newest]
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
        key = (machine.platform, machine.cpu.flags, gpu, tuple(releases), tuple(architectures))
        if key not in self._runnable:
            variants = self.possible.on(machine, releases, architectures)
            ranked = sorted(
                variants,
                key=lambda variant: (preference(variant), self.possible.is_existing(variant)),
                reverse=True,
            )
            verdicts = (without_driver(variant, machine, gpu) for variant in ranked)
            self._runnable[key] = [it for it in verdicts if not it.obstacles]
        candidates = (self._with_driver(it, machine) for it in self._runnable[key])
        return [candidate.variant for candidate in candidates if not candidate.obstacles]

    def _command(self, variant: Variant) -> str:
        """Return the command that adds a variant to matrix.toml."""
        add = f"invoke add {variant.id}"
        if variant.release_name in self.matrix.releases:
            return add
        like = newest_release(self.matrix)
        cuda = variant.release.cuda.version if variant.release.cuda else ""
        new = f"invoke add release {variant.release_name} --like {like} --cuda {cuda}"
        inherited = {other.short_id for other in self.matrix.of_release(like)}
        return new if variant.short_id in inherited else f"{new} && {add}"

    # --- the reasons for the ideal ---

    def _why_ideal(
        self,
        variant: Variant,
        machine: Machine,
        used: Sequence[MachineGpu],
        unused: Sequence[MachineGpu],
    ) -> Iterator[str]:
        why_unused = [self._why_unused(machine, gpu) for gpu in unused]
        if variant.gpu and variant.cuda:
            yield explain.why_gpu_code(variant.gpu, used)
            yield f"PyTorch {variant.version} on CUDA {variant.cuda.version}"
            yield from self._why_no_newer(variant, variant.gpu, machine, used)
            if len({gpu.capability for gpu in used}) > 1:
                for rule in rules.effects(variant, self.matrix.rules, self.matrix.patches).rules:
                    if rule.when.capability:
                        yield f"rule {rule.id} holds for all GPUs of the build: {rule.reason}"
            for gpu, why in zip(unused, why_unused, strict=True):
                yield f"GPU {gpu.index} stays unused: {why}"
        elif variant.kind == "mps":
            yield "Metal is the GPU of macOS"
        else:
            without = "no NVIDIA GPU" if machine.other_gpus else "no GPU"
            yield f"CPU-only: {'; '.join(dict.fromkeys(why_unused)) or without}"
        is_by_flags = bool(variant.cpu.cpuinfo)
        yield variant.cpu.title + (", the highest ISA that the CPU has" if is_by_flags else "")

    def _why_no_newer(
        self,
        variant: Variant,
        gpu: GpuArchitecture,
        machine: Machine,
        used: Sequence[MachineGpu],
    ) -> Iterator[str]:
        """Yield why releases with a newer PyTorch do not do."""
        for name, release in self.possible.releases.items():
            is_newer = order(release.torch.version) > order(variant.version)
            if release.cuda is None or release.torch.is_nightly or not is_newer:
                continue
            if not compiles(release.cuda, gpu):
                cuda = release.cuda.version
                yield f"not {name}: CUDA {cuda} does not compile for {gpu.arch_list}"
                continue
            other = self.possible.variant(name, variant.gpu_key, variant.cpu_key)
            limits = (driver_limit(other, machine, each) for each in used)
            yield from [f"not {name}: {it.text}" for it in limits if isinstance(it, Obstacle)][:1]

    def _why_unused(self, machine: Machine, gpu: MachineGpu) -> str:
        """Return why no build uses a GPU."""
        if gpu.capability is None:
            return f"the capability of {gpu.name} is unknown"
        fitting = self.possible.fitting(gpu.capability)
        if not fitting:
            known = known_hardware.load().gpu.get(f"sm{digits(gpu.capability)}")
            why = f": {known.unsupported}" if known and known.unsupported else ""
            return f"nothing runs on {gpu.name}, capability {gpu.capability}{why}"
        compiled = list(self.possible.on(machine, self.possible.releases, fitting))
        for variant in compiled:
            candidate = without_driver(variant, machine, gpu)
            candidate = candidate if candidate.obstacles else self._with_driver(candidate, machine)
            if candidate.obstacles:
                return candidate.obstacles[0].text
        if compiled:
            return f"no build has code for {gpu.name} and for the others"
        return f"no CUDA of these releases compiles for {gpu.name} ({gpu.capability})"


def _first_common(several: Iterable[Sequence[Variant]]) -> Variant | None:
    """Return the first variant of the first list that is in all lists, or None."""
    first, *others = several
    ids = [{variant.id for variant in other} for other in others]
    return next((variant for variant in first if all(variant.id in other for other in ids)), None)
