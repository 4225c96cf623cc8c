"""The five phases. Each can run alone: it plans from the matrix and the disk only."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from build_pytorch.base import file_plan
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Change, Tree, totals
from build_pytorch.cli.commands import PhaseOptions
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.generate.phase_plan import plan
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Phase


def run(
    phases: Sequence[Phase],
    options: PhaseOptions,
    *,
    verify: bool = False,
    fleet: Matrix | None = None,
) -> int:
    """Plan, print and apply phases in order; with `verify`, check the result.

    `fleet` is another matrix than that of this checkout. Returns the exit code. Raises
    BuildPytorchError for what stops a run altogether.
    """
    fleet = fleet or matrix_reader.load()
    root = options.root
    tree = Tree(root, force=options.force)
    screen = None if options.json else Screen(sys.stdout)
    pages = reference_pages() if Phase.DOCS in phases else {}
    everything: list[Change] = []
    reported = []
    for phase in phases:
        planned = plan(phase, fleet, tree, pages)
        diffs = {change.path: change.diff() for change in planned if _has_diff(change, options)}
        everything += planned
        reported.append(_report(phase, planned, diffs))
        if screen:
            title = f"Phase {phase.number}: {phase}, {counted(len(planned), 'file')}"
            file_plan.print_plan(screen, title, planned)
            for diff in diffs.values():
                screen.diff(diff)
    if not options.is_read_only:
        file_plan.apply(root, everything)
    pending = options.is_read_only and any(change.action.writes for change in everything)
    counts = totals(everything)
    code = EXIT_FINDINGS if Action.REFUSED in counts or (pending and options.check) else EXIT_OK
    if screen:
        parts = ", ".join(f"{counts[action]} {action}" for action in Action if action in counts)
        suffix = " (nothing written)" if options.is_read_only else ""
        screen.line(f"Total: {parts or 'nothing to do'}{suffix}")
    verified = None
    if verify and pending and screen:
        screen.line("Verification not run: the files above are not written yet.")
    if verify and not pending:
        from build_pytorch.verify import reports, verification

        result = verification.verify(fleet, root, pages=reference_pages)
        code = max(code, result.exit_code)
        if screen:
            reports.show(result, screen, verbose=options.verbose)
        else:
            verified = reports.document(result)
    if not screen:
        document = {
            "root": str(root),
            "written": not options.is_read_only,
            "phases": reported,
            "totals": counts,
            "verification": verified,
            "exit_code": code,
        }
        print_json(document, sys.stdout)
    return code


phase1, phase2, phase3, phase4, phase5 = (partial(run, [phase]) for phase in Phase)
all_phases = partial(run, list(Phase), verify=True)


def _has_diff(change: Change, options: PhaseOptions) -> bool:
    return change.action is Action.REFUSED or (options.diff and change.action.writes)


def _report(phase: Phase, planned: list[Change], diffs: Mapping[str, str]) -> dict[str, Any]:
    rows = [
        {"path": change.path, "action": change.action, "reason": change.reason}
        | ({"diff": diffs[change.path]} if change.path in diffs else {})
        for change in planned
    ]
    number, title = phase.number, str(phase)
    return {"phase": number, "title": title, "changes": rows, "totals": totals(planned)}
