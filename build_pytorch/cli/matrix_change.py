"""A changed matrix with all its files: plan, verify, show, then write all or nothing."""

from __future__ import annotations

import contextlib
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from packaging.version import Version

from build_pytorch.base import digest, file_plan, files, paths
from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError, ToolError
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text, print_plan
from build_pytorch.cli.commands import BumpOptions
from build_pytorch.cli.rebuild_report import print_rebuilds
from build_pytorch.generate import docs, recipes
from build_pytorch.generate.phase_plan import plan_recipe, shared_files
from build_pytorch.generate.recipes import nixpkgs_imports
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix import nix_evaluation
from build_pytorch.sources import move_checks
from build_pytorch.sources.fetchers import new_values
from build_pytorch.sources.github import FLOX_BRANCHES, FLOX_NIXPKGS, GitHub
from build_pytorch.sources.release_move import NewVersions, ReleaseMove, new_versions
from build_pytorch.verify import rebuilds, registry, reports, verification
from build_pytorch.verify.verification import VerificationResult


def _plan_files(old: Matrix, new: Matrix) -> list[Change]:
    """Plan the matrix, recipes and docs; files that get another name are deleted."""
    tree = Tree(old.root)
    texts = recipes.render(new)
    changes = [matrix_editor.change(old.root / paths.MATRIX, old.text, new.text)]
    changes += [plan_recipe(new, tree, each, texts[each.path]) for each in new.packages]
    # The first companion of a project imports a function that other recipes do not.
    changes += [it for it in shared_files(new, tree) if it.action is Action.CREATE]
    imports = nixpkgs_imports(new, texts)
    changes += [plan_text(tree, path, texts[path]) for path in imports]
    kept = {*imports, *(package.path for package in new.packages)}
    ids = {package.id for package in new.packages}
    former = {package.path: package.id for package in old.packages}
    former |= dict.fromkeys(nixpkgs_imports(old, recipes.render(old)), "")
    for path, name in former.items():
        if path not in kept and (data := tree.read(path)) is not None:
            is_ours = digest.is_intact(data.decode("utf-8", errors="replace"))
            action = Action.DELETE if is_ours else Action.REFUSED
            reason = "has another name now" if name in ids else "no longer in matrix.toml"
            reason = reason if is_ours else f"edited by hand, and {reason.removesuffix(' now')}"
            changes.append(Change(path=path, action=action, reason=reason, old=data))
    return [*changes, *docs.plan(new, tree)]


def _verify_planned(matrix: Matrix, planned: Iterable[Change]) -> VerificationResult:
    """Check the planned recipes in a temporary folder, by all categories but `generated`."""
    only = [name for name in registry.CATEGORIES if name != "generated"]
    with _tree(matrix, planned) as root:
        return verification.verify(matrix, root, only=only)


@contextlib.contextmanager
def _tree(matrix: Matrix, planned: Iterable[Change]) -> Iterator[Path]:
    """Yield a temporary folder with the planned recipes and what they import."""
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
        yield Path(folder)


def wanted_versions(matrix: Matrix, options: BumpOptions) -> NewVersions:
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


