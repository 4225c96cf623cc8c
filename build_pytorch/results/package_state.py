"""The state of packages: six steps from the recipe to its publication; selection by it.

Whether a package is built, and whether its build would fail again, is decided here alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil
from msgspec import Struct

from build_pytorch.base.console import grouped
from build_pytorch.base.errors import BuildPytorchError, NothingSelectedError
from build_pytorch.matrix.field_types import listed
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages, words_of
from build_pytorch.nix.store import valid_paths
from build_pytorch.results import artefacts, ledger
from build_pytorch.results.ledger import HOST, Event, EventKind, History, TestKind, subject_of

TEST_NAMES: Final[dict[TestKind, str]] = {"smoke": "smoke test", "inspect": "inspection"}
"""The tests that are evidence, as people call them."""


class Mark(StrEnum):
    """The value of a step, and the one state of a package, as they are printed."""

    # The states of a package: the first that applies, in this order.
    BUILDING = "building"
    FAILED = "failed"
    PUBLISHED = "published"
    TESTED = "tested"
    BUILT = "built"
    IMPOSSIBLE = "impossible-host"
    INTERRUPTED = "interrupted"
    OUTDATED = "outdated"  #: the result is of another recipe
    NOT_BUILT = "not built"
    # Other values of steps.
    YES = "yes"
    STOPPED = "stopped"  #: by a log rule
    NOT_STARTED = "not started"  #: a build that a run gave up
    UNKNOWN = "unknown"  #: the ledger has no recipe for the result
    ELSEWHERE = "elsewhere"  #: in the catalog of Flox
    PASSED = "passed"
    COMPATIBLE = "compatible"  #: passed on a GPU of another architecture
    SKIPPED = "skipped"
    NO_EVIDENCE = "no evidence"  #: published without a passed test
    NO = "-"


class PackageState(Struct, frozen=True, kw_only=True):
    """What is known of one variant or companion, and of its current recipe."""

    package: Package
    digest: str  #: of the recipe; empty if a file cannot be read
    link: str = ""  #: store path behind the result link; empty if it leads nowhere
    events: tuple[Event, ...] = ()  #: of the package, for any recipe, oldest first

    @property
    def origin(self) -> str | None:
        """Digest of the recipe that `link` was built from, or None if unknown.

        Several recipes have the same output if they differ in comments only: then it is the current
        one if it is among them, else the last.
        """
        recipes = [event.digest for event in self.events if self.link in event.outputs]
        return self.digest if self.digest in recipes else recipes[-1] if recipes else None

    @property
    def steps(self) -> dict[str, Mark]:
        """The table of the six steps: how far the package is."""
        steps = {"recipe": Mark.YES if self.digest else Mark.NO, "built": self.built}
        kinds = {"inspected": "inspect", "tested": "smoke", "compared": "compare"}
        for name, kind in kinds.items():
            steps[name] = Mark(test.outcome or "") if (test := self.test(kind)) else Mark.NO
        steps["published"] = Mark.YES if self.publication else Mark.NO
        if self.publication and self.publication.without_evidence:
            steps["published"] = Mark.NO_EVIDENCE
        return steps

    def of_recipe(self, kind: EventKind) -> list[Event]:
        """Return the events of a kind that name the current recipe, oldest first."""
        return [e for e in self.events if e.event == kind and e.digest == self.digest]

    @property
    def output(self) -> str:
        """Store path of the current recipe's result, if it is here and may be used."""
        is_current = self.digest and self.origin == self.digest and not self.stopped_by
        return self.link if is_current else ""

    @property
    def doubts(self) -> str:
        """What nobody has confirmed of its nixpkgs; empty once it is built."""
        is_built = self.built in {Mark.YES, Mark.ELSEWHERE}
        return "" if is_built else self.package.variant.pin.doubts

    @property
    def stopped_by(self) -> str:
        """Id of the log rule that stopped the last build of the current recipe."""
        return next((e.cause for e in self.of_recipe("ended")[-1:] if e.outcome == "stopped"), "")

    @property
    def last(self) -> Event | None:
        """The last build of any recipe: its end, or its start if no line says how it ended."""
        return next((e for e in reversed(self.events) if e.event in {"started", "ended"}), None)

    @property
    def log(self) -> str:
        """Path of the log of the last build, below the root; empty without one."""
        folder = f"{ledger.LOGS}/{self.package.attribute}"
        return f"{folder}/{self.last.attempt}.log" if self.last else ""

    @property
    def built(self) -> Mark:
        """The result behind the link; without one, how the last build ended."""
        last = self.last
        if last and last.event == "started" and _is_alive(last):
            return Mark.BUILDING
        if self.output:
            return Mark.YES
        if self.publication:
            return Mark.ELSEWHERE
        if self.link:
            return Mark.UNKNOWN if self.origin is None else Mark.OUTDATED
        if last and last.event == "started":
            return Mark.INTERRUPTED
        return Mark(str(last.outcome)) if last and last.outcome != "built" else Mark.NO

    def test(self, kind: str) -> Event | None:
        """Return the last passed or failed test of a kind, else the last undecided one.

        It counts for the recipe whose digest it names.
        """
        tests = [test for test in self.of_recipe("tested") if test.by == kind]
        decided = [test for test in tests if test.outcome in {"passed", "failed"}]
        return next(reversed(decided or tests), None)

    @property
    def missing_evidence(self) -> str:
        """Why the evidence for the recipe is not enough; empty if a test passed and none failed."""
        tests = [test for kind in TEST_NAMES if (test := self.test(kind))]
        outcomes = {test.outcome: test for test in reversed(tests)}
        if failed := outcomes.get("failed"):
            name = TEST_NAMES[failed.by or "smoke"]
            return f"its {name} failed: {failed.reason or 'see its report'}"
        if "passed" in outcomes:
            return ""
        if "compatible" in outcomes:
            return "it ran only on a GPU of another architecture"
        why = f" ({tests[0].reason})" if tests and tests[0].reason else ""
        return f"no smoke test or inspection passed yet{why}"

    @property
    def failure(self) -> Event | None:
        """The build or test that failed last, and has not succeeded since."""
        if self.output or self.publication:
            tests = filter(None, map(self.test, TEST_NAMES))
            return next((test for test in tests if test.outcome == "failed"), None)
        last = self.last
        return last if last and last.outcome in {"failed", "stopped"} else None

    @property
    def fails_again(self) -> Event | None:
        """The failed build that would fail again: the fault is in the recipe, which is the same."""
        failure = self.failure
        is_same = failure and failure.fails_again and failure.digest == self.digest
        return failure if is_same else None

    @property
    def publication(self) -> Event | None:
        """The last publication of the current recipe."""
        return next(reversed(self.of_recipe("published")), None)

    @property
    def organizations(self) -> set[str]:
        """Where the current recipe is published; an empty name is the user's own account."""
        return {event.organization for event in self.of_recipe("published")}

    @property
    def overall(self) -> Mark:
        """The one state that the package is in."""
        built = self.built
        if built is Mark.BUILDING:
            return built
        if self.failure:
            return Mark.FAILED
        if self.publication:
            return Mark.PUBLISHED
        if self.output:
            return Mark.BUILT if self.missing_evidence else Mark.TESTED
        if self.package.impossible:
            return Mark.IMPOSSIBLE
        if self.last and (self.last.event == "started" or self.last.outcome == "interrupted"):
            return Mark.INTERRUPTED
        return Mark.OUTDATED if self.link else Mark.NOT_BUILT


