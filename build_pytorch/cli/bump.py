"""`invoke bump`: move a release to another PyTorch, nixpkgs, CUDA or Python."""

from __future__ import annotations

import sys

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import BumpOptions
from build_pytorch.cli.matrix_change import carry_out, plan_files
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import only_release
from build_pytorch.sources import move_checks, nightly, official_source
from build_pytorch.sources.fetchers import new_values
from build_pytorch.sources.github import FLOX_BRANCHES, FLOX_NIXPKGS, GitHub
from build_pytorch.sources.matrix_additions import Draft
from build_pytorch.sources.release_move import NewVersions, ReleaseMove, new_name, new_versions


def run(options: BumpOptions) -> int:
    """Check, edit, fetch, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    old = matrix_reader.load(options.root)
    name, wanted = (_commit_wanted if options.nightly else _versions_wanted)(options, old)
    screen, draft = Screen(sys.stdout), Draft(old)
    beside = new_name(options.as_) if options.as_ else ""
    move = ReleaseMove(old, name, wanted, beside=beside)
    move = move_checks.asked_move(move, options.assume, options.timeout)
    if options.as_:
        draft.add_release(move)
        text, todo, name = draft.text, draft.todo, options.as_
    else:
        text, todo = move.over(), move.todo
    moved = matrix_reader.parse(text, root=options.root)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {wanted.words}")
        return EXIT_OK
    notes = list(move_checks.check_upstream(moved.releases[name], wanted, pre=options.pre))
    for reason in move.reasons():
        screen.fold("", reason, indent=2)
    own = [v for v in moved.variants if v.release_name == name and not v.source.is_of_pin]
    notes += official_source.read_missing(moved, own)
    fetched = []
    for item in move_checks.fetch_changed(old, moved, name, options.timeout):
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    text = matrix_editor.edited(text, new_values(fetched))
    new = matrix_reader.parse(text, root=options.root)
    planned = plan_files(old, new)
    return carry_out(old, new, planned, [*notes, *todo], dry_run=options.dry_run)


def _versions_wanted(options: BumpOptions, old: Matrix) -> tuple[str, NewVersions]:
    """Return the release and the versions to move it to. Raises BuildPytorchError."""
    nixpkgs = options.nixpkgs
    if nixpkgs in FLOX_BRANCHES and nixpkgs not in old.pins:
        nixpkgs, _ = GitHub().head(*FLOX_NIXPKGS, nixpkgs)
    wanted = new_versions(
        torch=options.torch,
        nixpkgs=nixpkgs,
        cuda=options.cuda,
        python=options.python,
        without=options.without,
    )
    if not wanted.words:
        versions = "--torch VERSION, --nixpkgs REV, --cuda VERSION or --python VERSION"
        raise BuildPytorchError(f"nothing to do; give {versions}")
    name = only_release(old, options.release, list(old.releases))
    if wanted.torch and old.releases[name].torch.is_nightly:
        what = f"--torch: release {name} builds a commit of a moving branch"
        fix = "--nightly moves it; for a version, name another release with --release"
        raise BuildPytorchError(f"{what}; {fix}")
    if not options.pre:
        move_checks.refuse_pre_release(wanted)
    return name, wanted


def _commit_wanted(options: BumpOptions, old: Matrix) -> tuple[str, NewVersions]:
    """Return the nightly and its new commit. Asks GitHub. Raises BuildPytorchError."""
    for other in ("torch", "nixpkgs", "cuda", "python", "without", "as_"):
        if getattr(options, other):
            shown = other.removesuffix("_")
            raise BuildPytorchError(f"--nightly: moves the source alone; leave --{shown} out")
    word = nightly.checked(options.nightly)
    name = nightly.chosen_release(old, options.release)
    return name, NewVersions(commit=nightly.known_commit(old.releases[name].torch, word))
