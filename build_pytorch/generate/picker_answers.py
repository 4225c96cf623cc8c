"""The answers of the picker: what `choose` says about each kind of GPU, CPU and driver.

The page only looks up. A GPU is known by its capability, a CPU by the highest ISA that it has, and
a driver by its step: where it stands between the oldest drivers that the releases need.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct, to_builtins

from build_pytorch.base.versions import numbers
from build_pytorch.hardware import explain
from build_pytorch.hardware.choose import Answer, Chooser, ChosenBuild
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.hardware.verdicts import CONSUMER, Obstacle, driver_limit
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant
from build_pytorch.matrix.tables import environment_of

NO_GPU: Final = "none"
OTHER_GPU: Final = "other"
UNKNOWN_GPU: Final = "?"
"""Kinds of GPUs without a capability: none at all, one of another vendor, an unknown one."""
_NAME: Final = "{gpu}"
_CONSUMER_NAME: Final = f"{{{CONSUMER[0]}}}"


class CpuClass(Struct, frozen=True, kw_only=True):
    """CPUs that get the same answer: those whose highest ISA is the same."""

    key: str
    """An ISA; for CPUs without any of their platform, a processor or the word `other`."""
    title: str
    platform: str
    needs: tuple[str, ...] = ()
    """Flags of the ISA, by which the page recognises it."""
    flags: tuple[str, ...] = ()
    """The same with the flags of the lower ISAs, which such CPUs have as well."""
    cpus: tuple[str, ...] = ()


class Axis(Struct, frozen=True, kw_only=True):
    """One fact of a driver state: unknown or false, between two steps, or an exact value.

    A fact that is true or false has no steps.
    """

    name: str
    """Its name in the page."""
    steps: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()

    def values(self, ending: str = "") -> list[str | None]:
        """Return a value for each place on the axis; `ending` makes it differ from the step."""
        return [None, *(f"{step}{ending}" for step in ("1", *self.steps)), *self.exact]


class _Need(NamedTuple):
    """What a release with a GPU architecture asks of a driver."""

    cuda: str
    driver: str
    architecture: str
    """Empty where the driver is that of the CUDA, whatever the architecture."""


class _Pool:
    """Distinct values, which others name by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def add(self, value: object) -> int:
        """Return the number of a value."""
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[object]:
        """The values in the order of their numbers."""
        return list(self._numbers)


class _DriverState:
    """A driver with values that stand for all of its step, and what is said about it."""

    def __init__(
        self,
        driver: str | None,
        cuda: str | None,
        needs: dict[_Need, Variant],
        *,
        is_wsl: bool,
        is_consumer: bool,
    ) -> None:
        name = _CONSUMER_NAME if is_consumer else _NAME
        self.machine = Machine(
            platform="",
            cpu=Processor(flags="other"),
            gpus=(MachineGpu(index=0, name=name),),
            driver=driver,
            cuda=cuda,
            is_wsl=is_wsl,
        )
        self.verdicts: dict[_Need, str] = {}
        self._limits: list[str] = []
        for need, variant in needs.items():
            limit = driver_limit(variant, self.machine, self.machine.gpus[0])
            is_obstacle = isinstance(limit, Obstacle)
            self.verdicts[need] = "obstacle" if is_obstacle else "doubt" if limit else "runs"
            self._limits.append(limit.text if isinstance(limit, Obstacle) else limit or "")
        self.remarks = explain.driver_remarks(self.machine, {need.cuda for need in needs})

    def with_slots(self, text: str) -> str:
        """Return a text with the slot `{limit 0}` in place of what is said about the first need."""
        limits = self._limits if "driver" in text else []  # each of them has the word
        for number, limit in enumerate(limits):
            if limit:
                text = text.replace(limit, f"{{limit {number}}}")
        return text.replace(_CONSUMER_NAME, _NAME)

    def says(self, add: Callable[[str], int]) -> tuple[object, ...]:
        """Return the texts for the slots, and the remarks by CUDA, as numbers of texts."""

        def templated(text: str) -> int:
            for value, name in ((self.machine.driver, "driver"), (self.machine.cuda, "cuda")):
                if value:
                    text = re.sub(rf"\b{re.escape(value)}(?![.\d])", f"{{{name}}}", text)
            return add(text)

        remarks = tuple((cuda, templated(text)) for cuda, text in sorted(self.remarks.items()))
        return tuple(map(templated, self._limits)), remarks


