"""Which packages a command works on: the one reading of the options that select packages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.selection import (
    Selection,
    on_hardware,
    only_variants,
    select_packages,
)
from build_pytorch.results.package_state import Events, PackageState, all_events, package_states


def chosen_packages(
    matrix: Matrix, selection: Selection, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the selected packages in matrix order, the variants first.

    `companions` are names of companions to add for each variant. Raises BuildPytorchError for a
    wrong name, and if no package is in a wanted state; WriteError if the ledger cannot be read.
    """
    if not selection.state:
        return _named(matrix, selection, companions)
    states = chosen_states(matrix, selection, all_events(matrix.root), companions)
    if not states:
        raise BuildPytorchError(f"no package has the state {' or '.join(selection.state)}")
    return tuple(state.package for state in states)


def chosen_variants(matrix: Matrix, selection: Selection) -> tuple[Variant, ...]:
    """Return the selected variants, also those of which a companion is in a wanted state.

    Raises BuildPytorchError as `chosen_packages`, and for a pattern that names a companion.
    """
    named = only_variants(_named(matrix, selection, ()))
    chosen = {package.variant.path for package in chosen_packages(matrix, selection)}
    return tuple(variant for variant in named if variant.path in chosen)


def chosen_states(
    matrix: Matrix, selection: Selection, events: Events, companions: Sequence[str] = ()
) -> list[PackageState]:
    """Return the states of selected packages, and of their companions that the ledger names.

    Patterns select alone: companions that they do not name are left out. The list may be empty.
    Raises as `chosen_packages`.
    """
    packages = _named(matrix, selection, companions)
    chosen = {package.path for package in packages}
    others = [each for each in matrix.companions if each.variant.path in chosen]
    known = package_states(
        matrix.root, packages, () if selection.variants or companions else others, events
    )
    return list(in_states(known.values(), selection))


def in_states(states: Iterable[PackageState], selection: Selection) -> Iterable[PackageState]:
    """Return the packages that are in a state of the selection; all if it names none."""
    wanted = selection.state
    return (s for s in states if not wanted or s.overall.replace(" ", "-") in wanted)


def _named(matrix: Matrix, selection: Selection, companions: Sequence[str]) -> tuple[Package, ...]:
    """Return the packages of a selection, in any state."""
    found = select_packages(matrix, selection.variants, selection.release, companions)
    return on_hardware(matrix, found, selection) if selection.gpu or selection.isa else found
