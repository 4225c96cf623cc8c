"""`invoke bump`: move a release to another PyTorch, nixpkgs, CUDA or Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.sources.release_move import Move


@command(optional=("nightly",), texts={"release": "the release, if matrix.toml has several"})
def bump(
    c: Context,
    release: str = "",
    torch: str = "",
    nixpkgs: str = "",
    cuda: str = "",
    python: str = "",
    nightly: str | bool = "",
    as_: str = "",
    dry_run: bool = False,
    assume: str = "",
) -> int:
    """Move a release to another PyTorch, nixpkgs or CUDA."""
    from build_pytorch.base import file_plan
    from build_pytorch.base.console import Screen, counted
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
    from build_pytorch.base.file_plan import Action
    from build_pytorch.matrix import matrix_editor, matrix_reader
    from build_pytorch.sources import planned_change
    from build_pytorch.sources.fetchers import fetch_moved, hash_values
    from build_pytorch.sources.release_move import left_to_do, moved_matrix, moved_values, pin_of
    from build_pytorch.verify import reports

    old, screen = load(), Screen(sys.stdout)
    versions = {"torch": torch, "nixpkgs": nixpkgs, "cuda": cuda, "python": python}
    move = _move(old, release, versions, nightly, as_)
    key, pin = pin_of(move, assume)
    by_reason = moved_values(move, key, pin)
    moved = moved_matrix(move, by_reason, key, pin)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{move.name} has these versions")
        return EXIT_OK
    for reason, values in by_reason.items():
        tables = dict.fromkeys(".".join(map(str, trail[:-1])) for trail in values)
        screen.fold("", f"{reason}: {', '.join(tables)}", indent=2)
    changed = as_ or move.name
    fetched, todo = fetch_moved(old, moved, changed)
    text = matrix_editor.with_values(moved.text, hash_values(fetched))
    new = matrix_reader.parse(text, root=old.root)
    planned = planned_change.plan_files(old, new)
    screen.diff(planned[0].diff())
    file_plan.print_plan(screen, planned)
    if refused := [change for change in planned if change.action is Action.REFUSED]:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    result = planned_change.verify_planned(new, planned)
    reports.show(result, screen)
    if result.exit_code != EXIT_OK:
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    if not dry_run:
        file_plan.apply(old.root, planned)
    screen.line("Dry run: nothing was written." if dry_run else "Written; `git diff` shows it.")
    todo += left_to_do(move.old, new.releases[changed], pin)
    todo += [f"write the purpose of release.{as_}: whom it is for"] if as_ else []
    first = next((v.id for v in new.of_release(changed) if not v.impossible), "")
    todo.append(f"build one variant before the others: `git add -A`, `invoke build {first}`")
    for note in todo:
        screen.fold("  - ", note, indent=4)
    return EXIT_OK


def _move(
    matrix: Matrix, release: str, versions: dict[str, str], nightly: str | bool, beside: str
) -> Move:
    """Return the move that the options describe. Raises BuildPytorchError for what cannot be."""
    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.base.versions import NEWEST
    from build_pytorch.matrix.selection import only_release
    from build_pytorch.sources import github
    from build_pytorch.sources.release_move import Move

    if not (nightly or any(versions.values())):
        words = "--torch VERSION, --nixpkgs REV, --cuda VERSION, --python VERSION or --nightly"
        raise BuildPytorchError(f"nothing to do; give {words}")
    nightlies = [name for name, it in matrix.releases.items() if it.torch.is_nightly]
    name = only_release(matrix, release, nightlies if nightly else list(matrix.releases))
    if versions["torch"] and name in nightlies:
        what = f"--torch: release {name} builds a commit of a moving branch"
        fix = "--nightly moves it; for a version, name another release with --release"
        raise BuildPytorchError(f"{what}; {fix}")
    if nightly and name not in nightlies:
        what = f"release {name} builds version {matrix.releases[name].torch.version}"
        raise BuildPytorchError(f"--nightly: {what}; nightlies: {', '.join(nightlies)}")
    if (branch := versions["nixpkgs"]) in github.FLOX_BRANCHES and branch not in matrix.pins:
        versions["nixpkgs"] = github.head("flox/nixpkgs", branch).sha
    commit = None
    if nightly:
        word = NEWEST if nightly is True else str(nightly)
        commit = github.nightly_commit(matrix.releases[name].torch, word)
    return Move(matrix=matrix, name=name, beside=beside, commit=commit, **versions)
