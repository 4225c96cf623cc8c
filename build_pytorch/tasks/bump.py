"""`invoke bump`: move a release to another PyTorch, nixpkgs, CUDA or Python."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.base.file_plan import Change
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.sources.release_move import NewVersions

_MINUTES = 60  #: maximum for one download


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
    pre: bool = False,
    assume: str = "",
) -> int:
    """Move a release to another PyTorch, nixpkgs or CUDA."""
    from build_pytorch.base.console import Screen
    from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
    from build_pytorch.base.versions import NEWEST
    from build_pytorch.matrix import matrix_editor, matrix_reader
    from build_pytorch.matrix.selection import only_release
    from build_pytorch.sources import move_checks
    from build_pytorch.sources import nightly as commits
    from build_pytorch.sources.fetchers import new_values
    from build_pytorch.sources.planned_change import plan_files
    from build_pytorch.sources.release_move import NewVersions, ReleaseMove

    old, screen = load(), Screen(sys.stdout)
    versions = {"torch": torch, "nixpkgs": nixpkgs, "cuda": cuda, "python": python}
    if nightly:
        if given := next((name for name, it in {**versions, "as": as_}.items() if it), ""):
            raise BuildPytorchError(f"--nightly: moves the source alone; leave --{given} out")
        word = commits.checked(NEWEST if nightly is True else str(nightly))
        name = commits.chosen_release(old, release)
        wanted = NewVersions(commit=commits.known_commit(old.releases[name].torch, word))
    else:
        wanted = _wanted(old, versions, pre=pre)
        name = only_release(old, release, list(old.releases))
        if wanted.torch and old.releases[name].torch.is_nightly:
            what = f"--torch: release {name} builds a commit of a moving branch"
            fix = "--nightly moves it; for a version, name another release with --release"
            raise BuildPytorchError(f"{what}; {fix}")
    move = ReleaseMove(old, name, wanted, beside=as_)
    move = move_checks.asked_move(move, assume, _MINUTES)
    text, changed = move.text(), as_ or name
    moved = matrix_reader.parse(text, root=old.root)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {wanted.words}")
        return EXIT_OK
    todo = list(move_checks.check_upstream(moved.releases[changed], wanted, pre=pre))
    for reason in move.reasons():
        screen.fold("", reason, indent=2)
    fetched = []
    for item in move_checks.fetch_changed(old, moved, changed, _MINUTES):
        if isinstance(item, str):
            todo.append(item)
            continue
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    new = matrix_reader.parse(matrix_editor.edited(text, new_values(fetched)), root=old.root)
    todo += move.todo
    todo += [f"write the purpose of release.{as_}: whom it is for"] if as_ else []
    return _carry_out(screen, old, new, plan_files(old, new), todo, dry_run=dry_run)


def _wanted(matrix: Matrix, versions: dict[str, str], *, pre: bool) -> NewVersions:
    """Return the versions that options name; a branch of Flox stands for its newest revision.

    Raises BuildPytorchError for none, a malformed one, and a pre-release without --pre.
    """
    from packaging.version import Version

    from build_pytorch.base.errors import BuildPytorchError
    from build_pytorch.sources.github import FLOX_BRANCHES, FLOX_NIXPKGS, GitHub
    from build_pytorch.sources.release_move import new_versions

    if not any(versions.values()):
        words = "--torch VERSION, --nixpkgs REV, --cuda VERSION or --python VERSION"
        raise BuildPytorchError(f"nothing to do; give {words}")
    if (branch := versions["nixpkgs"]) in FLOX_BRANCHES and branch not in matrix.pins:
        versions["nixpkgs"], _ = GitHub().head(*FLOX_NIXPKGS, branch)
    wanted = new_versions(**versions)
    if wanted.torch and Version(wanted.torch).is_prerelease and not pre:
        raise BuildPytorchError(f"v{wanted.torch} is a pre-release; --pre accepts it")
    return wanted


def _carry_out(
    screen: Screen,
    old: Matrix,
    new: Matrix,
    planned: list[Change],
    todo: Iterable[str],
    *,
    dry_run: bool,
) -> int:
    """Print the plan, verify the recipes, write them, print what is left to do.

    Returns the exit code: 1, with nothing written, if a file is edited by hand or a recipe does not
    pass verification. Raises WriteError.
    """
    from build_pytorch.base import file_plan
    from build_pytorch.base.console import counted
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, ToolError
    from build_pytorch.base.file_plan import Action
    from build_pytorch.nix import evaluation
    from build_pytorch.sources.planned_change import next_steps, rebuilds_of, verify_planned
    from build_pytorch.tasks.rebuild_report import print_rebuilds
    from build_pytorch.verify import reports

    if dry_run:
        screen.diff(planned[0].diff(0))
    file_plan.print_plan(screen, planned)
    if refused := [change for change in planned if change.action is Action.REFUSED]:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    result = verify_planned(new, planned)
    if result.exit_code != EXIT_OK or result.severities["warning"]:
        reports.show(result, screen)
    else:
        screen.fold("", result.summary, indent=2)
    if result.exit_code != EXIT_OK:
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    if dry_run and evaluation.is_installed():
        try:
            print_rebuilds(rebuilds_of(old, new, planned), screen)
        except ToolError as error:
            screen.fold("", f"what is rebuilt is not known: {error}", "yellow")
    if not dry_run:
        file_plan.apply(old.root, planned)
    screen.line("Dry run: nothing was written." if dry_run else "Written; `git diff` shows it.")
    for note in dict.fromkeys([*todo, *next_steps(new, planned)]):
        screen.fold("  - ", note, indent=4)
    return EXIT_OK
