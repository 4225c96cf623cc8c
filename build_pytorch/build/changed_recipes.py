"""Why the plan builds a package again: what changed in its recipe since the last build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from build_pytorch.build.build_backend import Step
from build_pytorch.nix import derivations, store
from build_pytorch.results.ledger import Ended, Started
from build_pytorch.results.package_state import PackageState
from build_pytorch.verify import rebuild_causes

OTHER_RECIPE: Final = "the result is of another recipe"
_SHOWN: Final = 2  #: causes of a rebuild


def with_causes(steps: Sequence[Step], results: Mapping[str, PackageState]) -> Iterator[Step]:
    """Yield the steps; where a result is of another recipe, with what changed since.

    As far as the ledger knows the derivation of that build, and the store still has it.
    """
    stale = {step.name: step for step in steps if step.reason == OTHER_RECIPE}
    builds = {name: _build_of(results[step.id]) for name, step in stale.items()}
    before = {name: started.derivation for name, started in builds.items() if started}
    after = {name: step.derivation.drv_path for name, step in stale.items() if step.derivation}
    there = store.valid_paths([*before.values(), *after.values()])
    known = derivations.read(sorted(there)) if there else {}
    for step in steps:
        if built := builds.get(step.name):
            pair = [known.get(drvs.get(step.name, "")) for drvs in (before, after)]
            causes = rebuild_causes.of_derivations(*filter(None, pair)) if all(pair) else []
            since = f"recipe changed since the build of {built.at[:10]}"
            reason = ": ".join(filter(None, (since, "; ".join(causes[:_SHOWN]))))
            yield replace(step, reason=reason)
        else:
            yield step


def _build_of(result: PackageState) -> Started | None:
    """Return the event with which the build of a stale result began."""
    built = [e.attempt for e in result.events if isinstance(e, Ended) and result.stale in e.outputs]
    started = (e for e in result.events if isinstance(e, Started) and e.attempt in built)
    return next(reversed([*started]), None)
