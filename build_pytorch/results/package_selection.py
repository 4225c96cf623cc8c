"""Which packages a command works on: the one reading of the options that select packages."""

from __future__ import annotations

import os
from collections.abc import Sequence

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix.field_types import listed
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import Selection, on_hardware, select_packages
from build_pytorch.results.ledger import HOST, Ended, Events, Started
from build_pytorch.results.package_state import PackageState, all_events, package_states


def chosen_packages(
    matrix: Matrix, selection: Selection, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the selected packages in matrix order, the variants first.

    `companions` are names of companions to add for each variant. Raises BuildPytorchError for a
    wrong name, and if no package is in a wanted state; WriteError if the ledger cannot be read.
    """
    if not selection.state:
        return _named(matrix, selection, companions)
    found = [state.package for state in chosen_states(matrix, selection, all_events(matrix.root))]
    if not found:
        raise BuildPytorchError(f"no package has the state {' or '.join(selection.state)}")
    names = [f"{package.release_name}/{package.short_id}" for package in found]
    return select_packages(matrix, names, companions=companions)


def chosen_package(matrix: Matrix, selection: Selection) -> Package:
    """Return the one package that is selected. Raises BuildPytorchError for none and for several.

    Otherwise as `chosen_packages`.
    """
    if not selection.is_narrow:
        raise BuildPytorchError(f"name a variant, such as {matrix.variants[0].id}")
    selected = chosen_packages(matrix, selection)
    if len(selected) > 1:
        names = listed(package.id for package in selected)
        raise BuildPytorchError(f"found {len(selected)} variants; name one of them: {names}")
    return selected[0]


def last_log(matrix: Matrix, package: Package) -> tuple[str, Started | Ended]:
    """Return the path of the last log of a package, and the end or else the start of that build.

    Raises BuildPytorchError if it is not here.
    """
    state = package_states(matrix.root, [package])[package.id]
    build, path = state.unfinished or state.last, state.newest_log
    if not build:
        raise BuildPytorchError(f"{package.id}: the ledger has no build of it")
    if not os.path.lexists(matrix.root / path):
        is_here = build.host in {"", HOST}
        where = "was deleted" if is_here else f"is on {build.host}; copy it here"
        raise BuildPytorchError(f"{path}: not found; the log of {package.id} {where}")
    return path, build


def chosen_states(matrix: Matrix, selection: Selection, events: Events) -> list[PackageState]:
    """Return the states of selected packages, and of their companions that the ledger names.

    Patterns select alone: companions that they do not name are left out. The list may be empty.
    Raises as `chosen_packages`.
    """
    packages, wanted = _named(matrix, selection), selection.state
    chosen = {package.path for package in packages}
    others = [each for each in matrix.companions if each.variant.path in chosen]
    companions = () if selection.variants else others
    known = package_states(matrix.root, packages, companions, events)
    return [s for s in known.values() if not wanted or s.overall.replace(" ", "-") in wanted]


def _named(
    matrix: Matrix, selection: Selection, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the packages of a selection, in any state."""
    found = select_packages(matrix, selection.variants, selection.release, companions)
    return on_hardware(matrix, found, selection) if selection.gpu or selection.isa else found