def change_release(old: Matrix, name: str, wanted: NewVersions, options: BumpOptions) -> int:
    """Move a release to other versions, or make one beside it that has them.

    Checks, edits, fetches, renders and verifies in memory; then writes everything at once. Returns
    the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    screen = Screen(sys.stdout)
    beside = options.as_
    move = ReleaseMove(old, name, wanted, beside=beside)
    move = move_checks.asked_move(move, options.assume, options.timeout)
    text, todo, changed = move.text(), move.todo, name
    if beside:
        changed, todo = beside, [*todo, f"write the purpose of release.{beside}: whom it is for"]
    moved = matrix_reader.parse(text, root=old.root)
    if (moved.releases, moved.pins) == (old.releases, old.pins):
        screen.line(f"nothing to do: release.{name} has {wanted.words}")
        return EXIT_OK
    release = moved.releases[changed]
    notes = list(move_checks.check_upstream(release, wanted, pre=options.pre))
    for reason in move.reasons():
        screen.fold("", reason, indent=2)
    fetched = []
    for item in move_checks.fetch_changed(old, moved, changed, options.timeout):
        if isinstance(item, str):
            notes.append(item)
            continue
        screen.line(f"{item.source.label}: {item.hash} ({item.fetcher})")
        fetched.append(item)
    text = matrix_editor.edited(text, new_values(fetched))
    new = matrix_reader.parse(text, root=old.root)
    todo = [*notes, *todo]
    return _carry_out(old, new, _plan_files(old, new), todo, options)


def _next_steps(new: Matrix, planned: Sequence[Change]) -> Iterator[str]:
    """Yield what to do with new recipes: track them, and build one of them before the others."""
    written = {change.path for change in planned if change.action.writes}
    if any(it.action is Action.CREATE for it in planned):
        yield "`git add -A`, as Flox sees only files that Git tracks"
    possible = [v for v in new.variants if v.path in written and not v.impossible]
    here = [v for v in possible if v.platform == f"{platform.machine()}-linux"]
    if first := min(here or possible, key=lambda v: v.cpu.level, default=None):
        yield f"build one variant before the others: `invoke build {first.id}`"


_MOST_LINES: Final = 8
"""Changed lines of matrix.toml that are printed; of more, the first half. `-v` prints all."""


def _show_diff(change: Change, options: BumpOptions, screen: Screen) -> None:
    """Print how matrix.toml changes."""
    if options.verbose:
        screen.diff(change.diff())
        return
    lines = [line for line in change.diff(0).splitlines()[2:] if not line.startswith("@")]
    shown = lines if len(lines) <= _MOST_LINES else lines[: _MOST_LINES // 2]
    screen.diff("\n".join(shown))
    if left := len(lines) - len(shown):
        screen.line(f"... {counted(left, 'more changed line')} of matrix.toml; -v prints them")


def _show_rebuilds(
    old: Matrix, new: Matrix, planned: Sequence[Change], screen: Screen, options: BumpOptions
) -> None:
    """Print what the change rebuilds, or why that is not known: today's recipes may be broken."""
    try:
        with _tree(new, planned) as root:
            found = rebuilds.compare("", (old, old.root), (new, root), new.packages)
    except ToolError as error:
        screen.fold("", f"what is rebuilt is not known: {error}", "yellow")
        return
    print_rebuilds(found, screen, verbose=options.verbose)


def _carry_out(
    old: Matrix,
    new: Matrix,
    planned: list[Change],
    todo: Iterable[str],
    options: BumpOptions,
) -> int:
    """Print the diff and the plan, verify the recipes, write them, print what is left to do.

    Returns the exit code: 1, with nothing written, if a file is edited by hand or a recipe does not
    pass verification. Raises WriteError.
    """
    screen = Screen(sys.stdout)
    _show_diff(matrix_editor.change(old.root / paths.MATRIX, old.text, new.text), options, screen)
    print_plan(screen, planned, verbose=options.verbose)
    if refused := [change for change in planned if change.action is Action.REFUSED]:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    result = _verify_planned(new, planned)
    if result.exit_code != EXIT_OK:
        reports.show(result, screen, verbose=options.verbose)
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    if result.severities["warning"]:
        reports.show(result, screen, verbose=options.verbose)
    else:
        screen.fold("", result.summary, indent=2)
    if options.dry_run and nix_evaluation.is_installed():
        _show_rebuilds(old, new, planned, screen, options)
    if not options.dry_run:
        file_plan.apply(old.root, planned)
    screen.line("Dry run: nothing was written." if options.dry_run else "Written.")
    notes = list(dict.fromkeys([*todo, *_next_steps(new, planned)]))
    screen.line("Next:" if notes else "Next: git diff")
    for note in notes:
        screen.fold("  - ", note, indent=4)
    return EXIT_OK
