"""The answers of the picker: what `choose` says about each kind of GPU, CPU and driver.

The page only looks up. A GPU is known by its capability, a CPU by the highest ISA that it has, and
a driver by its step: where it stands between the oldest drivers that the releases need.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

from build_pytorch.base.versions import numbers
from build_pytorch.generate.picker_tables import CpuClass, cpu_classes
from build_pytorch.hardware import explain
from build_pytorch.hardware.choice import Choice, ChosenBuild
from build_pytorch.hardware.choose import Chooser
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.hardware.verdicts import (
    CONSUMER,
    DriverNeed,
    Obstacle,
    driver_limit,
    driver_need,
)
from build_pytorch.hardware.wheels import ChosenWheel, wheel_needs
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.tables import environment_of

NO_GPU: Final = "none"
OTHER_GPU: Final = "other"
UNKNOWN_GPU: Final = "?"
"""Kinds of GPUs without a capability: none at all, one of another vendor, an unknown one."""
_NAME: Final = "{gpu}"
_CONSUMER_NAME: Final = f"{{{CONSUMER[0]}}}"


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


class Pool:
    """Distinct values of JSON. In lists and objects, the values are numbers of other ones."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self._numbers: dict[object, int] = {}

    def add(self, value: object) -> int:
        """Return the number of a value."""
        key: object = (type(value), value)
        if isinstance(value, dict):
            value = {name: self.add(part) for name, part in value.items()}
            key = tuple(value.items())
        elif isinstance(value, list | tuple):
            value = [self.add(part) for part in value]
            key = tuple(value)
        number = self._numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class _DriverState:
    """A driver with values that stand for all of its step, and what is said about it."""

    def __init__(
        self,
        driver: str | None,
        cuda: str | None,
        needs: Sequence[DriverNeed],
        *,
        is_wsl: bool,
        is_consumer: bool,
    ) -> None:
        self.gpu = MachineGpu(index=0, name=_CONSUMER_NAME if is_consumer else _NAME)
        cpu = Processor(flags="other")
        self.machine = Machine(platform="", cpu=cpu, driver=driver, cuda=cuda, is_wsl=is_wsl)
        found = {need: driver_limit(need, self.machine, self.gpu) for need in needs}
        self.verdicts = {
            need: "obstacle" if isinstance(limit, Obstacle) else "doubt" if limit else "runs"
            for need, limit in found.items()
        }
        self.limits = [it.text if isinstance(it, Obstacle) else it or "" for it in found.values()]
        self.remarks = explain.driver_remarks(self.machine, {need.cuda for need in needs})

    def with_slots(self, text: str) -> str:
        """Return a text with the slot `{limit 0}` in place of what is said about the first need."""
        limits = self.limits if "driver" in text else []  # each of them has the word
        for number, limit in enumerate(limits):
            if limit:
                text = text.replace(limit, f"{{limit {number}}}")
        return text.replace(_CONSUMER_NAME, _NAME)

    def says(self) -> dict[str, Any]:
        """Return the texts for the slots, and the remarks by CUDA, with slots of their own."""

        def templated(text: str) -> str:
            for value, name in ((self.machine.driver, "driver"), (self.machine.cuda, "cuda")):
                if value:
                    text = re.sub(rf"\b{re.escape(value)}(?![.\d])", f"{{{name}}}", text)
            return text

        remarks = [[cuda, templated(text)] for cuda, text in sorted(self.remarks.items())]
        return {"limits": [templated(text) for text in self.limits], "remarks": remarks}


