"""`invoke bump`: move a release to another PyTorch, nixpkgs or CUDA."""

from __future__ import annotations

import sys

from build_pytorch.base import paths
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import BumpOptions
from build_pytorch.cli.matrix_change import carry_out
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.matrix_additions import Draft
from build_pytorch.matrix.release_addition import ReleaseWish
from build_pytorch.sources import release_bump
from build_pytorch.sources.fetchers import new_values


def run(options: BumpOptions) -> int:
    """Check, edit, fetch, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    versions = {
        "torch": options.torch,
        "nixpkgs": options.nixpkgs,
        "cuda": options.cuda,
        "python": options.python,
    }
    wanted = [f"{name} {version}" for name, version in versions.items() if version]
    target = release_bump.target_of(**versions)
    screen = Screen(sys.stdout)
    path = options.root / paths.MATRIX.name
    old = matrix_reader.load(path)
    name = release_bump.chosen_release(old, options.release)
    more: list[str] = []
    if options.as_:
        draft = Draft(old)
        draft.add_release(release_bump.new_name(options.as_), name, ReleaseWish(**versions))
        text, more, name = draft.text, draft.todo, options.as_
    else:
        text = matrix_editor.edited(old.text, dict(release_bump.values(old, name, target)))
    moved = matrix_reader.parse(text)
    release = moved.releases[name]
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {' and '.join(wanted)}")
        return EXIT_OK
    notes = list(release_bump.check_upstream(release, target, pre=options.pre))
    fetched = []
    for item in release_bump.fetch_changed(old, moved, name, options.timeout):
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    new = matrix_reader.parse(matrix_editor.edited(text, new_values(fetched)))
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
    planned = release_bump.plan(old, new, options.root, name)
    todo = [*notes, *more, *release_bump.remaining_work(new.releases[name], target)]
    return carry_out(screen, options.root, old, new, planned, dry_run=options.dry_run, todo=todo)
