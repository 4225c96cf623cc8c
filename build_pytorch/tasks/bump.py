"""`invoke bump`: move a release to another PyTorch, nixpkgs, CUDA or Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.sources.github import NightlyCommit


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
) -> int:
    """Move a release to another PyTorch, nixpkgs or CUDA."""
    from build_pytorch.base import file_plan
    from build_pytorch.base.console import Screen, counted
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
    from build_pytorch.base.file_plan import Action
    from build_pytorch.matrix import matrix_reader, matrix_text
    from build_pytorch.matrix.selection import only_release
    from build_pytorch.sources import fetchers, github, planned_change
    from build_pytorch.sources.release_move import Move, left_to_do, moved
    from build_pytorch.verify import reports

    if not (torch or nixpkgs or cuda or python or nightly):
        words = "--torch VERSION, --nixpkgs REV, --cuda VERSION, --python VERSION or --nightly"
        raise BuildPytorchError(f"nothing to do; give {words}")
    old, screen = load(), Screen(sys.stdout)
    nightlies = [key for key, it in old.releases.items() if it.torch.is_nightly]
    name = only_release(old, release, nightlies if nightly else list(old.releases))
    if torch and name in nightlies:
        what = f"--torch: release {name} builds a commit of a moving branch"
        fix = "--nightly moves it; for a version, name another release with --release"
        raise BuildPytorchError(f"{what}; {fix}")
    if nixpkgs in github.FLOX_BRANCHES and nixpkgs not in old.pins:
        nixpkgs = github.head("flox/nixpkgs", nixpkgs).sha
    commit = _commit(old, name, nightly) if nightly else None
    versions = {"torch": torch, "nixpkgs": nixpkgs, "cuda": cuda, "python": python}
    move = Move(matrix=old, name=name, beside=as_, commit=commit, **versions)
    after = moved(move)
    if not after.by_reason:
        screen.line(f"nothing to do: release.{name} has these versions")
        return EXIT_OK
    for reason, values in after.by_reason.items():
        tables = dict.fromkeys(".".join(map(str, trail[:-1])) for trail in values)
        screen.fold("", f"{reason}: {', '.join(tables)}", indent=2)
    fetched = fetchers.fetch_moved(old, after.matrix, as_ or name)
    text = matrix_text.with_values(after.matrix.text, fetchers.hash_values(fetched))
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
    first = next((v.id for v in new.of_release(as_ or name) if not v.impossible), "")
    build = f"build one variant before the others: `git add -A`, `invoke build {first}`"
    for note in (*left_to_do(move, after), build):
        screen.fold("  - ", note, indent=4)
    return EXIT_OK


def _commit(matrix: Matrix, name: str, nightly: str | bool) -> NightlyCommit:
    """Return the commit that --nightly names. Raises BuildPytorchError for another release."""
    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.sources import github

    torch = matrix.releases[name].torch
    if not torch.is_nightly:
        nightlies = [key for key, it in matrix.releases.items() if it.torch.is_nightly]
        what = f"release {name} builds version {torch.version}"
        raise BuildPytorchError(f"--nightly: {what}; nightlies: {', '.join(nightlies)}")
    return github.nightly_commit(torch, "" if nightly is True else str(nightly))