class PickerPackage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package of the matrix, as the page builds it."""

    about: str
    package: str
    """Its name in the catalogue of Flox."""
    environment: str = "."
    """The Flox environment with its recipe, below the root; "." is the root."""
    attribute: str | None = None
    """Its attribute in release.nix, if that is not the name of the package."""
    companions: tuple[str, ...] = ()
    """What is compiled against it, such as torchvision: with `+` before it the end of an id."""


class PickerAnswers:
    """All answers for a matrix, shared where they are equal."""

    def __init__(self, matrix: Matrix) -> None:
        self.cpus = cpu_classes(matrix)
        self._chooser = Chooser(matrix)
        self.possible = self._chooser.possible
        self._packages = _packages(matrix)
        self._pool = Pool()
        known = known_hardware.load()
        gpus = list({**known.gpu, **matrix.gpus}.values())
        self._capabilities = list(dict.fromkeys(gpu.capability for gpu in gpus))
        self._arm_only = {
            gpu.capability for gpu in gpus if not any(it.startswith("x86") for it in gpu.hosts)
        }
        releases = [*self.possible.releases.values(), *self.possible.others.values()]
        toolkits = [release.cuda for release in releases if release.cuda]
        bundled = [known.cuda[it.version].bundled for it in toolkits if it.version in known.cuda]
        needed = {*(it.driver for it in toolkits), *(gpu.driver for gpu in gpus), *bundled}
        drivers = sorted((driver for driver in needed if driver), key=numbers)
        branches = dict.fromkeys(driver.partition(".")[0] for driver in drivers)
        majors = [f"{toolkit.version.partition('.')[0]}.0" for toolkit in toolkits]
        wheels = {need.cuda for kind in self._capabilities for need in wheel_needs(kind)}
        cudas = sorted({*majors, *(it.version for it in toolkits), *wheels}, key=numbers)
        self._axes = (
            Axis(name="isConsumer"),
            Axis(name="isWsl"),
            Axis(name="cuda", steps=tuple(cudas)),
            Axis(name="driver", steps=tuple(drivers), exact=tuple(branches)),
        )
        self._states = list(self._driver_states())

    def data(self) -> dict[str, Any]:
        """Return the answers as JSON; the values of `states` and `table` are numbers of the pool.

        `table[gpu].groups` has a group for each driver state, and `table[gpu].by_cpu[cpu]` an
        answer for each group.
        """
        kinds = (*self._capabilities, NO_GPU, OTHER_GPU, UNKNOWN_GPU)
        return {
            "axes": to_builtins(self._axes),
            "states": [self._pool.add(state.says()) for state in self._states],
            "table": {kind: self._of_gpu(kind) for kind in kinds},
            "pool": self._pool.values,
        }

    def _driver_states(self) -> Iterator[_DriverState]:
        """Yield a state for each combination of places on the axes, as the page numbers them."""
        releases = [*self.possible.releases, *self.possible.others]
        own = [it for kind in self._capabilities for it in self._needs(releases, kind)]
        wheels = (need for kind in self._capabilities for need in wheel_needs(kind))
        needs = list(dict.fromkeys([*own, *wheels]))
        endings = ("", "", ".8888", ".7777")
        values = (axis.values(end) for axis, end in zip(self._axes, endings, strict=True))
        for is_consumer, is_wsl, cuda, driver in itertools.product(*values):
            yield _DriverState(
                driver, cuda, needs, is_wsl=bool(is_wsl), is_consumer=bool(is_consumer)
            )

    def _needs(self, releases: Iterable[str], kind: str) -> list[DriverNeed]:
        """Return what the code that runs on a kind of GPU asks of its driver, by release."""
        keys = self.possible.fitting(kind) if kind in self._capabilities else ()
        isa, gpu = next(iter(self.possible.cpus)), MachineGpu(index=0, name="", capability=kind)
        variants = (self.possible.variant(*pair, isa) for pair in itertools.product(releases, keys))
        return [
            driver_need(variant, gpu)
            for variant in variants
            if variant.gpu and compiles(variant.cuda, variant.gpu)
        ]

    def _of_gpu(self, kind: str) -> dict[str, Any]:
        """Return the answers for a kind of GPU: one for each CPU and each group of states."""
        own = self._needs(self.possible.releases, kind)
        others = self._needs(self.possible.others, kind)
        wheels = wheel_needs(kind) if kind in self._capabilities else []
        first: dict[tuple[str, ...], _DriverState] = {}
        of_states = []
        for state in self._states:
            verdicts = [state.verdicts[need] for need in own]
            if set(verdicts) <= {"obstacle"}:  # only then do releases count that are no ones yet
                verdicts += [state.verdicts[need] for need in others]
            verdicts += [state.verdicts[need] for need in wheels]
            first.setdefault(tuple(verdicts), state)
            of_states.append(list(first).index(tuple(verdicts)))
        return {
            "groups": self._pool.add(of_states),
            "by_cpu": {
                cpu.key: self._pool.add([self._answer(kind, cpu, it) for it in first.values()])
                for cpu in self.cpus
                if kind not in self._arm_only or not cpu.platform.startswith("x86_64-")
            },
        }

    def _answer(self, kind: str, cpu: CpuClass, state: _DriverState) -> dict[str, Any]:
        """Return the answer for a kind of GPU and CPU in a driver state."""
        gpus = [
            MachineGpu(
                index=0, name=state.gpu.name, capability=None if kind == UNKNOWN_GPU else kind
            )
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
        remarks = choice.remarks[1:] if kind == OTHER_GPU else choice.remarks
        chosen = [build.variant for build in (choice.best, choice.ideal) if build]
        update, unused = choice.update, choice.ideal.why_unused if choice.ideal else ""
        return {
            "first": self._chosen(choice.first, state),
            "best": self._chosen(choice.best, state),
            "better": self._chosen(choice.better, state),
            "update": update and {"says": update.says, "id": update.build.variant.id},
            "whyUnused": state.with_slots(unused) if unused and not update else "",
            "wheel": choice.wheel and _wheel(choice.wheel, state),
            "isWheelFirst": choice.is_wheel_first,
            "compared": choice.compared,
            **_verdicts(choice, state),
            "remarks": [state.with_slots(it) for it in remarks if it not in state.remarks.values()],
            "cudas": explain.cudas_to_check(gpus, chosen),
        }

    def _chosen(self, build: ChosenBuild | None, state: _DriverState) -> dict[str, Any] | None:
        """Return a build; one that exists with what the index has of it and its companions."""
        if build is None:
            return None
        name = build.variant.id
        found = self._packages[name] if build.is_in_matrix else None
        companions = [self._packages[f"{name}+{it}"] for it in found.companions] if found else []
        return {
            "id": name,
            "about": _about(build.variant),
            "package": to_builtins(found),
            "companions": [to_builtins(it) for it in companions],
            "doubts": [state.with_slots(doubt) for doubt in build.doubts],
            "reason": state.with_slots(build.reason),
            "command": "\n".join(filter(None, (build.command, build.lines))),
        }


def _packages(matrix: Matrix) -> dict[str, PickerPackage]:
    """Return all packages of a matrix by id."""
    every: tuple[Package, ...] = (*matrix.variants, *matrix.companions)
    return {
        package.id: PickerPackage(
            about=_about(package),
            package=package.package,
            environment=environment_of(package.folder),
            attribute=package.attribute if package.shares_name else None,
            companions=tuple(each.name for each in matrix.companions_of(package))
            if isinstance(package, Variant)
            else (),
        )
        for package in every
    }


def _about(package: Package) -> str:
    """Return what a package is, in words."""
    if not isinstance(package, Variant):
        return f"{package.name} {package.version}"
    on = f"on CUDA {package.cuda.version}" if package.cuda else "without CUDA"
    python = package.release.python.version
    return f"PyTorch {package.version} {on}, Python {python}, {package.cpu.title}"


def _wheel(found: ChosenWheel, state: _DriverState) -> dict[str, Any]:
    said = [found.code, *map(state.with_slots, found.limits)]
    return {"title": found.title, "says": said, "command": found.command}


def _verdicts(choice: Choice, state: _DriverState) -> dict[str, Any]:
    """Return what else runs and what does not, for a machine with GPUs of one kind."""
    (answer,) = choice.answers
    best = answer.best
    reasons = explain.joined((reason.subject, reason.text) for reason in answer.reasons)
    return {
        "next": [
            {"id": it.variant.id, "why": explain.why_fallback(it, best)}
            for it in answer.accepted[1:]
            if best
        ],
        "rejected": [
            {"subjects": subjects, "why": state.with_slots(why)} for subjects, why in reasons
        ],
    }
