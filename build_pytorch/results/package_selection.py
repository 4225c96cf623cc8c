"""Which packages a command works on: the one reading of the options that select packages."""

from __future__ import annotations

import os
from collections.abc import Sequence

from build_pytorch.base.errors import BuildPytorchError, NothingSelectedError
from build_pytorch.matrix.field_types import listed
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import Selection, on_hardware, select_packages
from build_pytorch.results import ledger
from build_pytorch.results.ledger import HOST, Event, History, subject_of
from build_pytorch.results.package_state import PackageState, package_states


def chosen_packages(
    matrix: Matrix, selection: Selection, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the selected packages in matrix order, the variants first.

    `companions` are names of companions to add for each variant. Raises BuildPytorchError for a
    wrong name, NothingSelectedError if no package is in a wanted state, WriteError if the ledger
    cannot be read.
    """
    if not selection.state:
        return _named(matrix, selection, companions)
    states = chosen_states(matrix, selection, ledger.read(matrix.root))
    names = [f"{s.package.release_name}/{s.package.short_id}" for s in states]
    if not names:
        raise NothingSelectedError(f"no package has the state {' or '.join(selection.state)}")
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


def last_log(matrix: Matrix, package: Package) -> tuple[str, Event]:
    """Return the path of the last log of a package, and the end or else the start of that build.

    Raises BuildPytorchError if it is not here.
    """
    state = package_states(matrix.root, [package])[package.id]
    build, path = state.last, state.log
    if not build:
        raise BuildPytorchError(f"{package.id}: the ledger has no build of it")
    if not os.path.lexists(matrix.root / path):
        is_here = build.host in {"", HOST}
        where = "was deleted" if is_here else f"is on {build.host}; copy it here"
        raise BuildPytorchError(f"{path}: not found; the log of {package.id} {where}")
    return path, build


def chosen_states(matrix: Matrix, selection: Selection, history: History) -> list[PackageState]:
    """Return the states of selected packages, and of their companions that the ledger names.

    Patterns select alone: companions that they do not name are left out. The list may be empty.
    Raises as `chosen_packages`.
    """
    packages, wanted = list(_named(matrix, selection)), selection.state
    if not selection.variants:
        chosen = {package.path for package in packages}
        known = {event.subject for event in history.events}
        packages += [
            c for c in matrix.companions if c.variant.path in chosen and subject_of(c) in known
        ]
    states = package_states(matrix.root, packages, history).values()
    return [s for s in states if not wanted or s.overall.replace(" ", "-") in wanted]


def _named(
    matrix: Matrix, selection: Selection, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the packages of a selection, in any state."""
    found = select_packages(matrix, selection.variants, selection.release, companions)
    return on_hardware(matrix, found, selection) if selection.gpu or selection.isa else found
