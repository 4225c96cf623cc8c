"""What is known of a variant: built, tested, published. Records tests with their reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from build_pytorch.base import digest, files, paths
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.matrix.seeds import Seed
from build_pytorch.nix.store import valid_paths
from build_pytorch.results import artefacts, ledger
from build_pytorch.results.artefacts import Artefact
from build_pytorch.results.ledger import AnyEvent, Ended, Ledger, Published, Tested

_Event = TypeVar("_Event", bound=AnyEvent)


class VariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one variant or companion and its current recipe."""

    package: Package
    digest: str
    """Digest of the recipe; empty if a file cannot be read."""
    output: str = ""
    """Store path of the current recipe's result, if the result link leads to it."""
    stale: str = ""
    """Store path behind the link, if it was built from another recipe."""
    local_packages: str = ""
    """The local checkout that its CUDA packages came from; such a result is not published."""
    unknown: str = ""
    """Store path behind the link, if the ledger has no recipe for it."""
    last: Ended | None = None
    """The last build of any recipe."""
    reads_seeds: bool = False
    """Whether `output` was built with seeds: the recipe alone has another store path."""
    stopped_by: str = ""
    """Id of the log rule that stopped the last build of the current recipe."""
    smoke: Tested | None = None
    inspect: Tested | None = None
    published: Published | None = None
    organizations: tuple[str, ...] = ()
    """Where `output` is published; an empty name is the user's own account."""
    events: tuple[AnyEvent, ...] = ()
    """Every event of the variant, of any recipe, oldest first."""

    @property
    def variant(self) -> Variant:
        """The variant; for a companion the one that it is for."""
        return self.package.variant

    @property
    def subject(self) -> tuple[str, str]:
        """The release and the name in events of the ledger."""
        return subject_of(self.package)

    @property
    def failed_test(self) -> str:
        """The test that this result failed, with its reason; empty if it failed none."""
        for test, name in ((self.smoke, "smoke test"), (self.inspect, "inspection")):
            if test and test.outcome == "failed":
                return f"its {name} failed: {test.reason or 'see its report'}"
        return ""

    @property
    def missing_evidence(self) -> str:
        """Why the evidence for this result is not enough; empty if it is."""
        if self.failed_test:
            return self.failed_test
        if any(test and test.outcome == "passed" for test in (self.smoke, self.inspect)):
            return ""
        if self.smoke and self.smoke.outcome == "compatible":
            return "it ran only on a GPU of another architecture"
        return "no smoke test or inspection passed yet"


def subject_of(package: Package) -> tuple[str, str]:
    """Return the release and the name that a package has in events of the ledger."""
    return package.release_name, package.short_id


def look(root: Path, packages: Sequence[Package]) -> dict[str, VariantResult]:
    """Return what is known of packages, by attribute.

    The ledger names the recipe of a result; one query to the store finds the results that exist.
    Raises WriteError if the ledger cannot be read, ToolError if Nix fails.
    """
    return _look(root, {p.attribute: (p, artefacts.link(root, p), subject_of(p)) for p in packages})


def look_at_seeds(root: Path, seeds: Iterable[Seed]) -> dict[str, VariantResult]:
    """Return what is known of seeds, by name, as `look` does. Their recipe is that of a variant."""
    return _look(
        root,
        {
            seed.name: (
                seed.variant,
                artefacts.link_of(root, seed.name),
                (seed.variant.release_name, seed.name),
            )
            for seed in seeds
        },
    )


def _look(
    root: Path, wanted: Mapping[str, tuple[Package, Path, tuple[str, str]]]
) -> dict[str, VariantResult]:
    """Return what is known by name; `wanted` has the variant, the link, the subject of events."""
    events: dict[tuple[str, str], list[AnyEvent]] = {}
    for event in Ledger(root).events():
        events.setdefault(event.subject, []).append(event)
    targets = {name: artefacts.target(link) for name, (_, link, _) in wanted.items()}
    present = valid_paths([path for path in targets.values() if path])
    return {
        name: _result(
            variant,
            recipe_digest(root, variant),
            events.get(subject, []),
            target if (target := targets[name]) in present else "",
        )
        for name, (variant, _, subject) in wanted.items()
    }


def recipe_digest(root: Path, variant: Package) -> str:
    """Return the digest of a recipe, or "" if a file cannot be read.

    That of a companion covers the recipe of its variant, which it imports.
    """
    paths_of = dict.fromkeys((variant.path, variant.variant.path))
    try:
        texts = [files.read_below(root, path, files.LARGEST_TEXT) for path in paths_of]
    except OSError:
        return ""
    return digest.of_bytes(b"\0".join(texts))


