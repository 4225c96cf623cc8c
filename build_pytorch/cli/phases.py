"""The five phases of the plan. Each stands alone: it plans from the matrix and the disk only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from build_pytorch.base import file_apply
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Change, Tree, print_plan, totals
from build_pytorch.cli.commands import PhaseOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.generate.phase_plan import plan
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Phase


def run(phases: Sequence[Phase], options: PhaseOptions, *, verify: bool = False) -> int:
    """Plan, print and apply phases in order; with `verify`, check the result.

    Returns the exit code. Raises BuildPytorchError for what stops a run altogether.
    """
    fleet = matrix_reader.load()
    root = options.root
    tree = Tree(root, force=options.force)
    screen = None if options.json else Screen(sys.stdout)
    planned: dict[Phase, list[Change]] = {}
    pages = reference_pages() if Phase.DOCS in phases else {}
    for phase in phases:
        planned[phase] = plan(phase, fleet, tree, pages)
        if screen:
            _print_plan(screen, phase, planned[phase], options)
    everything = [change for changes in planned.values() for change in changes]
    if not options.is_read_only:
        file_apply.apply(root, everything)
    pending = options.is_read_only and any(change.action.writes for change in everything)
    refused = any(change.action is Action.REFUSED for change in everything)
    code = EXIT_FINDINGS if refused or (pending and options.check) else EXIT_OK
    if screen:
        screen.line(_total_line(everything, options))
    verified = None
    if verify and pending and screen:
        screen.line("Verification not run: the files above are not written yet.")
    if verify and not pending:
        from build_pytorch.verify import reports, verification

        result = verification.verify(fleet, root, pages=reference_pages)
        code = max(code, result.exit_code)
        verified = reports.document(result)
        if screen:
            reports.show(result, screen)
    if not screen:
        document = {
            "root": str(root),
            "written": not options.is_read_only,
            "phases": [_report(phase, changes, options) for phase, changes in planned.items()],
            "totals": totals(everything),
            "verification": verified,
            "exit_code": code,
        }
        print_json(document, sys.stdout)
    return code


phase1, phase2, phase3, phase4, phase5 = (partial(run, [phase]) for phase in Phase)
all_phases = partial(run, list(Phase), verify=True)


def _print_plan(screen: Screen, phase: Phase, planned: list[Change], options: PhaseOptions) -> None:
    print_plan(screen, f"Phase {phase.number}: {phase}, {counted(len(planned), 'file')}", planned)
    for change in planned:
        if change.action is Action.REFUSED or (options.diff and change.action.writes):
            screen.diff(change.diff())


def _total_line(everything: list[Change], options: PhaseOptions) -> str:
    counts = totals(everything)
    parts = ", ".join(f"{counts[action]} {action}" for action in Action if action in counts)
    total = f"Total: {parts or 'nothing to do'}"
    return f"{total} (nothing written)" if options.is_read_only else total


def _report(phase: Phase, planned: list[Change], options: PhaseOptions) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for change in planned:
        row: dict[str, Any] = {
            "path": change.path,
            "action": str(change.action),
            "reason": change.reason,
        }
        if change.action is Action.REFUSED or (options.diff and change.action.writes):
            row["diff"] = change.diff()
        rows.append(row)
    return {
        "phase": phase.number,
        "title": str(phase),
        "changes": rows,
        "totals": totals(planned),
    }
