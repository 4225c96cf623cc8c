"""A changed matrix with all its files: plan, verify, show, then write all or nothing."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.version import Version

from build_pytorch.base import digest, file_plan, files, paths
from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text, print_plan
from build_pytorch.cli.commands import AddOptions, BumpOptions
from build_pytorch.generate import docs, rendering
from build_pytorch.generate.phase_plan import plan_recipe
from build_pytorch.generate.recipes import nixpkgs_imports
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.sources import move_checks, official_source
from build_pytorch.sources.fetchers import new_values
from build_pytorch.sources.github import FLOX_BRANCHES, FLOX_NIXPKGS, GitHub
from build_pytorch.sources.matrix_additions import Draft
from build_pytorch.sources.new_versions import NewVersions, new_versions
from build_pytorch.sources.release_move import ReleaseMove
from build_pytorch.verify import registry, reports, verification
from build_pytorch.verify.checks import source_texts
from build_pytorch.verify.verification import VerificationResult


def plan_files(old: Matrix, new: Matrix) -> list[Change]:
    """Plan the matrix, recipes and docs; files that get another name are deleted."""
    tree = Tree(old.root)
    texts = rendering.texts(new)
    changes = [matrix_editor.change(old.root / paths.MATRIX, old.text, new.text)]
    changes += [plan_recipe(new, tree, each, texts[each.path]) for each in new.packages]
    imports = nixpkgs_imports(new, texts)
    changes += [plan_text(tree, path, texts[path]) for path in imports]
    kept = {*imports, *(package.path for package in new.packages)}
    former = [package.path for package in old.packages]
    former += nixpkgs_imports(old, rendering.texts(old))
    for path in dict.fromkeys(former):
        if path not in kept and (data := tree.read(path)) is not None:
            is_ours = digest.is_intact(data.decode("utf-8", errors="replace"))
            action = Action.DELETE if is_ours else Action.REFUSED
            reason = "has another name now" if is_ours else "edited by hand, and has another name"
            changes.append(Change(path=path, action=action, reason=reason, old=data))
    return [*changes, *docs.plan(new, texts, tree)]


def verify_planned(
    matrix: Matrix,
    planned: Iterable[Change],
    variants: Sequence[Variant] | None = None,
    only: Sequence[str] = (),
) -> VerificationResult:
    """Check the planned recipes in a temporary folder, by all categories but `generated`.

    `variants` and `only` limit the recipes and the categories.
    """
    with tempfile.TemporaryDirectory() as folder:
        for change in planned:
            data = change.new if change.action.writes else change.old
            if data is not None and change.path.endswith(".nix"):
                path = Path(folder) / change.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        function = paths.in_use(matrix.root, paths.COMPANION_FUNCTION)
        (Path(folder) / paths.COMPANION_FUNCTION).parent.mkdir(exist_ok=True)
        (Path(folder) / paths.COMPANION_FUNCTION).write_bytes(files.read_named(function))
        only = only or [name for name in registry.CATEGORIES if name != "generated"]
        root = Path(folder)
        return verification.verify(matrix, root, variants=variants, only=only)


def wanted_versions(matrix: Matrix, options: BumpOptions | AddOptions) -> NewVersions:
    """Return the versions that options name; a branch of Flox stands for its newest revision.

    Raises BuildPytorchError for a malformed one and for a PyTorch that is not final, without --pre.
    """
    nixpkgs = options.nixpkgs
    if nixpkgs in FLOX_BRANCHES and nixpkgs not in matrix.pins:
        nixpkgs, _ = GitHub().head(*FLOX_NIXPKGS, nixpkgs)
    wanted = new_versions(
        torch=options.torch,
        nixpkgs=nixpkgs,
        cuda=options.cuda,
        python=options.python,
        without=options.without,
    )
    if wanted.torch and Version(wanted.torch).is_prerelease and not options.pre:
        raise BuildPytorchError(f"v{wanted.torch} is a pre-release; --pre accepts it")
    return wanted


def change_release(
    old: Matrix, name: str, wanted: NewVersions, beside: str, options: BumpOptions | AddOptions
) -> int:
    """Move a release to other versions, or make one `beside` it that has them.

    Checks, edits, fetches, renders and verifies in memory; then writes everything at once. Returns
    the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    screen, draft = Screen(sys.stdout), Draft(old)
    move = ReleaseMove(old, name, wanted, beside=beside)
    move = move_checks.asked_move(move, options.assume, options.timeout)
    if beside:
        draft.add_release(move)
    text, todo, changed = draft.text, draft.todo, beside
    if not beside:
        text, todo, changed = move.over(), move.todo, name
    moved = matrix_reader.parse(text, root=old.root)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {wanted.words}")
        return EXIT_OK
    release = moved.releases[changed]
    notes = list(move_checks.check_upstream(release, wanted, pre=options.pre))
    for reason in move.reasons():
        screen.fold("", reason, indent=2)
    own = [v for v in moved.of_release(changed) if not v.source.is_of_pin]
    notes += official_source.read_missing(moved, own)
    fetched = []
    for item in move_checks.fetch_changed(old, moved, changed, options.timeout):
        if isinstance(item, str):
            notes.append(item)
            continue
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    text = matrix_editor.edited(text, new_values(fetched))
    new = matrix_reader.parse(text, root=old.root)
    todo = [*notes, *todo, "build one variant before the others"]
    recipes = [rendering.texts(new)[variant.path] for variant in own]
    replaced = source_texts.replaced(new, release, recipes) if own else ()
    if unseen := dict.fromkeys(t.file for t in replaced if not source_texts.shown_by(t)):
        todo.append(f"no wheel shows the texts to replace in {', '.join(unseen)}")
    return carry_out(old, new, plan_files(old, new), todo, dry_run=options.dry_run)


def carry_out(
    old: Matrix, new: Matrix, planned: list[Change], todo: Iterable[str], *, dry_run: bool
) -> int:
    """Print the diff and the plan, verify the recipes, write them, print what is left to do.

    Returns the exit code: 1, with nothing written, if a file is edited by hand or a recipe does not
    pass verification. Raises WriteError.
    """
    screen = Screen(sys.stdout)
    screen.diff(matrix_editor.change(old.root / paths.MATRIX, old.text, new.text).diff())
    print_plan(screen, "Files", planned)
    if refused := [change for change in planned if change.action is Action.REFUSED]:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    result = verify_planned(new, planned)
    if result.exit_code != EXIT_OK:
        reports.show(result, screen)
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    screen.line(f"Verification: {result.summary}")
    if not dry_run:
        file_plan.apply(old.root, planned)
    screen.line("Dry run: nothing was written." if dry_run else "Written.")
    screen.line("Still to be checked by a person:")
    for note in dict.fromkeys(todo):
        screen.fold("  - ", note, indent=4)
    return EXIT_OK
