"""A changed matrix with all its files: plan, verify, show, then write all or nothing."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from build_pytorch.base import digest, file_plan, files, paths
from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text, print_plan
from build_pytorch.generate import docs, rendering
from build_pytorch.generate.phase_plan import plan_recipe
from build_pytorch.generate.recipes import nixpkgs_imports
from build_pytorch.matrix import matrix_editor
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.verify import registry, reports, verification
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


def _unseen_texts(old: Matrix, new: Matrix, result: VerificationResult) -> Iterator[str]:
    """Yield where recipes of a new PyTorch replace texts that check source-texts cannot see."""
    versions = {name: release.torch.version for name, release in old.releases.items()}
    for name, release in new.releases.items():
        if versions.get(name) != release.torch.version:
            subjects = (
                s for o in result.outcomes if o.check.id == "source-texts" for s in o.not_run
            )
            files_ = dict.fromkeys(s.split(": ")[1] for s in subjects if s.startswith(f"{name}: "))
            if files_:
                yield f"not seen whether {name} has the texts to replace in {', '.join(files_)}"


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
    for note in dict.fromkeys([*todo, *_unseen_texts(old, new, result)]):
        screen.fold("  - ", note, indent=4)
    return EXIT_OK
