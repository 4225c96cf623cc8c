"""The index with what the ledger and the store know: docs/site/variants.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from build_pytorch.base import outputs, paths, process
from build_pytorch.compare.ratio_statistics import overall
from build_pytorch.hardware import index
from build_pytorch.hardware.index import IndexedPackage
from build_pytorch.hardware.wheels import Measurement
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix import store
from build_pytorch.results import package_state
from build_pytorch.results.package_state import EvidenceState, PackageState


def write(root: Path, matrix: Matrix) -> None:
    """Write the index beside the picker. Raises WriteError, ToolError if Nix fails."""
    document = index.index_of(matrix, _known(root, matrix))
    outputs.write_output(
        root / paths.INDEX,
        msgspec.json.encode(document) + b"\n",
        "an index",
        lambda old: f'"{index.FORMAT}"'.encode() in old,
    )


def _known(root: Path, matrix: Matrix) -> dict[str, IndexedPackage]:
    """Return all packages by id, with what is known of the results of current recipes."""
    found = index.packages(matrix)
    states = package_state.package_states(root, (), (*matrix.variants, *matrix.companions))
    here = [state.output for state in states.values() if state.output]
    has_nix = process.which(store.NIX_STORE)
    sizes = dict(zip(here, store.sizes(here), strict=True)) if here and has_nix else {}
    for key, state in states.items():
        evidence = {"inspect": state.inspect, "smoke": state.smoke, "compare": state.compare}
        found[key] = msgspec.structs.replace(
            found[key],
            output=state.output or (state.publication.output if state.publication else ""),
            size=sizes.get(state.output, 0),
            organizations=state.organizations,
            evidence={k: str(it) for k, it in evidence.items() if it is not EvidenceState.NONE},
            comparisons=tuple(measurements([state])),
        )
    return found


def measurements(states: Iterable[PackageState]) -> Iterator[Measurement]:
    """Yield what comparisons of current recipes found, as the ledger has it."""
    for state in states:
        for event in state.comparisons:
            if facts := event.compared:
                yield Measurement(
                    package=state.package.id,
                    against=facts.against,
                    machine_class=facts.machine,
                    verdict=overall(facts.verdicts.values()),
                    figures=event.reason,
                    date=event.at[:10],
                )