def cpu_classes(matrix: Matrix) -> list[CpuClass]:
    """Return the classes of CPUs, of each platform the highest ISA first."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    found = []
    for platform in dict.fromkeys(isa.platform for isa in isas.values()):
        here = {key: isa for key, isa in isas.items() if isa.platform == platform}
        for key, isa in sorted(here.items(), key=lambda item: -item[1].level):
            lower = [it for it in here.values() if it.level <= isa.level]
            found.append(
                CpuClass(
                    key=key,
                    title=isa.title,
                    platform=platform,
                    needs=isa.cpuinfo,
                    flags=tuple(dict.fromkeys(flag for it in lower for flag in it.cpuinfo)),
                    cpus=isa.cpus,
                )
            )
        older = (it for it in known.processor.items() if it[1].platform == platform)
        key, processor = next(((k, it) for k, it in older if not it.isa), ("", None))
        if processor:
            found.append(CpuClass(key=key, title=processor.title, platform=platform))
    return [*found, CpuClass(key="other", title="", platform="{platform}")]


class PickerAnswers:
    """All answers for a matrix, shared where they are equal."""

    def __init__(self, matrix: Matrix) -> None:
        self.cpus = cpu_classes(matrix)
        self._chooser = Chooser(matrix)
        self._possible = self._chooser.possible
        known = known_hardware.load()
        gpus = [gpu for gpu in {**known.gpu, **matrix.gpus}.values() if gpu.is_single]
        self._capabilities = list(dict.fromkeys(gpu.capability for gpu in gpus))
        self._arm_only = {
            gpu.capability for gpu in gpus if not any(it.startswith("x86") for it in gpu.hosts)
        }
        releases = {**self._possible.releases, **self._possible.others}
        self._toolkits = {name: it.cuda for name, it in releases.items() if it.cuda}
        self._companions: dict[str, list[CompanionPackage]] = {}
        for companion in matrix.companions:
            self._companions.setdefault(companion.variant.id, []).append(companion)
        self._numbers: dict[str, int] = {}
        self._texts, self._lists, self._answers, self._builds = _Pool(), _Pool(), _Pool(), _Pool()
        toolkits = self._toolkits.values()
        bundled = [known.cuda[it.version].bundled for it in toolkits if it.version in known.cuda]
        of_gpus = [gpu.driver for gpu in gpus]
        needed = {*(toolkit.driver for toolkit in toolkits), *of_gpus, *bundled}
        drivers = sorted((driver for driver in needed if driver), key=numbers)
        branches = dict.fromkeys(driver.partition(".")[0] for driver in drivers)
        majors = [f"{toolkit.version.partition('.')[0]}.0" for toolkit in toolkits]
        cudas = sorted({*majors, *(toolkit.version for toolkit in toolkits)}, key=numbers)
        self._axes = (
            Axis(name="isConsumer"),
            Axis(name="isWsl"),
            Axis(name="cuda", steps=tuple(cudas)),
            Axis(name="driver", steps=tuple(drivers), exact=tuple(branches)),
        )
        self._states = list(self._driver_states())

    def data(self) -> dict[str, Any]:
        """Return the answers as JSON.

        `states` has a number in `says` for each driver state, and `table[gpu].groups` a group.
        `table[gpu].by_cpu[cpu]` has the number of the answer for each group.
        """
        kinds = (*self._capabilities, NO_GPU, OTHER_GPU, UNKNOWN_GPU)
        says = _Pool()
        return {
            "axes": to_builtins(self._axes),
            "states": [says.add(state.says(self._texts.add)) for state in self._states],
            "says": says.values,
            "table": {kind: self._of_gpu(kind) for kind in kinds},
            "answers": self._answers.values,
            "builds": self._builds.values,
            "lists": self._lists.values,
            "texts": self._texts.values,
        }

    def _driver_states(self) -> Iterator[_DriverState]:
        """Yield a state for each combination of places on the axes, as the page numbers them."""
        needs: dict[_Need, Variant] = {}
        for releases in (self._possible.releases, self._possible.others):
            for variant in self._variants(releases, list(self._possible.gpus)):
                needs.setdefault(_need(variant), variant)
        endings = ("", "", ".8888", ".7777")
        values = (axis.values(end) for axis, end in zip(self._axes, endings, strict=True))
        for is_consumer, is_wsl, cuda, driver in itertools.product(*values):
            yield _DriverState(
                driver, cuda, needs, is_wsl=bool(is_wsl), is_consumer=bool(is_consumer)
            )

    def _variants(self, releases: Iterable[str], keys: Sequence[str]) -> Iterator[Variant]:
        """Yield one variant for each release and GPU architecture that its CUDA compiles for."""
        isa = next(iter(self._possible.cpus))
        for name, key in itertools.product(releases, keys):
            if compiles(self._toolkits.get(name), self._possible.gpus[key]):
                yield self._possible.variant(name, key, isa)

    def _of_gpu(self, kind: str) -> dict[str, Any]:
        """Return the answers for a kind of GPU: one for each CPU and each group of states."""
        keys = self._possible.fitting(kind) if kind in self._capabilities else ()
        own, others = (
            [_need(variant) for variant in self._variants(releases, keys)]
            for releases in (self._possible.releases, self._possible.others)
        )
        groups = _Pool()
        first: list[_DriverState] = []
        of_states = []
        for state in self._states:
            verdicts = [state.verdicts[need] for need in own]
            if set(verdicts) <= {"obstacle"}:  # only then do releases count that are no ones yet
                verdicts += [state.verdicts[need] for need in others]
            of_states.append(groups.add(tuple(verdicts)))
            if of_states[-1] == len(first):
                first.append(state)
        return {
            "groups": self._lists.add(tuple(of_states)),
            "by_cpu": {
                cpu.key: self._lists.add(tuple(self._answer(kind, cpu, state) for state in first))
                for cpu in self.cpus
                if kind not in self._arm_only or not cpu.platform.startswith("x86_64-")
            },
        }

    def _answer(self, kind: str, cpu: CpuClass, state: _DriverState) -> int:
        """Return the number of an answer."""
        (gpu,) = state.machine.gpus
        gpus = [
            MachineGpu(index=0, name=gpu.name, capability=None if kind == UNKNOWN_GPU else kind)
            for _ in range(kind not in {NO_GPU, OTHER_GPU})
        ]
        choice = self._chooser.choose(
            Machine(
                platform=cpu.platform,
                cpu=Processor(flags=" ".join(cpu.flags) or "other"),
                gpus=tuple(gpus),
                driver=state.machine.driver,
                cuda=state.machine.cuda,
                other_gpus=(_NAME,) if kind == OTHER_GPU else (),
                is_wsl=state.machine.is_wsl,
            )
        )
        (answer,) = choice.answers

        def text(words: str) -> tuple[int, ...]:
            """Return the numbers of the parts of a text: many texts share parts."""
            return tuple(self._texts.add(part) for part in state.with_slots(words).split("; "))

        waits = answer.waits_for_driver
        waiting = (
            f"{waits.variant.id} needs a newer driver: {waits.obstacles[0].text}" if waits else ""
        )
        chosen = [build.variant for build in (choice.best, choice.ideal) if build]
        reasons = explain.joined((reason.subject, reason.text) for reason in answer.reasons)
        remarks = choice.remarks[1:] if kind == OTHER_GPU else choice.remarks
        return self._answers.add(
            (
                self._chosen(choice.best, text),
                self._chosen(choice.ideal, text),
                tuple(text(doubt) for doubt in (answer.best.doubts if answer.best else ())),
                self._lists.add(tuple(self._next(answer))),
                self._lists.add(tuple((text(subjects), text(why)) for subjects, why in reasons)),
                text(waiting) if waiting else (),
                tuple(text(it) for it in remarks if it not in state.remarks.values()),
                tuple(explain.cudas_to_check(gpus, chosen)),
            )
        )

    def _chosen(
        self, build: ChosenBuild | None, text: Callable[[str], tuple[int, ...]]
    ) -> tuple[object, ...] | None:
        """Return build, reason, later build, command, and whether GPUs stay unused."""
        if build is None:
            return None
        texts = (text(build.reason), text(build.after_driver_update), text(build.command))
        return (self._build(build.variant), *texts, bool(build.unused))

    def _next(self, answer: Answer) -> Iterator[tuple[int, int]]:
        """Yield what comes after the best, and how it differs."""
        for candidate in answer.accepted[1:]:
            if answer.best:
                why = explain.why_fallback(candidate, answer.best)
                yield self._build(candidate.variant), self._texts.add(why)

    def _build(self, variant: Variant) -> int:
        """Return the number of a build: id and description, and the names of one that exists."""
        if variant.id in self._numbers:
            return self._numbers[variant.id]
        cuda = variant.cuda
        on = f"on CUDA {cuda.version}" if cuda else "without CUDA"
        python = variant.release.python.version
        about = f"PyTorch {variant.version} {on}, Python {python}, {variant.cpu.title}"
        row: tuple[object, ...] = (variant.id, about)
        if self._possible.is_existing(variant):
            companions = self._companions.get(variant.id, ())
            row += (_names(variant), tuple((it.name, it.version, *_names(it)) for it in companions))
        self._numbers[variant.id] = self._builds.add(row)
        return self._numbers[variant.id]


def _need(variant: Variant) -> _Need:
    """Return what a variant with GPU code asks of a driver."""
    cuda = variant.cuda
    if cuda is None:
        return _Need("", "", "")
    architecture = variant.gpu_label if variant.driver != cuda.driver else ""
    return _Need(cuda.version, variant.driver, architecture)


def _names(package: Package) -> tuple[str, str, str]:
    """Return the environment of Flox, the package there, and the attribute of release.nix."""
    return environment_of(package.folder), package.package, package.attribute
