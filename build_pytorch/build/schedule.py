"""Scheduling decisions: the order of builds, what begins next, retries. No I/O; time is passed in.

A companion waits for its variant. Companions, which take minutes, begin before variants.

The first variant of each group is its canary: a fault that all recipes of the group share shows
there first: its siblings wait for it. CPU-only variants come last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from build_pytorch.base.console import grouped
from build_pytorch.build.build_backend import Step
from build_pytorch.build.log_rules import LogRule
from build_pytorch.matrix.model import CompanionPackage, Package, Variant

_RETRIES: Final = {"fewer-cores": 1, "once": 1, "later": 3}


def ordered(variants: Iterable[Variant]) -> list[Variant]:
    """Return variants in the order of their builds; groups and releases keep the matrix order."""
    kinds = grouped((kind(variant), variant) for variant in variants)
    blocks = sorted(kinds.values(), key=lambda block: block[0].gpu is None)
    return [*(block[0] for block in blocks), *(v for block in blocks for v in block[1:])]


def with_companions(packages: Iterable[Package]) -> list[Package]:
    """Return packages in the order of their builds, each companion after its variant.

    A companion is compiled with its variant's torch: the variant is added where it is missing.
    """
    companions: dict[str, list[Package]] = {}
    variants: dict[str, Variant] = {}
    for package in packages:
        variants[package.variant.path] = package.variant
        if package is not package.variant:
            companions.setdefault(package.variant.path, []).append(package)
    return [each for v in ordered(variants.values()) for each in (v, *companions.get(v.path, ()))]


def kind(variant: Variant) -> tuple[str, str]:
    """Return the key of variants that one canary tests: their recipes differ in values only."""
    return variant.release_name, variant.group.title


def kind_of(package: Package) -> tuple[str, str, str]:
    """Return release, group and companion: what packages with the same ones take is alike."""
    name = package.name if isinstance(package, CompanionPackage) else ""
    return *kind(package.variant), name


class Schedule:
    """The steps that wait, with their cores and retries.

    `retry_seconds` pass before the first retry of a download; each further one waits twice as
    long.
    """

    def __init__(self, steps: Iterable[Step], jobs: int, cores: int, retry_seconds: float) -> None:
        self.waiting = list(steps)
        self._jobs = jobs
        self._default_cores = cores
        self._retry_seconds = retry_seconds
        self._cores: dict[object, int] = {}  #: by kind, after it needed too much memory
        self._begun: dict[str, int] = {}  #: cores with which steps began
        self._tries: Counter[tuple[str, str]] = Counter()
        self._not_before: dict[str, float] = {}

    def cores(self, step: Step) -> int:
        """Return the compile jobs that a step may use."""
        return self._cores.get(kind_of(step.package), self._default_cores)

    def take(self, now: float, running: Sequence[Step], ended: Sequence[Variant]) -> Step | None:
        """Remove and return the step that a new process builds now; None: wait.

        `ended`: the variants of which a build has ended, not only of a companion.
        """
        if len(running) >= self._jobs:
            return None
        missing = {step.name for step in (*self.waiting, *running)}
        ready = [step for step in self.waiting if step.needs not in missing]
        due = [step for step in ready if now >= self._not_before.get(step.name, 0.0)]
        taken = next((step for step in due if not step.is_variant), None)
        if taken is None:
            waiting_for = {kind(s.variant) for s in running if s.is_variant}
            waiting_for -= {kind(variant) for variant in ended}
            taken = next((step for step in due if kind(step.variant) not in waiting_for), None)
        if taken is not None:
            self._begun[taken.name] = self.cores(taken)
            self.waiting.remove(taken)
        return taken

    def retry(self, step: Step, rule: LogRule, now: float) -> str:
        """Put a failed step back if its rule allows another try. Return how, or an empty text."""
        if not rule.retry:
            return ""
        self._tries[step.name, rule.id] += 1
        tries, cores = self._tries[step.name, rule.id], self._begun.get(step.name, self.cores(step))
        if tries > _RETRIES[rule.retry] or (rule.retry == "fewer-cores" and cores <= 1):
            return ""
        self.waiting.insert(0, step)
        if rule.retry == "fewer-cores":
            fewer = min(self.cores(step), cores // 2)
            self._cores[kind_of(step.package)] = fewer
            return f"once more with {fewer} cores instead of {cores}"
        seconds = self._retry_seconds * 2 ** (tries - 1)
        self._not_before[step.name] = now + seconds
        return f"again in {seconds:.0f} s"

    def drop(self, group: Variant | None = None) -> list[Step]:
        """Remove and return what waits: all, or the siblings of a variant."""
        return self._remove(lambda step: group is None or kind(step.variant) == kind(group))

    def drop_needing(self, name: str) -> list[Step]:
        """Remove and return what waits for a step."""
        return self._remove(lambda step: step.needs == name)

    def _remove(self, is_gone: Callable[[Step], bool]) -> list[Step]:
        gone = [step for step in self.waiting if is_gone(step)]
        self.waiting = [step for step in self.waiting if not is_gone(step)]
        return gone