def unknown_recipe(variant: Package) -> str:
    """Return why a test of a result without a known recipe is not recorded, and what to do."""
    fix = f"run `invoke build {variant.id}`, which records a finished result without building again"
    return f"the ledger has no recipe for this result; {fix}"


def record_evidence(  # noqa: PLR0913 - the fields of one record, all by name
    root: Path,
    variant: Package,
    artefact: Artefact | None,
    *,
    test: ledger.TestKind,
    outcome: ledger.TestOutcome | Literal["not run"],
    reasons: Sequence[str],
    document: Mapping[str, object],
) -> tuple[str, bool]:
    """Save the report of a test and add a line to the ledger. Raises WriteError.

    The ledger gets a line only if `artefact`, the result that was tested, has a known recipe. In
    the report `document` gets the keys at, recorded, report and digest. Returns the report's path
    below the root and whether the ledger got a line.
    """
    moment = ledger.now()
    stamp = moment.partition("+")[0].replace(":", "").replace(".", "-")
    report = f"{paths.STATE}/{ledger.REPORTS}/{test}-{variant.attribute}-{stamp}Z.json"
    book, event, origin = Ledger(root), None, None
    if artefact:
        subject, output = subject_of(variant), str(artefact.output)
        events = [event for event in book.events() if event.subject == subject]
        origin = _origin(events, recipe_digest(root, variant), output)
        if origin is not None and outcome != "not run":
            event = Tested(
                at=moment,
                release=variant.release_name,
                variant=variant.short_id,
                digest=origin,
                by=test,
                outcome=outcome,
                output=output,
                reason="; ".join(reasons),
                report=report,
            )
    added = {"recorded": event is not None, "report": report, "digest": origin}
    text = msgspec.json.encode({"at": moment, **document, **added})
    with files.write_errors(root / report):
        files.make_state(root)
        whole = msgspec.json.format(text, indent=2) + b"\n"
        files.write_all(root, {report: whole}, make_folders=True)
    if event:
        book.append(event)
    return report, event is not None


def _origin(events: Sequence[AnyEvent], current: str, output: str) -> str | None:
    """Return the digest of the recipe that a store path was built from, or None if unknown.

    `events` are those of one variant. Several recipes have the same output if they differ in
    comments only: then the digest is the `current` one if it is among them, else the last.
    """
    recipes = [it.digest for it in _builds(events, output)]
    return current if current in recipes else recipes[-1] if recipes else None


def _builds(events: Sequence[AnyEvent], output: str) -> list[Ended]:
    """Return the builds that yielded a store path."""
    ended = [it for it in events if isinstance(it, Ended) and it.outcome == "built"]
    return [it for it in ended if output in it.outputs]


def _local_packages(builds: Sequence[Ended]) -> str:
    """Return the local checkout of the last build; empty if one of the builds read none."""
    found = [build.local_packages for build in builds]
    return found[-1] if found and all(found) else ""


def _result(
    variant: Package, current: str, events: Sequence[AnyEvent], target: str
) -> VariantResult:
    """Combine the events of a variant with the store path behind its link ("" if none)."""
    of_now = [event for event in events if event.digest == current]
    ended = _last(of_now, Ended)
    stopped_by = ended.cause if ended and ended.outcome == "stopped" else ""
    origin = _origin(events, current, target) if target else None
    is_current = bool(current) and origin == current and not stopped_by
    of_output = [
        event
        for event in of_now
        if is_current and isinstance(event, Tested | Published) and event.output == target
    ]
    return VariantResult(
        package=variant,
        digest=current,
        output=target if is_current else "",
        stale=target if origin is not None and not is_current else "",
        reads_seeds=is_current and all(it.shared for it in _builds(events, target)),
        local_packages=_local_packages(_builds(events, target)) if is_current else "",
        unknown=target if origin is None else "",
        last=_last(events, Ended),
        stopped_by=stopped_by,
        smoke=_test(of_output, "smoke"),
        inspect=_test(of_output, "inspect"),
        published=_last(of_now, Published),
        organizations=tuple(it.organization for it in of_output if isinstance(it, Published)),
        events=tuple(events),
    )


def _test(events: Sequence[Tested | Published], kind: ledger.TestKind) -> Tested | None:
    """Return the last passed or failed test, else the last undecided one."""
    tests = [it for it in events if isinstance(it, Tested) and it.by == kind]
    decided = [it for it in tests if it.outcome in {"passed", "failed"}]
    return next(reversed(decided or tests), None)


def _last(events: Sequence[AnyEvent], kind: type[_Event]) -> _Event | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)
