"""What is built: result links, the store behind them, and what the ledger says of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from build_pytorch.base import digest
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.store import valid_paths
from build_pytorch.results.ledger import AnyEvent, Ended, Ledger, Published, Tested

_Event = TypeVar("_Event", bound=AnyEvent)


class VariantResult(Struct, frozen=True, kw_only=True):
    """What is known of one variant."""

    variant: Variant
    digest: str
    """Of the recipe file; empty where there is none."""
    output: str = ""
    """The store path of the current recipe's result, where the store has it and the link leads
    there."""
    stale: str = ""
    """What the link leads to where that is of another recipe."""
    unknown: str = ""
    """What the link leads to where nothing tells which recipe that is of."""
    built: Ended | None = None
    last: Ended | None = None
    condemned: str = ""
    """The rule by which the last build of the current recipe was stopped, if it was."""
    smoke: Tested | None = None
    binary: Tested | None = None
    published: Published | None = None
    organizations: tuple[str, ...] = ()
    """Those that have `output`; an empty name is the person's own."""

    @property
    def disproof(self) -> str:
        """How a test disproved this result; empty where none did."""
        for test in (self.smoke, self.binary):
            if test and test.outcome == "failed":
                return f"its {test.by} test failed: {test.reason or 'see its report'}"
        return ""

    @property
    def doubt(self) -> str:
        """Why this result is not proved; empty where it is, by work or by its files."""
        if self.disproof:
            return self.disproof
        if any(test and test.outcome == "passed" for test in (self.smoke, self.binary)):
            return ""
        if self.smoke and self.smoke.outcome == "compatible":
            return "it ran only on another GPU than its own"
        return "nothing has proved it yet"


def link(root: Path, variant: Variant) -> Path:
    """Where the result of a variant is found."""
    return root / f"result-{variant.package}"


def target(path: Path) -> str:
    """The store path that a result link leads to, or nothing where it leads elsewhere."""
    try:
        found = os.path.realpath(path, strict=True) if path.is_symlink() else ""
    except OSError:
        return ""
    return found if found.startswith(f"{store()}/") else ""


def store() -> Path:
    """The folder of the Nix store. Nix manual, "Common Environment Variables"."""
    return Path(os.environ.get("NIX_STORE_DIR", "/nix/store"))


def recipe_digest(root: Path, variant: Variant) -> str:
    """The digest of a variant's recipe file; empty where it cannot be read."""
    try:
        return digest.of_bytes((root / variant.path).read_bytes())
    except OSError:
        return ""


def origin(events: Sequence[AnyEvent], current: str, output: str) -> str | None:
    """The digest of the recipe that a store path was built from, or None where nothing tells.

    `events` are the variant's. Recipes that differ in comments only have one output: it is of
    the `current` recipe where that is among them, else of the last.
    """
    recipes = [
        event.digest
        for event in events
        if isinstance(event, Ended) and event.outcome == "built" and output in event.outputs
    ]
    if current in recipes:
        return current
    return recipes[-1] if recipes else None


def look(root: Path, variants: Sequence[Variant]) -> dict[str, VariantResult]:
    """What is known of variants, by package name. The store is asked once.

    That a result is of the current recipe is in the ledger; that it is there, in the store.
    """
    events: dict[tuple[str, str], list[AnyEvent]] = {}
    for event in Ledger(root).events():
        events.setdefault(event.subject, []).append(event)
    targets = {v.package: target(link(root, v)) for v in variants}
    present = valid_paths([path for path in targets.values() if path])
    found = {}
    for variant in variants:
        mine = events.get((variant.release_name, variant.id), [])
        found[variant.package] = _result(root, variant, mine, targets[variant.package], present)
    return found


def _result(
    root: Path, variant: Variant, events: list[AnyEvent], target: str, present: set[str]
) -> VariantResult:
    current = recipe_digest(root, variant)
    of_now = [event for event in events if event.digest == current]
    built = _last(of_now, Ended, outcome="built")
    ended = _last(of_now, Ended)
    condemned = ended.cause if ended and ended.outcome == "stopped" else ""
    of = origin(events, current, target) if target in present else None
    is_current = bool(current) and of == current and not condemned
    return VariantResult(
        variant=variant,
        digest=current,
        output=target if is_current else "",
        stale=target if of is not None and not is_current else "",
        unknown=target if target in present and of is None else "",
        built=built,
        last=_last(events, Ended),
        condemned=condemned,
        smoke=_tested(of_now, "smoke", target) if is_current else None,
        binary=_tested(of_now, "binary", target) if is_current else None,
        published=_last(of_now, Published),
        organizations=tuple(
            event.organization
            for event in of_now
            if is_current and isinstance(event, Published) and event.output == target
        ),
    )


def _tested(events: list[AnyEvent], by: str, output: str) -> Tested | None:
    """The last verdict on a result; a later run that could prove nothing takes none back."""
    verdicts = [
        event
        for event in events
        if isinstance(event, Tested) and event.by == by and event.output == output
    ]
    decided = [event for event in verdicts if event.outcome in {"passed", "failed"}]
    return next(reversed(decided or verdicts), None)


def _last(events: list[AnyEvent], kind: type[_Event], **values: str) -> _Event | None:
    for event in reversed(events):
        if isinstance(event, kind) and all(
            getattr(event, name) == value for name, value in values.items()
        ):
            return event
    return None
