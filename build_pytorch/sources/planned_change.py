"""The files of a changed matrix: planned and verified before they are written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from build_pytorch.base import files, paths
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.generate import phase_plan
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix import matrix_text
from build_pytorch.matrix.model import Matrix, Phase
from build_pytorch.verify import check, verification
from build_pytorch.verify.verification import VerificationResult


def plan_files(old: Matrix, new: Matrix) -> list[Change]:
    """Plan matrix.toml and what all phases write for it.

    A recipe that is edited by hand and gets another name is refused.
    """
    tree = Tree(old.root)
    changes = [matrix_text.change(old.root / paths.MATRIX, old.text, new.text)]
    former = {package.path for package in old.packages}
    for phase in Phase:
        for change in phase_plan.plan(phase, new, tree):
            is_edited = change.action is Action.UNKNOWN and change.path in former
            reason = "edited by hand, and has another name"
            refused = Change(path=change.path, action=Action.REFUSED, reason=reason)
            changes.append(refused if is_edited else change)
    return changes


def verify_planned(matrix: Matrix, planned: Sequence[Change]) -> VerificationResult:
    """Check the planned recipes in a temporary folder, by all categories but `generated`."""
    function = paths.COMPANION_FUNCTION
    recipes = {function: files.read_named(paths.in_use(matrix.root, function))}
    for change in planned:
        data = change.new if change.action.writes else change.old
        if data is not None and change.path.endswith(".nix"):
            recipes.setdefault(change.path, data)
    only = [name for name in check.categories() if name != "generated"]
    with tempfile.TemporaryDirectory() as folder:
        for path, data in recipes.items():
            copy = Path(folder) / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
        return verification.verify(matrix, Path(folder), only=only)
