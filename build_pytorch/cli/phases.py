"""The five phases of the plan. Each stands alone: it plans from the matrix and the disk only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from build_pytorch.base import file_apply, paths
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Change, Tree, plan_delete, plan_text, totals
from build_pytorch.generate import docs, rendering
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Cleanup, Matrix, Phase, Variant


class PhaseOptions(Struct, frozen=True, kw_only=True):
    """What a person may ask of a phase."""

    root: Path = paths.PROJECT
    dry_run: bool = False
    check: bool = False
    diff: bool = False
    force: bool = False
    json: bool = False

    @property
    def only_looks(self) -> bool:
        """Whether nothing may be written."""
        return self.dry_run or self.check


def plan(phase: Phase, fleet: Matrix, tree: Tree) -> list[Change]:
    """What a phase would do to the tree. Raises WriteError where the tree cannot be read."""
    match phase:
        case Phase.CLEAN_UP:
            return _plan_clean_up(fleet, tree)
        case Phase.DOCS:
            from build_pytorch.verify import checks_page

            return [*docs.plan(fleet, rendering.texts(fleet), tree), *checks_page.plan(tree)]
        case _:
            return _plan_recipes(phase, fleet, tree)


def run(phases: Sequence[Phase], options: PhaseOptions, *, verify: bool = False) -> int:
    """Plan, print and apply phases in order; with `verify`, check the result.

    Returns the exit code. Raises BuildPytorchError for what stops a run altogether.
    """
    fleet = matrix_reader.load()
    root = paths.checked_root(options.root)
    tree = Tree(root, force=options.force)
    screen = None if options.json else Screen(sys.stdout)
    planned: dict[Phase, list[Change]] = {}
    for phase in phases:
        planned[phase] = plan(phase, fleet, tree)
        if screen:
            _print_plan(screen, phase, planned[phase], options)
    everything = [change for changes in planned.values() for change in changes]
    if not options.only_looks:
        file_apply.apply(root, everything)
    pending = options.only_looks and any(change.action.writes for change in everything)
    refused = any(change.action is Action.REFUSED for change in everything)
    code = EXIT_FINDINGS if refused or (pending and options.check) else EXIT_OK
    if screen:
        screen.line(_total_line(everything, options))
    result = None
    if verify and pending and screen:
        screen.line("Verification not run: the files above are not written yet.")
    if verify and not pending:
        from build_pytorch.verify import verification

        result = verification.verify(fleet, root)
        code = max(code, result.exit_code)
        if screen:
            result.print(screen)
    if not screen:
        document = {
            "root": str(root),
            "written": not options.only_looks,
            "phases": [_report(phase, changes, options) for phase, changes in planned.items()],
            "totals": totals(everything),
            "verification": result.as_dict() if result else None,
            "exit_code": code,
        }
        print_json(document, sys.stdout)
    return code


def cleanup_of(variant: Variant) -> Cleanup | None:
    """What the clean-up list says of a hand-written recipe where this variant belongs."""
    entries = variant.release.cleanup
    return next((entry for entry in entries if entry.file == f"{variant.package}.nix"), None)


def _plan_clean_up(fleet: Matrix, tree: Tree) -> list[Change]:
    planned: list[Change] = []
    recipe_paths = {variant.path: variant for variant in fleet.variants}
    listed: set[str] = set()
    for release in fleet.releases.values():
        for entry in release.cleanup:
            path = f"{release.folder}/{entry.file}"
            listed.add(path)
            if entry.action == "delete":
                planned.append(plan_delete(tree, path, entry.reason))
            elif (tree.root / path).exists():
                number = recipe_paths[path].phase.number
                planned.append(
                    Change(
                        path=path,
                        action=Action.UNCHANGED,
                        reason=f"left to phase {number} ({entry.action})",
                    )
                )
    for folder in dict.fromkeys(release.folder for release in fleet.releases.values()):
        planned.extend(
            Change(path=path, action=Action.UNKNOWN, reason="not in matrix.toml; left alone")
            for path in sorted(_files_below(tree.root, folder))
            if path not in recipe_paths and path not in listed
        )
    return planned


def _files_below(root: Path, folder: str) -> list[str]:
    """Files in a recipe folder, ours that a kill left half-written aside."""
    return [
        path.relative_to(root).as_posix()
        for path in (root / folder).rglob("*")
        if not file_apply.is_temporary(path.name) and (path.is_symlink() or not path.is_dir())
    ]


def _plan_recipes(phase: Phase, fleet: Matrix, tree: Tree) -> list[Change]:
    texts = rendering.texts(fleet)
    planned = []
    for variant in fleet.variants:
        if variant.phase is not phase:
            continue
        entry = cleanup_of(variant)
        planned.append(
            plan_text(
                tree,
                variant.path,
                texts[variant.path],
                hand_written=entry.action if entry and entry.action != "delete" else "refuse",
                reason=entry.reason if entry else "",
                group=variant.gpu_label,
            )
        )
    return planned


def _print_plan(screen: Screen, phase: Phase, planned: list[Change], options: PhaseOptions) -> None:
    screen.plan(f"Phase {phase.number}: {phase}, {counted(len(planned), 'file')}", planned)
    for change in planned:
        if change.action is Action.REFUSED or (options.diff and change.action.writes):
            screen.diff(change.diff())


def _total_line(everything: list[Change], options: PhaseOptions) -> str:
    counts = totals(everything)
    parts = ", ".join(f"{counts[action]} {action}" for action in Action if action in counts)
    total = f"Total: {parts or 'nothing to do'}"
    return f"{total} (nothing written)" if options.only_looks else total


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
