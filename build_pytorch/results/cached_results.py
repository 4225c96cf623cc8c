"""Results that a binary cache has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Package
from build_pytorch.nix import derivations
from build_pytorch.nix.store import in_cache
from build_pytorch.results.evidence import recipe_digest, subject_of
from build_pytorch.results.ledger import Ended, Events


def cached_results(
    root: Path, packages: Sequence[Package], events: Events, url: str
) -> dict[str, str]:
    """Return the store paths, by package id, of current recipes' results that a cache has.

    The ledger knows the path of what was built; of the others it takes an evaluation. Raises
    ToolError if the cache cannot be read or a recipe cannot be evaluated.
    """
    paths = {package.id: _recorded(root, package, events) for package in packages}
    unknown = [package for package in packages if not paths[package.id]]
    evaluated = derivations.evaluate(root, unknown)
    for name, why in evaluated.failures.items():
        raise ToolError(f"{name}: {why}")
    for package in unknown:
        paths[package.id] = [evaluated.derivations[package.attribute].output]
    there = in_cache([path for several in paths.values() for path in several], url)
    first = {id_: next((p for p in several if p in there), "") for id_, several in paths.items()}
    return {id_: path for id_, path in first.items() if path}


def _recorded(root: Path, package: Package, events: Events) -> list[str]:
    """Return the results of the current recipe that the ledger names, the newest first."""
    digest = recipe_digest(root, package)
    ended = (e for e in reversed(events.get(subject_of(package), ())) if isinstance(e, Ended))
    built = (e for e in ended if e.outcome == "built" and e.digest == digest)
    return [path for event in built for path in event.outputs]
