"""Results that a binary cache has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build_pytorch.matrix.model import Package
from build_pytorch.nix import derivations
from build_pytorch.nix.store import in_cache
from build_pytorch.results.evidence import recipe_digest, subject_of
from build_pytorch.results.ledger import AnyEvent, Ended, Events


def cached_results(
    root: Path, packages: Sequence[Package], events: Events, url: str
) -> dict[str, str]:
    """Return the store paths, by package id, of current recipes' results that a cache has.

    The ledger knows the path of what was built; of the others it takes an evaluation, and what does
    not evaluate is in no cache. Raises ToolError if the cache or the pin cannot be read.
    """
    digests = {package.id: recipe_digest(root, package) for package in packages}
    paths = {p.id: _recorded(events.get(subject_of(p), ()), digests[p.id]) for p in packages}
    unknown = [p for p in packages if digests[p.id] and not paths[p.id]]
    found = derivations.evaluate(root, unknown).derivations
    for package in unknown:
        paths[package.id] = [found[package.attribute].output] if package.attribute in found else []
    there = in_cache([path for several in paths.values() for path in several], url)
    first = {id_: next((p for p in several if p in there), "") for id_, several in paths.items()}
    return {id_: path for id_, path in first.items() if path}


def _recorded(events: Sequence[AnyEvent], digest: str) -> list[str]:
    """Return the results of a recipe that the ledger names, the newest first."""
    ended = (event for event in reversed(events) if isinstance(event, Ended))
    built = (event for event in ended if event.outcome == "built" and event.digest == digest)
    return [path for event in built for path in event.outputs]
