"""The state of packages: recipe, verification, build, tests, publication. One label for each.

`status`, `show` and `publish` print what stands here, and decide nothing again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.console import grouped
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.nix.store import valid_paths
from build_pytorch.results import artefacts
from build_pytorch.results.evidence import (
    builds_of,
    origin_of,
    recipe_digest,
    subject_of,
)
from build_pytorch.results.ledger import (
    HOST,
    LOGS,
    AnyEvent,
    Ended,
    Events,
    Ledger,
    Published,
    Started,
    Tested,
    TestKind,
)

_Event = TypeVar("_Event", bound=AnyEvent)


class BuiltState(StrEnum):
    """The result behind the link, and without one the last build."""

    YES = "yes"
    STALE = "stale"  #: of another recipe
    UNKNOWN = "unknown"  #: the ledger has no recipe for it
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    ELSEWHERE = "elsewhere"  #: in the catalog of Flox
    NO = "no"


class EvidenceState(StrEnum):
    """What a smoke test or an inspection of the current result found."""

    PASSED = "passed"
    FAILED = "failed"
    COMPATIBLE = "compatible"
    SKIPPED = "skipped"
    NONE = "-"


class PublishedState(StrEnum):
    """Whether a result of the current recipe was published."""

    YES = "yes"
    NO_EVIDENCE = "no evidence"
    NO = "-"


class OverallState(StrEnum):
    """The one state that a package is in: the first that applies, in this order."""

    BUILDING = "building"
    FAILED = "failed"
    PUBLISHED = "published"
    TESTED = "tested"
    BUILT = "built"
    IMPOSSIBLE = "impossible-host"
    INTERRUPTED = "interrupted"
    OUTDATED = "outdated"
    NOT_BUILT = "not built"


class PackageState(Struct, frozen=True, kw_only=True):
    """What is known of one variant or companion, and of its current recipe."""

    package: Package
    digest: str
    """Digest of the recipe; empty if a file cannot be read."""
    output: str = ""
    """Store path of the current recipe's result, if the result link leads to it."""
    elsewhere: str = ""
    """Where else the current recipe's result is: `Flox: NAME`."""
    stale: str = ""
    """Store path behind the link, if it was built from another recipe."""
    unknown: str = ""
    """Store path behind the link, if the ledger has no recipe for it."""
    local_packages: str = ""
    """The local checkout that its CUDA packages came from; such a result is not published."""
    last: Ended | None = None
    """The last build of any recipe."""
    stopped_by: str = ""
    """Id of the log rule that stopped the last build of the current recipe."""
    smoke_test: Tested | None = None
    inspection: Tested | None = None
    comparison: Tested | None = None
    publication: Published | None = None
    organizations: tuple[str, ...] = ()
    """Where the result is published; an empty name is the user's own account."""
    events: tuple[AnyEvent, ...] = ()
    """Every event of the package, of any recipe, oldest first."""

    @property
    def variant(self) -> Variant:
        """The variant; for a companion the one that it is for."""
        return self.package.variant

    @property
    def log(self) -> str:
        """Path of the log of the last build, below the root; empty without one."""
        name = self.package.attribute
        return f"{paths.STATE}/{LOGS}/{name}/{self.last.attempt}.log" if self.last else ""

    @property
    def newest_log(self) -> str:
        """Path of the log of the last build, also of one that has not ended; empty without one."""
        return self.unfinished.log if self.unfinished else self.log

    @property
    def built(self) -> BuiltState:
        """The result behind the link; without one, how the last build ended if it failed."""
        if self.output or self.elsewhere:
            return BuiltState.YES if self.output else BuiltState.ELSEWHERE
        if self.stale:
            return BuiltState.STALE
        if self.unknown:
            return BuiltState.UNKNOWN
        if self.last and self.last.outcome != "built":
            return BuiltState(self.last.outcome)
        return BuiltState.NO

    @property
    def smoke(self) -> EvidenceState:
        """The outcome of the smoke test."""
        return EvidenceState(self.smoke_test.outcome if self.smoke_test else "-")

    @property
    def inspect(self) -> EvidenceState:
        """The outcome of the inspection."""
        return EvidenceState(self.inspection.outcome if self.inspection else "-")

    @property
    def comparisons(self) -> list[Tested]:
        """Every comparison of the current recipe, oldest first."""
        tested = (event for event in self.events if isinstance(event, Tested))
        return [event for event in tested if event.compared and event.digest == self.digest]

    @property
    def compare_label(self) -> str:
        """The geometric mean of the last comparison, such as `1.22`; of several the slowest."""
        facts = self.comparison.compared if self.comparison else None
        return f"{max(facts.ratios.values()):.2f}" if facts and facts.ratios else "-"

    @property
    def published(self) -> PublishedState:
        """Whether a result of the current recipe was published, and with evidence."""
        if not self.publication:
            return PublishedState.NO
        is_blind = self.publication.without_evidence
        return PublishedState.NO_EVIDENCE if is_blind else PublishedState.YES

    @property
    def failed_test(self) -> str:
        """The test that this result failed, with its reason; empty if it failed none."""
        for test, name in ((self.smoke_test, "smoke test"), (self.inspection, "inspection")):
            if test and test.outcome == "failed":
                return f"its {name} failed: {test.reason or 'see its report'}"
        return ""

    @property
    def missing_evidence(self) -> str:
        """Why the evidence for this result is not enough; empty if it is."""
        if self.failed_test:
            return self.failed_test
        if EvidenceState.PASSED in {self.smoke, self.inspect}:
            return ""
        if self.smoke is EvidenceState.COMPATIBLE:
            return "it ran only on a GPU of another architecture"
        undecided = next(filter(None, (self.smoke_test, self.inspection)), None)
        why = f" ({undecided.reason})" if undecided and undecided.reason else ""
        return f"no smoke test or inspection passed yet{why}"

    @property
    def unfinished(self) -> Started | None:
        """The last attempt to build, if no line of the ledger says how it ended."""
        builds = (event for event in reversed(self.events) if isinstance(event, Started | Ended))
        last = next(builds, None)
        return last if isinstance(last, Started) else None

    @property
    def is_building(self) -> bool:
        """Whether the last attempt runs on this machine now."""
        return bool(self.unfinished and _is_alive(self.unfinished))

    @property
    def failure(self) -> Literal["build", "smoke test", "inspection"] | None:
        """What failed last and has not succeeded since; a test only if it is of this result."""
        failed = {BuiltState.FAILED, BuiltState.STOPPED}
        is_built = self.output or self.elsewhere
        if self.last and not (is_built or self.unfinished) and self.last.outcome in failed:
            return "build"
        if self.smoke is EvidenceState.FAILED:
            return "smoke test"
        return "inspection" if self.inspect is EvidenceState.FAILED else None

    @property
    def overall(self) -> OverallState:
        """The one state that the package is in."""
        if self.is_building:
            return OverallState.BUILDING
        if self.failure:
            return OverallState.FAILED
        if self.organizations:
            return OverallState.PUBLISHED
        if self.output or self.elsewhere:
            return OverallState.BUILT if self.missing_evidence else OverallState.TESTED
        if self.package.impossible:
            return OverallState.IMPOSSIBLE
        if self.unfinished or (self.last and self.last.outcome == "interrupted"):
            return OverallState.INTERRUPTED
        return OverallState.OUTDATED if self.stale or self.unknown else OverallState.NOT_BUILT


