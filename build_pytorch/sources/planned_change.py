"""The files of a changed matrix: planned, verified and compared before they are written."""

from __future__ import annotations

import contextlib
import platform
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from build_pytorch.base import digest, files, paths
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text
from build_pytorch.generate import docs, recipes
from build_pytorch.generate.phase_plan import plan_recipe, shared_files
from build_pytorch.generate.recipes import nixpkgs_imports
from build_pytorch.matrix import matrix_editor
from build_pytorch.matrix.model import Matrix
from build_pytorch.verify import check, rebuilds, verification
from build_pytorch.verify.rebuilds import Rebuilds
from build_pytorch.verify.verification import VerificationResult


def plan_files(old: Matrix, new: Matrix) -> list[Change]:
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


def verify_planned(matrix: Matrix, planned: Iterable[Change]) -> VerificationResult:
    """Check the planned recipes in a temporary folder, by all categories but `generated`."""
    only = [name for name in check.categories() if name != "generated"]
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


def next_steps(new: Matrix, planned: Sequence[Change]) -> Iterator[str]:
    """Yield what to do with new recipes: track them, and build one of them before the others."""
    written = {change.path for change in planned if change.action.writes}
    if any(it.action is Action.CREATE for it in planned):
        yield "`git add -A`, as Flox sees only files that Git tracks"
    possible = [v for v in new.variants if v.path in written and not v.impossible]
    here = [v for v in possible if v.platform == f"{platform.machine()}-linux"]
    if first := min(here or possible, key=lambda v: v.cpu.level, default=None):
        yield f"build one variant before the others: `invoke build {first.id}`"


def rebuilds_of(old: Matrix, new: Matrix, planned: Sequence[Change]) -> Rebuilds:
    """Return what a planned change rebuilds. Raises ToolError if today's recipes are broken."""
    with _tree(new, planned) as root:
        return rebuilds.compare("", (old, old.root), (new, root), new.packages)
