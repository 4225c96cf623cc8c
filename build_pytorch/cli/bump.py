"""`invoke bump`: move a release to another PyTorch, nixpkgs or CUDA."""

from __future__ import annotations

import sys

from build_pytorch.base import file_plan, paths
from build_pytorch.base.console import Screen, counted, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, print_plan
from build_pytorch.cli.commands import BumpOptions
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.sources import release_bump
from build_pytorch.sources.fetchers import new_values
from build_pytorch.verify import reports


def run(options: BumpOptions) -> int:
    """Check, edit, fetch, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    versions = {"torch": options.torch, "nixpkgs": options.nixpkgs, "cuda": options.cuda}
    wanted = [f"{name} {version}" for name, version in versions.items() if version]
    target = release_bump.target_of(**versions)
    screen = Screen(sys.stdout)
    path = options.root / paths.MATRIX.name
    old = matrix_reader.load(path)
    name = release_bump.chosen_release(old, options.release)
    release = old.releases[name]
    text = matrix_editor.edited(old.text, dict(release_bump.values(old, name, target)))
    moved = matrix_reader.parse(text)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {' and '.join(wanted)}")
        return EXIT_OK
    notes = list(release_bump.check_upstream(release, target, pre=options.pre))
    fetched = []
    for item in release_bump.fetch_changed(old, moved, name, options.timeout):
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    new = matrix_reader.parse(matrix_editor.edited(text, new_values(fetched)))
    if (target.nixpkgs or target.cuda) and (
        wrong := list(release_bump.pin_contradictions(new, name, options.timeout))
    ):
        for line in wrong:
            screen.line(visible(line))
        screen.line("The versions of names and builds would differ, or may: nothing was written.")
        return EXIT_FINDINGS
    planned = release_bump.plan(old, new, name, options.root)
    screen.diff(matrix_editor.change(path, old.text, new.text).diff())
    print_plan(screen, "Files", planned)
    if refused := [change for change in planned if change.action is Action.REFUSED]:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    result = release_bump.verified(new, planned)
    if result.exit_code != EXIT_OK:
        reports.show(result, screen)
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    screen.line(f"Verification: {result.summary}")
    if not options.dry_run:
        file_plan.apply(options.root, planned)
    screen.line("Dry run: nothing was written." if options.dry_run else "Written.")
    screen.line("Still to be checked by a person:")
    for note in [*notes, *release_bump.remaining_work(release, target)]:
        screen.line(f"  - {note}")
    return EXIT_OK