def package_states(
    root: Path,
    packages: Iterable[Package],
    others: Iterable[Package] = (),
    events: Events | None = None,
) -> dict[str, PackageState]:
    """Return the states of packages by id.

    `others` are left out unless the ledger names them. The ledger is read unless its `events` are
    given; the store is asked once. Raises WriteError for the ledger, ToolError if Nix fails.
    """
    events = all_events(root) if events is None else events
    chosen = [*packages, *(package for package in others if subject_of(package) in events)]
    targets = {p.id: artefacts.target(artefacts.link(root, p)) for p in chosen}
    present = valid_paths([path for path in targets.values() if path])
    states = {}
    for package in chosen:
        target = targets[package.id] if targets[package.id] in present else ""
        digest = recipe_digest(root, package)
        states[package.id] = _state(package, digest, events.get(subject_of(package), ()), target)
    return states


def all_events(root: Path) -> Events:
    """Return the events of the ledger, those of several machines by time. Raises WriteError."""
    events = grouped((event.subject, event) for event in Ledger(root).events())
    for several in events.values():
        if len({event.host for event in several}) > 1:
            several.sort(key=lambda event: event.at)
    return events


def _state(package: Package, digest: str, events: Sequence[AnyEvent], target: str) -> PackageState:
    """Combine the events of a package with the store path behind its link ("" if none)."""
    of_recipe = [event for event in events if event.digest == digest]
    ended = _last(of_recipe, Ended)
    stopped_by = ended.cause if ended and ended.outcome == "stopped" else ""
    origin = origin_of(events, digest, target) if target else None
    is_current = bool(digest) and origin == digest and not stopped_by
    builds = builds_of(events, target) if is_current else []
    publication = _last(of_recipe, Published)
    result, elsewhere = target if is_current else "", ""
    if publication and not is_current:
        result, elsewhere = publication.output, f"Flox: {publication.organization or 'own account'}"
    tested = [e for e in of_recipe if result and isinstance(e, Tested) and e.output == result]
    sent = [e for e in of_recipe if result and isinstance(e, Published) and e.output == result]
    local = [build.local_packages for build in builds]
    return PackageState(
        package=package,
        digest=digest,
        output=target if is_current else "",
        elsewhere=elsewhere,
        stale=target if origin is not None and not is_current else "",
        unknown=target if origin is None else "",
        local_packages=local[-1] if local and all(local) else "",
        last=_last(events, Ended),
        stopped_by=stopped_by,
        smoke_test=_verdict(tested, "smoke"),
        inspection=_verdict(tested, "inspect"),
        comparison=_verdict(tested, "compare"),
        publication=publication,
        organizations=tuple(event.organization for event in sent),
        events=tuple(events),
    )


def _verdict(tests: Sequence[Tested], kind: TestKind) -> Tested | None:
    """Return the last passed or failed test of a kind, else the last undecided one."""
    of_kind = [test for test in tests if test.by == kind]
    decided = [test for test in of_kind if test.outcome in {"passed", "failed"}]
    return next(reversed(decided or of_kind), None)


def _last(events: Sequence[AnyEvent], kind: type[_Event]) -> _Event | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def moment(text: str) -> datetime | None:
    """Return a time of the ledger in UTC, or None if it is not a time."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _is_alive(started: Started) -> bool:
    """Whether the process that an attempt names runs here, and ran when the attempt began."""
    named = re.fullmatch(r"[\dT.]+-(\d{1,9})-\d+", started.attempt)
    since = moment(started.at)
    if not named or since is None or started.host not in {"", HOST}:
        return False
    import psutil  # takes 20 ms to import, and most checkouts have no unfinished build

    try:
        return psutil.Process(int(named[1])).create_time() <= since.timestamp() + 2
    except (psutil.Error, OverflowError, ValueError):
        return False
