"""The phases. Each can run alone: it plans from the matrix and the disk only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from build_pytorch.base import file_plan, git
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Action, Change, Tree, totals
from build_pytorch.cli.commands import PhaseOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.generate.phase_plan import plan
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Phase, Variant
from build_pytorch.matrix.selection import select
from build_pytorch.verify import recipe_evaluation, reports, verification
from build_pytorch.verify.check import Context
from build_pytorch.verify.reports import VerificationDocument


class ChangeRow(Struct, frozen=True, kw_only=True):
    """What a phase does with a file."""

    path: str
    action: Action
    reason: str
    diff: str | UnsetType = UNSET


class PhaseRow(Struct, frozen=True, kw_only=True):
    """A phase: its number and title, its changes, and how many there are of each action."""

    phase: int
    title: Phase
    changes: list[ChangeRow]
    totals: dict[str, int]


class PhasesDocument(Struct, frozen=True, kw_only=True):
    """The document of --json."""

    root: str
    written: bool
    phases: list[PhaseRow]
    totals: dict[str, int]
    verification: VerificationDocument | None
    exit_code: int


def run(options: PhaseOptions) -> int:
    """Plan, print and apply phases in order; with `options.verify`, check the result.

    Returns the exit code. Raises BuildPytorchError for what stops a run altogether.
    """
    matrix, root = matrix_reader.load(options.root), options.root
    chosen = select(matrix, (), options.release)  # first: nothing is written for a wrong name
    _refuse_ignored_folders(matrix, root)
    tree = Tree(root, force=options.force)
    screen = None if options.json else Screen(sys.stdout)
    context = _started_verification(matrix, chosen, tree) if options.verify else None
    pages = reference_pages() if Phase.DOCS in options.phases else {}
    plans = {p: plan(p, matrix, tree, pages, options.release) for p in options.phases}
    everything = [change for planned in plans.values() for change in planned]
    has_changes = any(change.action.writes for change in everything)
    if context and has_changes:
        recipe_evaluation.abandon(context)
    if not options.is_read_only:
        file_plan.apply(root, everything)  # before it is reported: it may fail
        if context and has_changes:
            context = _started_verification(matrix, chosen, Tree(root))
    pending = options.is_read_only and has_changes
    counts = totals(everything)
    code = EXIT_FINDINGS if Action.REFUSED in counts or (pending and options.check) else EXIT_OK
    if screen:
        _show(screen, everything, options)
    if context and pending and screen:
        screen.line("Verification not run: the files above are not written yet.")
    result = verification.run_checks(context) if context and not pending else None
    if result:
        code = max(code, result.exit_code)
        if screen:
            reports.show(result, screen, verbose=options.verbose)
    if not screen:
        document = PhasesDocument(
            root=str(root),
            written=not options.is_read_only,
            phases=[_report(phase, planned, options) for phase, planned in plans.items()],
            totals=counts,
            verification=reports.document(result) if result else None,
            exit_code=code,
        )
        print_json(document, sys.stdout)
    return code


def _started_verification(matrix: Matrix, variants: Sequence[Variant], tree: Tree) -> Context:
    """Start Nix on the recipes as they are: it takes longest, and works while files are planned."""
    context = Context(matrix, tree.root, variants, pages=reference_pages, tree=tree)
    recipe_evaluation.start(context)
    return context


def _refuse_ignored_folders(matrix: Matrix, root: Path) -> None:
    """Raise BuildPytorchError for a folder of recipes that Git ignores: Flox would see none."""
    folders = {f"{package.folder}/": package for package in matrix.packages}
    for folder in git.ignored(root, folders):
        table = f"release.{folders[folder].release_name}"
        what = f'matrix.toml: {table}.folder: found "{folder.rstrip("/")}", which Git ignores'
        raise BuildPytorchError(f"{what}; name another folder, or change .gitignore")


_MOST_DIFFS: Final = 3
"""Refused files whose diffs are printed; `-v` prints all."""


def _show(screen: Screen, changes: Sequence[Change], options: PhaseOptions) -> None:
    suffix = " (nothing written)" if options.is_read_only else ""
    refused = [change for change in changes if change.action is Action.REFUSED]
    left_out = () if options.verbose or options.diff else refused[_MOST_DIFFS:]
    for change in changes:
        if _has_diff(change, options) and change not in left_out:
            screen.diff(change.diff())
    file_plan.print_plan(screen, changes, verbose=options.verbose, suffix=suffix)


def _has_diff(change: Change, options: PhaseOptions) -> bool:
    return change.action is Action.REFUSED or (options.diff and change.action.writes)


def _report(phase: Phase, planned: list[Change], options: PhaseOptions) -> PhaseRow:
    rows = [
        ChangeRow(
            path=change.path,
            action=change.action,
            reason=change.reason,
            diff=change.diff() if _has_diff(change, options) else UNSET,
        )
        for change in planned
    ]
    return PhaseRow(phase=phase.number, title=phase, changes=rows, totals=totals(planned))
