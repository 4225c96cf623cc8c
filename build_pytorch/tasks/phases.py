"""The phases: generate recipes and docs. Each plans from the matrix and the disk only."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.tasks.command import TASKS, command, load

if TYPE_CHECKING:
    from build_pytorch.base.file_plan import Change
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.verify.verification import VerificationResult

_MOST_DIFFS = 3
"""Refused files whose diffs are printed; `-v` prints all."""


def _phases(name: str, numbers: Sequence[int], summary: str) -> Callable[..., Any]:
    """Make the task of some phases; they have the same options."""

    def phase(
        c: Context,
        dry_run: bool = False,
        check: bool = False,
        force: bool = False,
        verbose: bool = False,
    ) -> int:
        is_all = name == "all"
        options = {"dry_run": dry_run, "check": check, "force": force, "verbose": verbose}
        return run(numbers, verify=is_all, moved=None, **options)

    phase.__doc__ = summary
    task: Callable[..., Any] = command(name=name)(phase)
    return task


phase1 = _phases("phase1", [1], "Delete the files of the clean-up lists.")
phase2 = _phases("phase2", [2], "Generate the GPU recipes for x86.")
phase3 = _phases("phase3", [3], "Generate the GPU recipes for ARM.")
phase4 = _phases("phase4", [4], "Generate the CPU-only recipes.")
phase5 = _phases("phase5", [5], "Update docs, counts and the schema.")
all_ = _phases("all", [1, 2, 3, 4, 5], "Run all phases, then verify.")


def run(
    numbers: Sequence[int],
    *,
    dry_run: bool = False,
    check: bool = False,
    force: bool = False,
    verbose: bool = False,
    verify: bool = False,
    moved: tuple[Matrix, Matrix] | None = None,
) -> int:
    """Plan, apply and print phases; `verify`: check the result.

    `moved` are the matrix of the disk and one that takes its place, unless a file is refused or the
    planned recipes do not pass verification.
    Returns the exit code. Raises BuildPytorchError for what stops a run altogether.
    """
    from build_pytorch.base import file_plan
    from build_pytorch.base.file_plan import Action
    from build_pytorch.generate.phase_plan import plan
    from build_pytorch.generate.text_plan import Tree
    from build_pytorch.matrix import matrix_text
    from build_pytorch.matrix.model import Phase
    from build_pytorch.verify import reports, verification

    old, matrix = moved or (load(),) * 2
    root = matrix.root
    tree = Tree(root, force=force)
    phases = [phase for phase in Phase if phase.number in numbers]
    pages = reference_pages() if Phase.DOCS in phases else {}
    changes = [change for phase in phases for change in plan(phase, matrix, tree, pages)]
    if moved:
        changes.insert(0, matrix_text.change(old.text, matrix.text))
    refused = [change for change in changes if change.action is Action.REFUSED]
    result = _verified(matrix, changes) if moved and not refused else None
    is_failed = bool(refused) if result is None else result.exit_code != EXIT_OK
    is_read_only = dry_run or check or bool(moved and is_failed)
    has_changes = any(change.action.writes for change in changes)
    if not is_read_only:
        file_plan.apply(root, changes)  # before it is reported: it may fail
    is_pending = is_read_only and has_changes
    code = EXIT_FINDINGS if refused or (is_pending and check) else EXIT_OK
    screen = Screen(sys.stdout)
    for change in refused[: None if verbose else _MOST_DIFFS]:
        screen.diff(change.diff())
    suffix = " (nothing written)" if is_read_only else ""
    file_plan.print_plan(screen, changes, verbose=verbose, suffix=suffix)
    if verify and is_pending and result is None:
        screen.line("Verification not run: the files above are not written yet.")
    elif verify:
        result = result or verification.verify(matrix, root, pages=pages)
        reports.show(result, screen, verbose=verbose)
        code = max(code, result.exit_code)
    return code


def _verified(matrix: Matrix, changes: Sequence[Change]) -> VerificationResult:
    """Verify planned recipes, in a temporary folder with the Nix files that they import.

    Checks of generated texts are left out: they compare with what is planned.
    """
    from build_pytorch.base import files, paths
    from build_pytorch.verify import check, verification

    function, root = paths.COMPANION_FUNCTION, matrix.root
    contents: dict[str, bytes | None] = {function: files.read_named(paths.in_use(root, function))}
    copies = {v.packages_from.folder for v in matrix.variants if v.packages_from} - {None}
    for path in [path for folder in copies for path in files.walk_below(root, str(folder))]:
        contents[path] = files.read_below(root, path)
    contents |= {it.path: it.new if it.action.writes else it.old for it in changes}
    only = [name for name in check.load().category if name != "generated"]
    with tempfile.TemporaryDirectory() as folder:
        files.write_all(Path(folder), contents)
        return verification.verify(matrix, Path(folder), only=only)


def reference_pages() -> dict[str, str]:
    """Return the text of each reference page by its path below the root."""
    from build_pytorch.base import paths
    from build_pytorch.generate.recipes import render_file
    from build_pytorch.verify import check

    commands = []
    for _, task in sorted(TASKS.items()):
        arguments = task.get_arguments(ignore_unknown_help=True)
        names = [task.name, *(it.names[0].upper() for it in arguments if it.positional)]
        options = [f"--{it.names[0]}" for it in arguments if not it.positional]
        summary = " ".join((task.__doc__ or "").partition("\n\n")[0].split())
        commands.append({"usage": " ".join(names), "summary": summary, "options": options})
    page = render_file(paths.SHIPPED, "docs/commands.md.j2", commands=commands)
    return {
        "docs/reference/checks.md": check.reference_page(),
        "docs/reference/commands.md": page,
    }
