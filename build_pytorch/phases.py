"""The five phases of the plan. Each stands alone: it plans from the matrix and the disk only."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from msgspec import Struct

from build_pytorch import changes, docs, matrix, paths, rendering
from build_pytorch.changes import Action, Change, Tree
from build_pytorch.console import Screen, counted
from build_pytorch.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.model import Cleanup, Matrix, Phase, Variant


class Options(Struct, frozen=True, kw_only=True):
    """What a person may ask of a phase."""

    root: Path = paths.PROJECT
    dry_run: bool = False
    check: bool = False
    diff: bool = False
    force: bool = False
    json: bool = False


def plan(phase: Phase, fleet: Matrix, tree: Tree) -> list[Change]:
    """What a phase would do to the tree. Raises WriteError where the tree cannot be read."""
    match phase:
        case Phase.CLEAN_UP:
            return _plan_clean_up(fleet, tree)
        case Phase.DOCS:
            return docs.plan(fleet, tree)
        case _:
            return _plan_recipes(phase, fleet, tree)


def run(phases: Sequence[Phase], options: Options, *, verify: bool = False) -> int:
    """Plan, print and apply phases in order; with `verify`, check the result.

    Returns the exit code. Raises BuildPytorchError for what stops a run altogether.
    """
    fleet = matrix.load()
    root = checked_root(options.root)
    tree = Tree(root, force=options.force)
    screen = Screen(sys.stdout)
    reports: list[dict[str, Any]] = []
    code = EXIT_OK
    everything: list[Change] = []
    for phase in phases:
        planned = plan(phase, fleet, tree)
        if not options.json:
            _print_plan(screen, phase, planned, options, fleet)
        if not (options.dry_run or options.check):
            changes.apply(root, planned)
        reports.append(_report(phase, planned, options))
        everything.extend(planned)
    pending = any(change.action.writes for change in everything)
    refused = any(change.action is Action.REFUSED for change in everything)
    if refused or (options.check and pending):
        code = EXIT_FINDINGS
    if not options.json:
        screen.line(_total_line(everything, options))
    verification: dict[str, Any] | None = None
    if verify and pending and (options.dry_run or options.check):
        if not options.json:
            screen.line("Verification not run: the files above are not written yet.")
    elif verify:
        from build_pytorch import checks

        result = checks.verify(fleet, root)
        code = max(code, result.exit_code)
        if options.json:
            verification = result.as_dict()
        else:
            result.print(screen)
    if options.json:
        print_json(
            {
                "root": str(root),
                "written": not (options.dry_run or options.check),
                "phases": reports,
                "totals": changes.totals(everything),
                "verification": verification,
                "exit_code": code,
            },
            sys.stdout,
        )
    return code


def checked_root(root: Path) -> Path:
    """The root as an absolute path. Raises BuildPytorchError where it is no folder."""
    if not root.is_dir():
        raise BuildPytorchError(f"--root {root}: no such folder; name an existing checkout")
    return root.resolve()


def print_json(document: object, stream: TextIO) -> None:
    """Print machine output."""
    json.dump(document, stream, indent=2)
    stream.write("\n")


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
                planned.append(changes.plan_delete(tree, path, entry.reason))
            elif (tree.read(path)) is not None:
                number = recipe_paths[path].phase.number
                planned.append(
                    Change(
                        path=path,
                        action=Action.UNCHANGED,
                        reason=f"left to phase {number} ({entry.action})",
                    )
                )
    for folder in dict.fromkeys(release.folder for release in fleet.releases.values()):
        for path in sorted(_files_below(tree.root, folder)):
            if path not in recipe_paths and path not in listed:
                planned.append(
                    Change(
                        path=path, action=Action.UNKNOWN, reason="not in matrix.toml; left alone"
                    )
                )
    return planned


def _files_below(root: Path, folder: str) -> list[str]:
    """Files in a recipe folder, ours that a kill left half-written aside."""
    return [
        path.relative_to(root).as_posix()
        for path in (root / folder).rglob("*")
        if not changes.is_temporary(path.name) and (path.is_symlink() or not path.is_dir())
    ]


def _plan_recipes(phase: Phase, fleet: Matrix, tree: Tree) -> list[Change]:
    texts = rendering.texts(fleet)
    planned = []
    for variant in fleet.variants:
        if variant.phase is not phase:
            continue
        entry = cleanup_of(variant)
        planned.append(
            changes.plan_text(
                tree,
                variant.path,
                texts[variant.path],
                hand_written=entry.action if entry and entry.action != "delete" else "refuse",
                reason=entry.reason if entry else "",
                group=variant.gpu_label,
            )
        )
    return planned


def _print_plan(
    screen: Screen, phase: Phase, planned: list[Change], options: Options, fleet: Matrix
) -> None:
    title = f"Phase {phase.number}: {phase}"
    if phase not in {Phase.CLEAN_UP, Phase.DOCS}:
        title += f", {counted(sum(v.phase is phase for v in fleet.variants), 'recipe')}"
    screen.plan(title, planned)
    for change in planned:
        if change.action is Action.REFUSED or (options.diff and change.action.writes):
            screen.diff(change.diff())


def _total_line(everything: list[Change], options: Options) -> str:
    counts = changes.totals(everything)
    parts = ", ".join(f"{counts[action]} {action}" for action in Action if action in counts)
    total = f"Total: {parts or 'nothing to do'}"
    return f"{total} (nothing written)" if options.dry_run or options.check else total


def _report(phase: Phase, planned: list[Change], options: Options) -> dict[str, Any]:
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
        "totals": changes.totals(planned),
    }