def package_states(
    root: Path, packages: Iterable[Package], history: History | None = None
) -> dict[str, PackageState]:
    """Return the states of packages by id.

    The ledger is read unless its `history` is given; the store is asked once. Raises WriteError for
    the ledger, ToolError if Nix fails.
    """
    links = [(p, artefacts.target(artefacts.link(root, p))) for p in packages]
    present = valid_paths(sorted({path for _, path in links if path}))
    events = (history or ledger.read(root)).events
    by_subject = grouped((event.subject, event) for event in events)
    return {
        package.id: PackageState(
            package=package,
            digest=artefacts.recipe_digest(root, package),
            link=path if path in present else "",
            events=tuple(by_subject.get(subject_of(package), ())),
        )
        for package, path in links
    }


def _is_alive(started: Event) -> bool:
    """Whether the process that an attempt names runs here, and ran when the attempt began."""
    named = re.fullmatch(r"[\dT.]+-(\d{1,9})-\d+", started.attempt)
    if named and started.host in {"", HOST}:
        with contextlib.suppress(psutil.Error, OverflowError, ValueError):
            since = datetime.fromisoformat(started.at).timestamp()
            return psutil.Process(int(named[1])).create_time() <= since + 2
    return False


# --- which packages a command works on ---

WORDS: Final = {state.replace(" ", "-"): (state,) for state in list(Mark)[:9]} | {
    "not-built": (Mark.NOT_BUILT, Mark.OUTDATED, Mark.INTERRUPTED)
}
"""Words for the packages in a state; `not-built`: without a current result, and not failed."""


def chosen_packages(
    matrix: Matrix, patterns: str, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the packages that patterns name, in matrix order, the variants first.

    Patterns are those of `select_packages` and the words of WORDS. `companions` are names of
    companions to add for each variant. Raises BuildPytorchError for a wrong name,
    NothingSelectedError if no package is in a wanted state, WriteError if the ledger cannot be
    read.
    """
    words = words_of(patterns)
    names = [word for word in words if word not in WORDS]
    if len(names) < len(words):
        marks = {mark for word in words for mark in WORDS.get(word, ())}
        states = chosen_states(matrix, "", ledger.read(matrix.root))
        found = [state.package for state in states if state.overall in marks]
        names += [f"{package.release_name}/{package.short_id}" for package in found]
        if not names:
            raise NothingSelectedError(f"no package has the state {' or '.join(words)}")
        patterns = ",".join(names)
    return select_packages(matrix, patterns, companions)


def chosen_package(matrix: Matrix, pattern: str) -> Package:
    """Return the one package of a pattern. Raises as `chosen_packages`, also for several."""
    selected = chosen_packages(matrix, pattern)
    if len(selected) > 1:
        names = listed(package.id for package in selected)
        raise BuildPytorchError(f"found {len(selected)} packages; name one of them: {names}")
    return selected[0]


def chosen_states(matrix: Matrix, patterns: str, history: History) -> list[PackageState]:
    """Return the states of the packages that patterns name.

    Without any, of all variants and of the companions that the ledger names. In the order of Mark.
    Raises as `chosen_packages`.
    """
    packages = list(chosen_packages(matrix, patterns))
    if not patterns:
        known = {event.subject for event in history.events}
        packages += [each for each in matrix.companions if subject_of(each) in known]
    states = package_states(matrix.root, packages, history).values()
    return sorted(states, key=lambda state: list(Mark).index(state.overall))
