"""`invoke bump`: move a release to another PyTorch, nixpkgs or CUDA."""

from __future__ import annotations

import sys

from msgspec import Struct

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import BumpOptions
from build_pytorch.cli.matrix_change import carry_out
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.matrix_additions import Draft
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.release_addition import ReleaseWish
from build_pytorch.matrix.selection import only_release
from build_pytorch.sources import bump_values, changed_matrix, nightly, release_bump
from build_pytorch.sources.bump_values import BumpTarget
from build_pytorch.sources.fetchers import new_values


class BumpDraft(Struct, frozen=True, kw_only=True):
    """A release that is moved or made, in the text of a matrix."""

    name: str
    text: str
    target: BumpTarget
    wanted: str
    """The versions that were asked for, in words."""
    todo: tuple[str, ...] = ()


def run(options: BumpOptions) -> int:
    """Check, edit, fetch, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    old = matrix_reader.load(options.root)
    draft = (_to_commit if options.nightly else _to_versions)(options, old)
    screen, name, target = Screen(sys.stdout), draft.name, draft.target
    moved = matrix_reader.parse(draft.text, root=options.root)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {draft.wanted}")
        return EXIT_OK
    notes: list[str] = []
    if not options.nightly:
        notes += release_bump.check_upstream(moved.releases[name], target, pre=options.pre)
    fetched = []
    for item in release_bump.fetch_changed(old, moved, name, options.timeout):
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    new = matrix_reader.parse(
        matrix_editor.edited(draft.text, new_values(fetched)), root=options.root
    )
    # What a pin contains is known, unless the pin or its CUDA is new.
    is_known = bool(options.as_) and not release_bump.is_assumed(old, new, name)
    if (
        (target.nixpkgs or target.cuda or target.python)
        and not is_known
        and (wrong := list(release_bump.pin_contradictions(new, name, options.timeout)))
    ):
        for line in wrong:
            screen.line(line)
        screen.line("The versions of names and builds would differ, or may: nothing was written.")
        return EXIT_FINDINGS
    planned = changed_matrix.plan(old, new, options.root, name)
    todo = [*notes, *draft.todo, *release_bump.remaining_work(new.releases[name], target)]
    return carry_out(screen, options.root, old, new, planned, dry_run=options.dry_run, todo=todo)


def _to_versions(options: BumpOptions, old: Matrix) -> BumpDraft:
    """Return a release with other versions. Raises BuildPytorchError."""
    versions = {
        "torch": options.torch,
        "nixpkgs": options.nixpkgs,
        "cuda": options.cuda,
        "python": options.python,
    }
    wanted = " and ".join(f"{name} {version}" for name, version in versions.items() if version)
    target = bump_values.target_of(**versions)
    name = only_release(old, options.release, list(old.releases))
    if target.torch and old.releases[name].torch.is_nightly:
        what = f"--torch: release {name} builds a commit of a moving branch"
        fix = "--nightly moves it; for a version, name another release with --release"
        raise BuildPytorchError(f"{what}; {fix}")
    if not options.pre:
        release_bump.refuse_pre_release(target)
    if not options.as_:
        text = matrix_editor.edited(old.text, dict(bump_values.values(old, name, target)))
        return BumpDraft(name=name, text=text, target=target, wanted=wanted)
    draft = Draft(old)
    draft.add_release(bump_values.new_name(options.as_), name, ReleaseWish(**versions))
    return BumpDraft(
        name=options.as_, text=draft.text, target=target, wanted=wanted, todo=tuple(draft.todo)
    )


def _to_commit(options: BumpOptions, old: Matrix) -> BumpDraft:
    """Return a nightly at another commit, which GitHub is asked for. Raises BuildPytorchError."""
    for other in ("torch", "nixpkgs", "cuda", "python", "as_"):
        if getattr(options, other):
            shown = other.removesuffix("_")
            raise BuildPytorchError(f"--nightly: moves the source alone; leave --{shown} out")
    word = nightly.checked(options.nightly)
    name = nightly.chosen_release(old, options.release)
    release = old.releases[name]
    commit = nightly.known_commit(release.torch, word)
    target = BumpTarget(torch=commit.version)
    changes = dict(nightly.values(name, release, commit))
    changes |= bump_values.following_values(name, release, target)
    text = matrix_editor.edited(old.text, changes)
    return BumpDraft(name=name, text=text, target=target, wanted=f"{commit.version} {commit.rev}")
