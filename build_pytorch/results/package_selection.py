"""Which packages a command works on: patterns, and the states of packages as further words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from build_pytorch.base.errors import BuildPytorchError, NothingSelectedError
from build_pytorch.matrix.field_types import listed
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages, words_of
from build_pytorch.results import ledger
from build_pytorch.results.ledger import HOST, History, subject_of
from build_pytorch.results.package_state import Mark, PackageState, package_states

WORDS: Final = {state.replace(" ", "-"): (state,) for state in list(Mark)[:9]} | {
    "not-built": (Mark.NOT_BUILT, Mark.OUTDATED, Mark.INTERRUPTED)
}
"""Words for the packages in a state; `not-built`: without a current result, and not failed."""


def chosen_packages(
    matrix: Matrix, patterns: str, companions: Sequence[str] = ()
) -> tuple[Package, ...]:
    """Return the packages that patterns name, in matrix order, the variants first.

    Patterns are those of `select_packages` and the words of WORDS. `companions` are names of
    companions to add for each variant. Raises BuildPytorchError for a wrong name,
    NothingSelectedError if no package is in a wanted state, WriteError if the ledger cannot be
    read.
    """
    words = words_of(patterns)
    names = [word for word in words if word not in WORDS]
    if len(names) < len(words):
        marks = {mark for word in words for mark in WORDS.get(word, ())}
        states = chosen_states(matrix, "", ledger.read(matrix.root))
        found = [state.package for state in states if state.overall in marks]
        names += [f"{package.release_name}/{package.short_id}" for package in found]
        if not names:
            raise NothingSelectedError(f"no package has the state {' or '.join(words)}")
        patterns = ",".join(names)
    return select_packages(matrix, patterns, companions)


def chosen_package(matrix: Matrix, pattern: str) -> Package:
    """Return the one package that a pattern names. Raises BuildPytorchError for several.

    Otherwise as `chosen_packages`.
    """
    selected = chosen_packages(matrix, pattern)
    if len(selected) > 1:
        names = listed(package.id for package in selected)
        raise BuildPytorchError(f"found {len(selected)} packages; name one of them: {names}")
    return selected[0]


def chosen_states(matrix: Matrix, patterns: str, history: History) -> list[PackageState]:
    """Return the states of the packages that patterns name.

    Without any, of all variants and of the companions that the ledger names. Raises as
    `chosen_packages`.
    """
    packages = list(chosen_packages(matrix, patterns))
    if not patterns:
        known = {event.subject for event in history.events}
        packages += [each for each in matrix.companions if subject_of(each) in known]
    return list(package_states(matrix.root, packages, history).values())


def last_log(matrix: Matrix, package: Package) -> str:
    """Return the path of the last log of a package. Raises BuildPytorchError if it is not here."""
    state = package_states(matrix.root, [package])[package.id]
    if not state.last:
        raise BuildPytorchError(f"{package.id}: the ledger has no build of it")
    if not os.path.lexists(matrix.root / state.log):
        host = state.last.host
        where = "was deleted" if host in {"", HOST} else f"is on {host}; copy it here"
        raise BuildPytorchError(f"{state.log}: not found; the log of {package.id} {where}")
    return state.log
